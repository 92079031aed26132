"""A store in memory on a clock of its own, that remembers every run and knows when there is nothing left to do now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeVar

from headrace.envelope import decode_record, decode_result
from headrace.errors import InvalidInput, RetentionOff
from headrace.job import Job
from headrace.stores.base import Claim, Claimed, Failure, Fence, Release, Settled, Success, Unknown, Withdrawn
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from headrace.worker.metrics import Outcome

T = TypeVar("T", Settled, Failure, Release, Unknown)


class Clock:
    """The time of the queue, in whole milliseconds. It stands still unless it is moved."""

    def __init__(self, start: datetime) -> None:
        self._ms = to_ms(start)

    def __call__(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return self._ms

    def move_to(self, ms: int) -> None:
        """Set the time; it never goes back."""
        self._ms = max(self._ms, ms)

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return from_ms(self._ms)


def to_ms(at: datetime) -> int:
    """Return an aware datetime as milliseconds since the epoch."""
    return round(at.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    """Return milliseconds since the epoch as a datetime in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


@dataclass(eq=False)
class Run:
    """One run of one job.

    ``at``: when it began, on the clock of the test. ``outcome``: what came of it, None while it goes on; ``cancelled``:
    its job was cancelled meanwhile. ``error``: of a failed run, as it is kept with the job: type, message and last
    frames. ``packed``: what the handler returned, as it is kept with the job; None if nothing is kept.
    """

    ref: PartitionRef = field(repr=False)
    claimed: Claimed = field(repr=False)
    at: datetime
    outcome: Outcome | Literal["cancelled"] | None = None
    error: str = ""
    packed: bytes | None = field(default=None, repr=False)

    @cached_property
    def job(self) -> Job:
        """The job as its handler saw it."""
        return opened(self.ref, self.claimed)

    @property
    def result(self) -> Any:
        """What the handler returned, as `headrace.Producer.result` gives it.

        Raises RetentionOff if the queue keeps no finished jobs (give ``settings`` with a retention), ResultNotKept, or
        InvalidInput if the run did not succeed.
        """
        if self.outcome != "succeeded":
            problem = f"there is none: the run of {self.job.type!r} is {self.outcome or 'not over'}"
            raise InvalidInput("result", problem, "look at outcome first")
        if self.packed is None:
            raise RetentionOff(self.ref.queue)
        return decode_result(self.packed)

    @property
    def failed(self) -> bool:
        """Whether it counts as a failed run: the job waits for its retry or is dead."""
        return self.outcome in ("retried", "dead")

    def __repr__(self) -> str:
        return f"<Run of {self.job.type!r} {self.job.id} at {self.at}: {self.outcome or 'running'} {self.error!r}>"


def opened(ref: PartitionRef, claimed: Claimed) -> Job:
    """Unpack a stored job."""
    return decode_record(
        claimed.key[1:],
        claimed.record,
        claimed.changes,
        queue=ref.queue,
        version=ref.version,
        partition=ref.partition,
    )


