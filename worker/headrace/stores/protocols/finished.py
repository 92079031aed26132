"""What became of jobs that succeeded, for as long as the queue's retention says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.stores.protocols.moving import Fence
from headrace.topology import PartitionRef


class Success(NamedTuple):
    """What a worker tells of a finished job, to be kept for a while.

    ``attempt``: failed runs before the last one; ``result``: as `headrace.envelope.encode_result` packs it, b"": none.
    """

    type: str
    attempt: int
    result: bytes = b""


class FinishedJob(NamedTuple):
    """A job that succeeded. ``finished_at``: ms; ``worker``: the one that ran it."""

    stored_id: bytes
    type: str
    attempt: int
    result: bytes
    finished_at: int
    worker: str


class FinishedBatch(NamedTuple):
    """Jobs that were acknowledged by one call. ``entry`` names the batch; pages go by it."""

    entry: bytes
    jobs: tuple[FinishedJob, ...]


class FoundFinished(NamedTuple):
    """``jobs``: by stored id; ``older``: where the search goes on, b"" at its end."""

    jobs: dict[bytes, FinishedJob]
    older: bytes


class Trimmed(NamedTuple):
    """How many finished jobs and dead letters were dropped."""

    finished: int
    dead: int


class FinishedSteps(Protocol):
    """Steps on finished jobs. They are written by `ack` and `claim`, in the step that acknowledges them."""

    async def finished(
        self, ref: PartitionRef, after: bytes = b"", limit: int = 100, *, newest_first: bool = True
    ) -> list[FinishedBatch]:
        """Return whole batches of finished jobs, beginning after the entry that was seen last.

        They hold ``limit`` (<= 1,000) jobs or more, unless 512 KiB are reached or there are no more: none is the end.
        """
        ...

    async def find_finished(
        self, ref: PartitionRef, ids: Sequence[bytes], *, older: bytes = b"", newer: bytes = b""
    ) -> FoundFinished:
        """Look for stored ids (<= 200) among finished jobs, newest first; of one that finished twice, the newest.

        Looks at at most 256 batches or 256 KiB (64 KiB for more than 8 ids), and says where to go on (``older``).
        ``newer``: an entry; only newer ones are looked at.
        """
        ...

    async def adopt_finished(self, ref: PartitionRef, batches: Sequence[FinishedBatch], incarnation: int) -> int | None:
        """Keep jobs that finished in an older version, as far as there is room; give the newest first (<= 1,000).

        Returns how many batches were taken, None if the partition is not active in that incarnation of the queue. Their
        entries get new names; a batch that is given again is kept twice.
        """
        ...

    async def forget_finished(self, ref: PartitionRef, entries: Sequence[bytes]) -> int:
        """Remove batches of finished jobs (<= 1,000), which were adopted elsewhere; how many there were."""
        ...

    async def trim(self, ref: PartitionRef, *, fence: Fence | None = None) -> Trimmed:
        """Drop finished jobs and dead letters beyond what the queue's retention keeps, in one bounded step.

        To be called until it drops nothing. ``fence``: of the leader that does it; raises Fenced. Whatever finishes or
        dies does this in passing; what is left is the age of finished jobs where none finishes any more, and a
        retention that was lowered.
        """
        ...
