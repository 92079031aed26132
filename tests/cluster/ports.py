"""Free ports on loopback that stay free while their server is stopped, also from other runs beside this one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Below the ephemeral ranges of Linux (32768) and macOS (49152): no outgoing connection takes the port of a server
# that a test has stopped and will start again.
_RANGE = range(20000, 32000)
_GIVEN: set[int] = set()


def free_ports(count: int) -> list[int]:
    """``count`` different TCP ports nobody listens on, and no other process was given. Raises OSError if too few."""
    found: list[int] = []
    for port in _candidates():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        _GIVEN.add(port)
        if len(found) == count:
            return found
    raise OSError(f"only {len(found)} of {count} ports in {_RANGE.start}-{_RANGE.stop - 1} are free")


def _candidates() -> Iterator[int]:
    """Ports in random order that are this process's until it ends; those that it has had come last."""
    shuffled = random.sample(_RANGE, len(_RANGE))
    for port in sorted(shuffled, key=lambda port: port in _GIVEN):
        with contextlib.suppress(BlockingIOError):
            fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            yield port


@cache
def _claims() -> int:
    """A file of which each process locks the bytes that are its ports; the system lets go of them when it ends."""
    path = Path(tempfile.gettempdir()) / f"headrace-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