class GatedStore(MemoryStore):
    """The memory store, of which no worker hears that there is something to do while ``gate`` is closed."""

    def __init__(self, clock: Clock, gate: asyncio.Event) -> None:
        super().__init__(clock)
        self.gate = gate
        self._clock = clock

    def clone(self) -> GatedStore:
        """Return a store on the same data behind the same gate."""
        other = GatedStore(self._clock, self.gate)
        other._data, other._waiters = self._data, self._waiters
        return other

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait for a hint, and for the gate before and after it."""
        await self.gate.wait()
        hint = await super().wait_hint(queues, timeout)
        await self.gate.wait()
        return hint


class RecordingStore(GatedStore):
    """The memory store, observed at its own transitions: nothing is recorded that the store did not accept.

    ``changed`` is called, in the loop of the worker, after every step that leaves nothing running.
    """

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        super().__init__(clock, asyncio.Event())
        self.runs: list[Run] = []
        self._open: dict[tuple[bytes, bytes], Run] = {}
        self._changed = changed

    # ---- what there is to do ----------------------------------------------------------------------------------------

    @property
    def running(self) -> list[Run]:
        """Runs whose outcome is not known yet."""
        return list(self._open.values())

    def quiet(self) -> bool:
        """Whether no job runs and none could be claimed before the clock moves."""
        with self._data.lock:
            return not self._open and all(hints.quiet for hints in self._data.hints.values())

    def next_time(self) -> int | None:
        """Return the earliest time (ms) at which a job becomes due, or the rate of its queue lets one begin."""
        with self._data.lock:
            times = []
            for ref, partition in self._data.partitions.items():
                times.append(partition.next_waiting())
                if partition.ready:
                    times.append(self._data.queue(ref.queue).due.get(ref))
            return min((at for at in times if at is not None), default=None)

    def waiting(self, queue: str) -> list[tuple[int, Job]]:
        """Return the jobs of a queue that wait for their time (ms), earliest first."""
        with self._data.lock:
            found = [
                (at, opened(ref, claimed))
                for ref, partition in self._data.partitions.items()
                if ref.queue == queue
                for at, claimed in partition.waiting()
            ]
        return sorted(found, key=lambda each: each[0])

    # ---- transitions, observed --------------------------------------------------------------------------------------

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspects: int = 1,
        alone: bool = False,
        successes: Sequence[Success] = (),
        fence: Fence | None = None,
    ) -> Claim:
        """Claim, and note what was acknowledged and what begins."""
        claim = await super().claim(
            ref, worker, seq, limit, lease_ms, acks, suspects=suspects, alone=alone, successes=successes, fence=fence
        )
        if acks:
            self._end(acks, claim.refused, lambda _: ("succeeded", ""), successes)
        at = self._clock.now
        for claimed in claim.jobs:
            run = self._open[claimed.key, claim.token] = Run(ref, claimed, at)
            self.runs.append(run)
        if not self._open:
            self._changed()
        return claim

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled], successes: Sequence[Success] = ()) -> list[int]:
        """Acknowledge, and note it."""
        refused = await super().ack(ref, acks, successes)
        self._end(acks, refused, lambda _: ("succeeded", ""), successes)
        return refused

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failures, and note them."""
        refused = await super().fail(ref, failures)
        self._end(failures, refused, lambda each: ("dead" if each.delay_ms is None else "retried", each.error))
        return refused

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand back, and note it."""
        refused = await super().release(ref, releases)
        named: dict[str, Outcome] = {"snoozed": "snoozed", "interrupted": "interrupted"}
        self._end(releases, refused, lambda each: (named.get(each.note, "handed_back"), ""))
        return refused

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Park, and note it."""
        refused = await super().park(ref, jobs)
        self._end(jobs, refused, lambda _: ("parked", ""))
        return refused

    async def withdraw(self, ref: PartitionRef, ids: Sequence[bytes], *, running: bool) -> list[Withdrawn]:
        """Cancel, and note which runs count no more: they would be told within a third of a lease, of real time."""
        places = await super().withdraw(ref, ids, running=running)
        gone = {id for id, place in zip(ids, places, strict=True) if place == "leased"}
        for opened_as, run in list(self._open.items()):
            if run.ref == ref and opened_as[0][1:] in gone:
                self._open.pop(opened_as).outcome = "cancelled"
        if not self._open:
            self._changed()
        return places

    def _end(
        self,
        told: Iterable[T],
        refused: Sequence[int],
        outcome: Callable[[T], tuple[Outcome, str]],
        successes: Sequence[Success] = (),
    ) -> None:
        for index, each in enumerate(told):
            run = self._open.pop((each.key, each.token), None)
            if run is not None and index not in refused:
                run.outcome, run.error = outcome(each)
                if successes:
                    run.packed = successes[index].result
        if not self._open:
            self._changed()
