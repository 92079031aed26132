"""The producer: puts jobs into queues, wherever their active version is.

A call has three parts. Jobs are packed and checked first, so that bad input changes nothing. They are then grouped by
the partition of the active version that their id belongs to, and each group is one atomic step with a nonce of its own.
A partition that refuses (``Moved``) names its successor, and its jobs are grouped anew.

Two things keep an id from living twice. An id given by the caller may live in an older version, so those partitions
are probed first. And a step whose reply was lost is resent under its nonce until it is answered; if the partition
meanwhile refuses, the probe of the older version tells whether the lost step had been applied.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from headrace.envelope import MAX_PAYLOAD_BYTES, record_body
from headrace.errors import (
    AccessDenied,
    HeadraceError,
    InvalidInput,
    OutcomeUnknown,
    QueueFull,
    QueueHeld,
    StoreFull,
    StoreUnavailable,
    TopologyConflict,
    UnknownQueue,
)
from headrace.ids import encode_id, partition_of
from headrace.job_spec import JobSpec, pack, pack_all
from headrace.lifecycle import CLIENT_RETRY_MS
from headrace.stores.base import LANE, MAX_BATCH, Accepted, NewJob, Store
from headrace.topology import PartitionRef, Topology, check_queue_name

__all__ = ["Enqueued", "JobSpec", "Producer"]

STEP_JOBS = 500
"""Jobs in one atomic step, so that a script stays within a few milliseconds."""

MAX_SETTLES = 3
"""Times that one step makes its partition agree with the topology before it asks for the topology anew."""

MAX_RETRY_SECONDS = CLIENT_RETRY_MS / 1000 - 0.5
"""Longest time a producer seeks the outcome of a step, with a margin below what completing a version waits."""

_TOO_LATE = "the outcome of the step that carried them was not found out in time"


class Enqueued(NamedTuple):
    """Where a job is.

    ``existing``: the id was live already; the job that it names is unchanged. ``partition`` and ``version`` are those
    of the job.
    """

    id: str
    version: int
    partition: int
    existing: bool


@dataclass(slots=True)
class _Pending:
    """A job on its way, until it has a ``result`` or an ``error``.

    ``nonces``: of the steps that carried it and whose outcome is unknown; ``deadline``: until when that can be found
    out, on the producer's clock.
    """

    id: str
    job: NewJob
    given: bool
    nonces: tuple[bytes, ...] = ()
    deadline: float = 0.0
    result: Enqueued | None = None
    error: HeadraceError | None = None


class Producer:
    """Enqueues jobs through a Store, from one event loop. Any number of tasks may share it.

    Concurrent `enqueue` calls travel together. ``max_payload_bytes`` limits a packed payload (default 1 MiB).
    ``retry_for`` (default and most: 4.5) is how long, in seconds, the outcome of a step is sought before
    OutcomeUnknown: a drained version lives on for 5 s so that it can be found out.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        retry_for: float = MAX_RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < retry_for <= MAX_RETRY_SECONDS:
            raise InvalidInput("retry_for", f"is {retry_for} s", f"give more than 0 and at most {MAX_RETRY_SECONDS} s")
        self._store = store
        self._max_payload_bytes = max_payload_bytes
        self._retry_for = retry_for
        self._clock = clock
        self._topologies: dict[str, Topology] = {}
        self._name = os.urandom(8)
        self._steps = 0
        self._waiting: dict[str, list[tuple[_Pending, asyncio.Future[Enqueued]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._placing = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def enqueue(
        self,
        queue: str,
        type: str,
        payload: Any = None,
        *,
        id: str | None = None,
        run_at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        max_retries: int | None = None,
        timeout: timedelta | float | None = None,
        headers: dict[str, str] | None = None,
    ) -> Enqueued:
        """Put one job into ``queue`` and return where it is.

        ``type`` names the handler. ``payload`` is anything that JSON can hold, a pydantic model or a dataclass (stored
        as JSON, under its aliases), or bytes. ``id``: 1..200 bytes of text,
        unique while the job lives (default: a new UUIDv7); enqueueing a live id changes nothing and reports the
        existing job. ``run_at``: an aware datetime or seconds since the epoch; ``delay``: a timedelta or seconds from
        now by the server's clock; default now. ``max_retries`` (0..1000) and ``timeout`` (seconds) override the
        queue's settings for this job. ``headers``: text to text, handed to the handler.

        Raises InvalidInput or PayloadTooLarge before anything is sent. Not enqueued after UnknownQueue, QueueFull,
        QueueHeld, StoreFull, StoreUnavailable (AccessDenied too) or TopologyConflict. Unknown after OutcomeUnknown: the
        store did not answer in time.
        """
        check_queue_name(queue)
        spec = JobSpec(type, payload, id, run_at, delay, max_retries, timeout, headers)
        job = _Pending(*pack(spec, self._max_payload_bytes))
        self._check_open()
        placed: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, []).append((job, placed))
        if queue not in self._senders:
            self._senders[queue] = asyncio.create_task(self._send_waiting(queue))
        return await placed

    async def enqueue_many(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued]:
        """Put many jobs into ``queue``; the results stand in the order of ``jobs``. Errors as in `enqueue`.

        All jobs are checked before the first is sent; the error of one names its index (``jobs[777].delay``). The call
        is not atomic as a whole: if it ends in an error, some jobs may be in the queue; with ids of their own they can
        be sent again.
        """
        check_queue_name(queue)
        pending = [_Pending(*packed) for packed in pack_all(jobs, self._max_payload_bytes)]
        self._check_open()
        await self._place(queue, pending)
        return [job.result for job in pending if job.result is not None]

    async def enqueue_record(self, queue: str, id: str, record: bytes) -> Enqueued:
        """Put the packed record of an earlier job into ``queue`` again, under its id, to run now.

        Errors as in `enqueue`. This is how a dead letter comes back: with its own settings, and all its runs before it.
        """
        check_queue_name(queue)
        job = _Pending(id, NewJob(LANE + encode_id(id), 0, record_body(record)), given=True)
        self._check_open()
        await self._place(queue, [job])
        if job.result is None:
            raise RuntimeError("a placed job has no result")
        return job.result

    async def aclose(self) -> None:
        """Wait for calls under way and close the store; further calls raise HeadraceError. Idempotent."""
        self._closed = True
        await asyncio.gather(*self._senders.values())
        await self._idle.wait()
        await self._store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise HeadraceError("this Producer is closed; make a new one")

    # ---- placing --------------------------------------------------------------------------------------------------

    async def _send_waiting(self, queue: str) -> None:
        """Place what concurrent `enqueue` calls have left since the last round trip, until nothing waits."""
        try:
            while calls := self._waiting.pop(queue, None):
                problem: Exception | None = None
                try:
                    await self._place(queue, [job for job, _ in calls])
                except Exception as error:  # each caller gets it
                    problem = error
                for job, placed in calls:
                    if placed.done():  # its caller was cancelled
                        continue
                    if job.result is not None:
                        placed.set_result(job.result)
                    else:
                        placed.set_exception(job.error or problem or RuntimeError("a placed job has no result"))
        finally:
            del self._senders[queue]

    async def _place(self, queue: str, pending: Sequence[_Pending]) -> None:
        """Give every job a result or an error of its own; then raise one of the errors, OutcomeUnknown first."""
        self._placing += 1
        self._idle.clear()
        try:
            await self._send(queue, pending)
        except HeadraceError as error:
            _fail(pending, error)
        finally:
            self._placing -= 1
            if not self._placing:
                self._idle.set()
        errors = [job.error for job in pending if job.error is not None]
        if errors:
            raise next((error for error in errors if isinstance(error, OutcomeUnknown)), errors[0])

    async def _send(self, queue: str, pending: Sequence[_Pending]) -> None:
        """Send jobs until each has a result or an error. What is raised is the error of all those without one."""
        topology = self._topologies.get(queue) or await self._read_topology(queue)
        refused_until = self._clock() + self._retry_for
        left = list(pending)
        advanced = True
        while True:
            await self._probe(topology, [job for job in left if job.given or job.nonces])
            # A lost step that no older version knows was not applied - if they were asked in time: later, the version
            # that had applied it may be gone. That happens to a process that slept.
            now = self._clock()
            late = [job for job in left if job.result is None and job.nonces and now > job.deadline]
            _fail(late, OutcomeUnknown(f"queue {queue!r}: {len(late)} job(s) may or may not be enqueued: {_TOO_LATE}"))
            left = [job for job in left if job.result is None and job.error is None]
            if advanced:  # else the version that was sent to is not among the older ones, and was not asked
                for job in left:
                    job.nonces = ()
            groups: dict[int, list[_Pending]] = {}
            for job in left:
                groups.setdefault(partition_of(job.id, topology.partitions), []).append(job)
            steps = [
                self._step(PartitionRef(queue, topology.active, partition), topology, group[n : n + STEP_JOBS])
                for partition, group in groups.items()
                for n in range(0, len(group), STEP_JOBS)
            ]
            outcomes = await asyncio.gather(*steps, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            left = [job for job in left if job.result is None and job.error is None]
            if not left:
                return
            successor = await self._successor(topology, outcomes)
            advanced = successor.epoch > topology.epoch
            if advanced:
                refused_until = self._clock() + self._retry_for
            elif self._clock() > refused_until:
                raise TopologyConflict(
                    queue, f"its partitions refuse {len(left)} job(s) and name no successor", topology
                )
            topology = successor

    async def _step(self, ref: PartitionRef, topology: Topology, group: list[_Pending]) -> Topology | None:
        """Send one group and return the successor if the partition refused it and knows one.

        An error is that of the jobs of this group only: the others go on.
        """
        try:
            return await self._answered_step(ref, topology, group)
        except HeadraceError as error:
            _fail(group, error)
            return None

    async def _answered_step(self, ref: PartitionRef, topology: Topology, group: list[_Pending]) -> Topology | None:
        """Send one group until there is an answer."""
        self._steps += 1
        nonce = self._name + self._steps.to_bytes(6, "big")
        batch = [job.job for job in group]
        patience = _Patience(self._clock, self._retry_for, group)
        settled = 0
        while True:
            try:
                reply = await self._store.enqueue(ref, topology.partitions, nonce, batch)
            except (StoreFull, QueueFull, QueueHeld):
                for job in group:  # an earlier try of this step would have been recognized: it was not applied
                    job.nonces = tuple(each for each in job.nonces if each != nonce)
                raise
            except StoreUnavailable as error:
                if not isinstance(error, AccessDenied):  # that was not applied
                    for job in group:
                        job.nonces, job.deadline = (*dict.fromkeys((*job.nonces, nonce)),), patience.deadline
                await patience.pause(ref, group, error)
                continue
            if isinstance(reply, Accepted):
                for number, job in enumerate(group):
                    job.result = Enqueued(job.id, ref.version, ref.partition, number in reply.existing)
                return None
            if reply.state in ("resized", "absent") and settled < MAX_SETTLES:
                # Two promoters of this version had different partition counts, or one died before this partition.
                settled += 1
                current = await self._read_topology(ref.queue)
                if current.active == ref.version and current.partitions == topology.partitions:
                    await self._store.settle(ref, current)
                    continue
            return reply.successor

    async def _probe(self, topology: Topology, jobs: list[_Pending]) -> None:
        """Find jobs that live in older versions, oldest first, and mark those partitions in passing."""
        for version in topology.older:
            partitions = topology.versions[version].partitions
            groups: dict[int, list[_Pending]] = {}
            for job in jobs:
                if job.result is None:
                    groups.setdefault(partition_of(job.id, partitions), []).append(job)
            for partition, group in groups.items():
                ref = PartitionRef(topology.queue, version, partition)
                for start in range(0, len(group), STEP_JOBS):
                    part = group[start : start + STEP_JOBS]
                    known = await self._probe_step(ref, topology, part)
                    for job, found in zip(part, known, strict=True):
                        if found:
                            job.result = Enqueued(job.id, version, partition, existing=not job.nonces)

    async def _probe_step(self, ref: PartitionRef, topology: Topology, part: list[_Pending]) -> list[bool]:
        patience = _Patience(self._clock, self._retry_for, part)
        asked = [(number, nonce) for number, job in enumerate(part) for nonce in job.nonces or (b"",)]
        known = [False] * len(part)
        while asked:
            batch = asked[:MAX_BATCH]
            try:
                answers = await self._store.probe(
                    ref, topology, [(part[number].job.key, nonce) for number, nonce in batch]
                )
            except StoreFull:
                raise
            except StoreUnavailable as error:
                await patience.pause(ref, part, error)
                continue
            del asked[:MAX_BATCH]
            for (number, _), found in zip(batch, answers, strict=True):
                known[number] |= found
        return known

    # ---- topology -------------------------------------------------------------------------------------------------

    async def _read_topology(self, queue: str) -> Topology:
        topology = await self._store.read_topology(queue)
        if topology is None:
            self._topologies.pop(queue, None)
            raise UnknownQueue(queue)
        self._topologies[queue] = topology
        return topology

    async def _successor(self, topology: Topology, outcomes: Sequence[Any]) -> Topology:
        """Return the newest topology known: that of the refusing partitions, or the stored one."""
        known = [outcome for outcome in outcomes if isinstance(outcome, Topology) and outcome.epoch > topology.epoch]
        if known:
            newest = max(known, key=lambda successor: successor.epoch)
            self._topologies[topology.queue] = newest
            return newest
        stored = await self._read_topology(topology.queue)
        if stored.epoch <= topology.epoch:
            # The partition refuses although the stored topology lists it as active: a failover forgot the newest
            # topology, or its promoter is between two steps. Wait for it to be written.
            await asyncio.sleep(0.02 * random.uniform(0.5, 1.0))
        return stored


class _Patience:
    """Pauses between tries of one step, until the time is over in which its outcome can be found out."""

    def __init__(self, clock: Callable[[], float], retry_for: float, jobs: Sequence[_Pending]) -> None:
        self._clock = clock
        self.deadline = min([job.deadline for job in jobs if job.nonces], default=clock() + retry_for)
        self._pause = 0.02

    async def pause(self, ref: PartitionRef, jobs: Sequence[_Pending], error: StoreUnavailable) -> None:
        """Wait before the next try, or raise: OutcomeUnknown if a job may have been enqueued, else ``error``."""
        self._pause = min(self._pause * 2, 0.5)
        if self._clock() + self._pause <= self.deadline:
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
            if self._clock() <= self.deadline:  # else this process slept, and the store may have forgotten the nonce
                return
        unknown = sum(1 for job in jobs if job.nonces)
        if not unknown:
            raise error
        raise OutcomeUnknown(
            f"queue {ref.queue!r}, partition {ref.label}: no answer in time, so {unknown} job(s) may or may not be "
            f"enqueued ({error})"
        ) from error


def _fail(jobs: Sequence[_Pending], error: HeadraceError) -> None:
    """Give ``error`` to the jobs without a result; OutcomeUnknown to those that a lost step may have enqueued."""
    left = [job for job in jobs if job.result is None and job.error is None]
    unknown = sum(1 for job in left if job.nonces)
    told = error
    if unknown and not isinstance(error, OutcomeUnknown):
        told = OutcomeUnknown(f"{unknown} job(s) may or may not be enqueued: {_TOO_LATE} ({error})")
        told.__cause__ = error
    for job in left:
        job.error = told if job.nonces else error
