"""What a lock holds, who holds it, and what every lock backend can do."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Version = Hashable
"""Opaque, and compared for equality only."""

SECOND = 1_000_000
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a lock.

    ``holder``: identity and nonce of one term (`holder_of`), "" if free. ``term``: rises with every takeover.
    ``duration``: seconds of silence after which others may take it. ``seq``: of this write, unique and rising per
    holder: its wall time in microseconds; None if the store holds something else. ``acquired``: wall time in
    microseconds. Times are shown, and never compared with a clock.
    """

    holder: str
    term: int
    duration: float
    seq: int | None
    acquired: int = 0
    epoch: int = 0


class Lock(Protocol):
    """One lock in some store. One event loop, one call at a time.

    Each call ends within about ``timeout`` seconds and is attempted once: nothing is repeated below, or a write whose
    reply was lost would be told from a refused one no more. Raises `Conflict`, `Unavailable` and `Forbidden` only.
    """

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        """Return version and content, as of now; None if there is no record."""

    async def create(self, record: Record, timeout: float) -> Version:
        """Write the first record. Conflict: there is one."""

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        """Replace the record at ``version``. Conflict: it is at another, or gone."""

    async def close(self) -> None:
        """Give up connections and threads."""


@dataclass(frozen=True, slots=True)
class RankedLock:
    """A place in the chain of locks: of two claims the one of higher rank wins.

    ``hold_down``: after an outage it is used again only when its probes have succeeded for a while; else the first
    outage within ten minutes is forgiven at once.
    """

    name: str
    rank: int
    lock: Lock
    hold_down: bool = True


def make_identity(environ: Mapping[str, str] = os.environ, *, random_bytes: int = 8) -> str:
    """Return a name for this process that no other has, however many share a Pod's or a host's name.

    From ``POD_NAME`` and ``POD_UID`` (downward API) where they are set, else from host name and boot; always with
    ``random_bytes`` of randomness.
    """
    name = environ.get("POD_NAME") or socket.gethostname()
    unique = environ.get("POD_UID") or _boot_id()
    short = re.sub(r"[^0-9A-Za-z]", "", unique)[:8]
    clean = re.sub(r"[^0-9A-Za-z.-]", "-", name)[:_LONGEST_NAME]
    return f"{clean}_{short}-{secrets.token_hex(random_bytes)}"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{os.getpid():x}"


def holder_of(identity: str, nonce: str) -> str:
    """Return the holder of one term of this process."""
    return f"{identity}_{nonce}"


def identity_of(holder: str) -> str:
    """Return the process's part of a holder, "" for ""."""
    return holder.rpartition("_")[0]


def next_seq(wall: int, last: int) -> int:
    """Return the number of a write: the wall time in microseconds, above ``last``, and never at a full second.

    A time without a fraction is written without one by common clients, and the Kubernetes API wants six digits.
    """
    seq = max(wall, last + 1)
    return seq if seq % SECOND else seq + 1
