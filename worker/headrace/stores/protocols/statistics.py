"""What a queue holds and has done, at a glance: one small value per queue, so that watching it costs one read.

Depths are measured now and then by whoever looks after the queue (`headrace.statistics.summarise`); counters only grow.
Those of partitions are exact. Those of workers are sent once a second at most, and never twice: what a worker counted
within the second before a call that the store did not answer may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from headrace.stores.protocols.topology import Counts
from headrace.topology import PartitionRef, VersionState

WORK: Final = (
    "claimed", "succeeded", "retried", "dead", "snoozed", "parked", "interrupted", "handed_back", "service_ms",
    "service_jobs",
)  # fmt: skip
"""Counters that workers keep: jobs claimed, runs by outcome, and how many runs were timed, with their sum in ms."""


class Growth(NamedTuple):
    """Growing counters of partitions, in jobs.

    ``arrived``: became ready, by being enqueued, by their time or for their retry; ``expired``: leases that ended;
    ``dead_dropped``: dead letters beyond the queue's limit.
    """

    enqueued: int = 0
    arrived: int = 0
    expired: int = 0
    dead_dropped: int = 0

    def plus(self, other: Growth) -> Growth:
        """Return the sums."""
        return Growth(*map(sum, zip(self, other, strict=True)))


COUNTERS: Final = (*Growth._fields, *WORK)


DepthName = Literal["ready", "scheduled", "retry", "leased", "parked", "moving", "dead"]


class Survey(NamedTuple):
    """One partition, read in one step. ``due_within``: delayed jobs due within each of `HORIZONS`."""

    counts: Counts
    growth: Growth
    due_within: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Depth:
    """What one version held when it was measured. Times are ms of the server's clock.

    ``oldest_ready_at``: when the oldest ready job was due; ``next_due_at``: when the next delayed one is;
    ``due_within``: delayed jobs that become due within 10, 30, 60, 300, 900 and 3,600 s (`HORIZONS`).
    """

    state: VersionState
    partitions: int
    ready: int = 0
    scheduled: int = 0
    retry: int = 0
    leased: int = 0
    parked: int = 0
    moving: int = 0
    dead: int = 0
    oldest_ready_at: int | None = None
    next_due_at: int | None = None
    due_within: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Statistics:
    """A queue at a glance, read in one step.

    ``now``: the server's time of the reading; ``measured_at``: when the depths were measured, 0 if they never were;
    ``epoch``: of the topology then. ``counters``: every name of `COUNTERS`. A counter may begin anew at 0 if the data
    set was lost. ``scaling``: what `StatisticsSteps.write_scaling` stored, b"" if nothing.
    """

    now: int
    measured_at: int
    epoch: int
    versions: Mapping[int, Depth]
    counters: Mapping[str, int]
    scaling: bytes = b""

    @property
    def age_ms(self) -> int:
        """How long ago the depths were measured, in ms."""
        return max(0, self.now - self.measured_at)

    @property
    def oldest_ready_at(self) -> int | None:
        """When the oldest ready job of any version was due, ms; None if none was ready."""
        times = (depth.oldest_ready_at for depth in self.versions.values())
        return min((at for at in times if at is not None), default=None)

    def total(self, state: DepthName) -> int:
        """Return how many jobs were in a state, over all versions."""
        return sum(getattr(depth, state) for depth in self.versions.values())


class StatisticsSteps(Protocol):
    """Steps on the statistics of a queue, and what they are made from."""

    async def survey(self, refs: Sequence[PartitionRef]) -> list[Survey]:
        """Return what statistics need of each partition, each read in one step."""
        ...

    async def read_stats(self, queue: str) -> Statistics | None:
        """Return the queue's statistics, one small read; None if there are none."""
        ...

    async def write_stats(
        self, queue: str, expected_at: int, epoch: int, depths: Mapping[int, Depth], growth: Mapping[int, Growth]
    ) -> bool:
        """Store depths and what the counters of each version have grown to, measured now.

        False, and nothing changed, if others have been stored since ``expected_at`` (``measured_at`` as read before
        measuring), or the queue does not exist. The total of a counter grows by the difference to the last value of
        its version; one that went back adds nothing.
        """
        ...

    async def write_scaling(self, queue: str, record: bytes) -> bool:
        """Store what whoever scales the workers remembers of the queue; False, and nothing done, if it does not exist.

        The last one counts.
        """
        ...

    async def count_work(self, queue: str, counts: Mapping[str, int]) -> bool:
        """Add to the counters of `WORK`; False, and nothing changed, if the queue does not exist.

        It does not know a call that is sent again, so one without an answer must not be.
        """
        ...
