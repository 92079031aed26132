"""Where a job is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

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


class Entry(NamedTuple):
    """A live job as it stands in an index, still packed. ``at``: ms, see `Live`; ``worker``: whose lease it is."""

    stored_id: bytes
    at: int | None
    record: bytes
    changes: bytes
    worker: str


Index = Literal["r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "park", "leased"]
INDEXES: Final[dict[LiveState, tuple[Index, ...]]] = {
    "scheduled": ("scheduled",),
    "ready": ("alone", "suspects", "r0", "r1", "r2"),
    "leased": ("leased",),
    "retry": ("retry",),
    "parked": ("park",),
}
"""Where jobs of each state are."""
MAX_BROWSE: Final = 100
MAX_BROWSE_BYTES: Final = 2 << 20


class InquirySteps(Protocol):
    """Steps that look for live jobs by their stored ids, in the partition where they belong."""

    async def statuses(self, ref: PartitionRef, ids: Sequence[bytes]) -> Statuses:
        """Say where jobs (<= 200) are, without reading them."""
        ...

    async def browse(self, ref: PartitionRef, index: Index, skip: int = 0) -> list[Entry]:
        """Return the next jobs of one index (<= 100, and 2 MiB), in its order; none at its end.

        ``skip``: entries that were seen before. Jobs move meanwhile, so one may be missed or seen twice.
        """
        ...

    async def describe(self, ref: PartitionRef, stored_id: bytes) -> Described | None:
        """Return a live job with its record; None if it is not live here."""
        ...
