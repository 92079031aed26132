"""Queues without workers: partitions that report their next job, and who listens for that."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.topology import PartitionRef


class Nap(NamedTuple):
    """``asleep``: the partition reports the next job that is enqueued. If not, nothing was changed: it needs a worker.

    ``next_due_at``: when its first waiting job is due (ms), None if none waits. ``now``: the store's time (ms).
    """

    asleep: bool
    next_due_at: int | None
    now: int


class Glance(NamedTuple):
    """What the hints of a queue say. ``ready``: some partition is worth a claim; ``next_due_at``: when one will be."""

    ready: bool
    next_due_at: int | None
    now: int


class Wakes(NamedTuple):
    """``queues`` that were woken, each once, and the ``cursor`` to go on from."""

    cursor: bytes
    queues: tuple[str, ...]


class SleepingSteps(Protocol):
    """Steps of whoever starts workers.

    A queue without workers is asleep when each of its partitions is. An enqueue that finds its partition asleep wakes
    it, and says so to all that listen: one entry for each time that a partition was put to sleep. A partition begins
    asleep.
    """

    async def sleep(self, ref: PartitionRef, horizon_ms: int) -> Nap:
        """SLEEP: put a partition to sleep, unless it holds a job that needs a worker.

        That is a ready or leased one, one that is due within ``horizon_ms``, or one on its way between versions. Parked
        jobs need none, nor do those of a queue that is held, unless they are leased.
        """
        ...

    async def glance(self, queue: str) -> Glance:
        """Look at a queue's hints, which costs the same whatever its size.

        Where `hints_may_be_lost`, they may say nothing of a job whose producer died right after the enqueue.
        """
        ...

    async def last_wake(self) -> bytes:
        """Return the cursor of now."""
        ...

    async def wait_wakes(self, after: bytes, timeout: float) -> Wakes:
        """Wait at most ``timeout`` seconds for queues that were woken since the cursor ``after``.

        Only about the last 1,000 wakes are kept, and where `hints_may_be_lost` one may be: it is a hint.
        """
        ...
