"""Where a job is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.topology import PartitionRef

LiveState = Literal["scheduled", "ready", "leased", "retry", "parked"]


class Live(NamedTuple):
    """A live job. ``at``: until when it waits, or is leased, ms; ``worker``: whose lease it is, "" if it is not leased.

    One that is set aside, to be moved to another version, waits as it did before.
    """

    state: LiveState
    at: int | None
    worker: str


class Statuses(NamedTuple):
    """``live``: one for each id asked for, None if it is not live; ``newest``: newest entry of the finished jobs."""

    now: int
    newest: bytes
    live: list[Live | None]


class Described(NamedTuple):
    """A live job with all that is known of it, still packed."""

    live: Live
    record: bytes
    changes: bytes


class InquirySteps(Protocol):
    """Steps that look for live jobs by their stored ids, in the partition where they belong."""

    async def statuses(self, ref: PartitionRef, ids: Sequence[bytes]) -> Statuses:
        """Say where jobs (<= 1,000) are, without reading them."""
        ...

    async def describe(self, ref: PartitionRef, stored_id: bytes) -> Described | None:
        """Return a live job with its record; None if it is not live here."""
        ...
