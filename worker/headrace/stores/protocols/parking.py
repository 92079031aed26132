"""Jobs that wait until a worker knows their type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.stores.bounds import MAX_SETTLE
from headrace.stores.protocols.moving import Fence
from headrace.topology import PartitionRef


class Unknown(NamedTuple):
    """A leased job of a ``type`` that the worker does not know, to be parked."""

    key: bytes
    token: bytes
    type: str


class ParkedLimits(NamedTuple):
    """How many jobs of one type may wait in a partition, and for how long since they were due; None: any, for ever."""

    jobs: int | None = None
    age_ms: int | None = None


class TrimmedParked(NamedTuple):
    """How many parked jobs a step made dead letters; the next one goes on ``after`` this key, b"" at the end."""

    dead: int
    after: bytes


def no_worker_knows(type: str) -> str:
    """Return the error of a dead letter that was parked."""
    return f"no worker knows type {type}"


def too_many_wait(type: str, limits: ParkedLimits) -> str:
    """Return the error of a dead letter that was parked beyond the limit of jobs."""
    return f"{no_worker_knows(type)}, and more than {limits.jobs} jobs of it waited in the partition"


def waited_too_long(type: str, limits: ParkedLimits) -> str:
    """Return the error of a dead letter that was parked beyond the limit of time."""
    return f"{no_worker_knows(type)}, and the job waited for longer than {(limits.age_ms or 0) / 1000:g} s"


class ParkingSteps(Protocol):
    """Steps on parked jobs."""

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Let jobs wait by type until a worker knows it; no attempt is burned. Returns refused indexes."""
        ...

    async def unpark(self, ref: PartitionRef, types: Sequence[str]) -> int:
        """Make parked jobs of these types ready, at most 1,000; the number of them."""
        ...

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        """Return how many jobs wait for each type, at most 100 types."""
        ...

    async def parked_partitions(self, queue: str) -> dict[PartitionRef, int]:
        """Return the partitions of the queue that hold parked jobs, with the time (ms) when one was parked last."""
        ...

    async def hint_parked(self, ref: PartitionRef, at: int) -> None:
        """Raise the hint that a partition holds parked jobs, the last one since ``at`` (ms), unless there is one.

        In a Cluster it is lost with a worker that dies right after it has parked a job. One too many does no harm; none
        is raised of a deleted queue.
        """
        ...

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_SETTLE) -> int:
        """Make at most ``limit`` (<= 250) parked jobs of this type dead letters; the number of them.

        For a type that no worker will know again; it costs the jobs no attempt. Their error is `no_worker_knows`.
        """
        ...

    async def trim_parked(
        self,
        ref: PartitionRef,
        type: str,
        limits: ParkedLimits,
        after: bytes = b"",
        limit: int = MAX_SETTLE,
        *,
        fence: Fence | None = None,
    ) -> TrimmedParked:
        """Make parked jobs of this type that are beyond the limits dead letters; it costs them no attempt.

        Of too many the first in the order of their ids, which is that of time where ids are generated. One call looks
        at ``limit`` (<= 250) jobs behind the key ``after``. Errors: `too_many_wait`, `waited_too_long`.
        ``fence``: of the leader that does it; raises Fenced.
        """
        ...
