"""Places jobs: sends them to the partitions of the active version until it is known of each what became of it.

Jobs are grouped by the partition of the active version that their id belongs to, and each group is sent in atomic
steps, each with a nonce of its own. A partition that refuses (``Moved``) names its successor, and its jobs are grouped
anew.

Two things keep an id from living twice. An id given by the caller may live in an older version, so those partitions
are probed first. And a step whose reply was lost is resent under its nonce until it is answered; if the partition
meanwhile refuses, the probe of the older version tells whether the lost step had been applied.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from headrace.agreement import surpass_epoch
from headrace.errors import (
    AccessDenied,
    HeadraceError,
    NotReplicated,
    OutcomeUnknown,
    QueueDeleting,
    QueueFull,
    QueueHeld,
    StoreFull,
    StoreUnavailable,
    TopologyConflict,
    UnknownQueue,
    not_applied,
)
from headrace.ids import partition_of
from headrace.job import Enqueued
from headrace.lifecycle import reassert
from headrace.pending import Patience, Pending, fail
from headrace.stores.base import (
    MAX_BATCH,
    MAX_ENQUEUE,
    MAX_STEP_BYTES,
    Accepted,
    Moved,
    NewJob,
    Once,
    Replicas,
    Store,
)
from headrace.topology import PartitionRef, Topology

ROUND_STEPS, ROUND_BYTES = 64, 8 << 20
"""Steps, and records in them, that are on their way at the same time: the store must answer the last one in time."""

MAX_SETTLES = 3
"""Times that one step makes its partition agree with the topology before it asks for the topology anew."""


class Step(NamedTuple):
    """Jobs that are sent to one partition together, all or none."""

    ref: PartitionRef
    jobs: list[Pending]
    size: int


class Placement:
    """Places jobs through a Store; remembers the topology of each queue."""

    def __init__(
        self, store: Store, *, retry_for: float, clock: Callable[[], float], replicas: Replicas | None = None
    ) -> None:
        self._store = store
        self._retry_for = retry_for
        self._clock = clock
        self._replicas = replicas
        self._topologies: dict[str, Topology] = {}
        self._name = os.urandom(8)
        self._steps = 0

    async def place(self, queue: str, pending: Sequence[Pending]) -> None:
        """Give every job a result or an error of its own."""
        try:
            await self._send(queue, pending)
        except HeadraceError as error:
            fail(pending, error)

    async def _send(self, queue: str, pending: Sequence[Pending]) -> None:
        """Send jobs until each has a result or an error. What is raised is the error of all those without one."""
        topology = self._topologies.get(queue) or await self._read_topology(queue)
        refused_until = self._clock() + self._retry_for
        left = [job for job in pending if job.open]
        advanced = True
        while left:
            if doubtful := [job for job in left if job.given or job.nonces]:
                await self._probe(topology, doubtful)
                # A lost step that no older version knows was not applied - if they were asked in time: later, the
                # version that had applied it may be gone. That happens to a process that slept.
                now = self._clock()
                late = [job for job in left if job.result is None and job.nonces and now > job.deadline]
                if late:
                    fail(late, StoreUnavailable(f"queue {queue!r}: who could have told may be gone by now"))
                left = [job for job in left if job.open]
                if advanced:  # else the version that was sent to is not among the older ones, and was not asked
                    for job in left:
                        job.nonces = ()
            successors = await self._round_by_round(topology, left)
            left = [job for job in left if job.open]
            if not left:
                return
            successor = await self._successor(topology, successors)
            advanced = successor.epoch > topology.epoch
            if advanced:
                refused_until = self._clock() + self._retry_for
            elif self._clock() > refused_until:
                raise TopologyConflict(
                    queue, f"its partitions refuse {len(left)} job(s) and name no successor", topology
                )
            topology = successor

    async def _round_by_round(self, topology: Topology, jobs: Sequence[Pending]) -> list[Topology]:
        """Send jobs, a bounded amount at a time; the successors that refusing partitions have named.

        Where nobody answered, the jobs that were not sent yet fail without another try.
        """
        successors: list[Topology] = []
        silent: dict[PartitionRef, StoreUnavailable] = {}
        for steps in _rounds(_steps(topology, jobs)):
            sent = []
            for step in steps:
                if step.ref in silent:
                    fail(step.jobs, silent[step.ref])
                else:
                    sent.append(step)
            outcomes: list[Topology | BaseException | None]
            if len(sent) == 1:  # a task of its own would be for nothing
                outcomes = [await self._step(topology, sent[0])]
            else:
                steps_under_way = (self._step(topology, step) for step in sent)
                outcomes = await asyncio.gather(*steps_under_way, return_exceptions=True)
            unanswered = []
            for step, outcome in zip(sent, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                if isinstance(outcome, Topology):
                    successors.append(outcome)
                if (problem := _not_sent(step)) is not None:
                    silent[step.ref] = problem
                    unanswered.append(problem)
            if sent and len(unanswered) == len(sent):
                fail(jobs, unanswered[0])
        return successors

    async def _step(self, topology: Topology, step: Step) -> Topology | None:
        """Send one step and return the successor if the partition refused it and knows one.

        An error is that of the jobs of this step only: the others go on.
        """
        try:
            return await self._answered_step(step.ref, topology, step.jobs)
        except HeadraceError as error:
            fail(step.jobs, error)
            return None

    async def _answered_step(self, ref: PartitionRef, topology: Topology, group: list[Pending]) -> Topology | None:
        """Send one group until there is an answer."""
        self._steps += 1
        nonce = self._name + self._steps.to_bytes(6, "big")
        batch = [job.job for job in group]
        patience = Patience(self._clock, self._retry_for, group)
        settled = 0
        while True:
            try:
                reply = await self._send_step(ref, topology, nonce, batch, group[0].once)
            except (StoreFull, QueueFull, QueueHeld):
                for job in group:  # an earlier try of this step would have been recognized: it was not applied
                    job.nonces = tuple(each for each in job.nonces if each != nonce)
                raise
            except StoreUnavailable as error:
                if isinstance(error, AccessDenied) and error.half_way:
                    raise  # the next try would find a part of this one, and take it for the whole
                if not not_applied(error):
                    for job in group:
                        job.nonces, job.deadline = (*dict.fromkeys((*job.nonces, nonce)),), patience.deadline
                await patience.pause(ref, group, error)
                continue
            if isinstance(reply, Accepted):
                version, partition, existing = ref.version, ref.partition, reply.existing
                for number, job in enumerate(group):
                    job.result = Enqueued(job.id, version, partition, number in existing)
                if self._replicas is not None:
                    self._note_replicas(ref.queue, group, reply, self._replicas)
                return None
            if reply.state in ("resized", "absent") and settled < MAX_SETTLES:
                # Two promoters of this version had different partition counts, or one died before this partition.
                settled += 1
                current = await self._read_topology(ref.queue)
                if _identity(current) == _identity(topology):
                    agreed = await self._store.settle(ref, current)
                    await surpass_epoch(self._store, current, agreed.ahead)
                    continue
            return reply.successor

    async def _send_step(
        self, ref: PartitionRef, topology: Topology, nonce: bytes, batch: list[NewJob], once: Once | None
    ) -> Accepted | Moved:
        expected = (ref, topology.partitions, nonce, batch, topology.incarnation)
        if once is not None:
            return await self._store.enqueue(*expected, self._replicas, once)
        if self._replicas is None:
            return await self._store.enqueue(*expected)
        # In one round trip. Without an answer the step is sent again: to a server that took over, if need be, which may
        # lack it. To wait in a call of its own would say nothing of the server that took the step.
        return await self._store.enqueue(*expected, self._replicas)

    @staticmethod
    def _note_replicas(queue: str, group: list[Pending], reply: Accepted, wanted: Replicas) -> None:
        """Give each placed job NotReplicated if too few replicas had it in time."""
        if reply.replicas < wanted.number:
            for job in group:
                if job.result is not None:
                    job.error = NotReplicated(job.result, queue, reply.replicas, *wanted, reply.problem)

    async def _probe(self, topology: Topology, jobs: list[Pending]) -> None:
        """Find jobs that live in older versions, oldest first, and mark those partitions in passing."""
        for version in topology.older:
            partitions = topology.versions[version].partitions
            groups: dict[int, list[Pending]] = {}
            for job in jobs:
                if job.result is None:
                    groups.setdefault(partition_of(job.id, partitions), []).append(job)
            for partition, group in groups.items():
                ref = PartitionRef(topology.queue, version, partition)
                for start in range(0, len(group), MAX_ENQUEUE):
                    part = group[start : start + MAX_ENQUEUE]
                    known = await self._probe_step(ref, topology, part)
                    for job, found in zip(part, known, strict=True):
                        if found:
                            job.result = Enqueued(job.id, version, partition, existing=not job.nonces)

    async def _probe_step(self, ref: PartitionRef, topology: Topology, part: list[Pending]) -> list[bool]:
        patience = Patience(self._clock, self._retry_for, part)
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
        if topology.deleting:
            self._topologies.pop(queue, None)
            raise QueueDeleting(queue)
        self._topologies[queue] = topology
        return topology

    async def _successor(self, topology: Topology, named: Sequence[Topology]) -> Topology:
        """Return the newest topology known: that of the refusing partitions, or the stored one."""
        # Two topologies may have the same epoch, if a failover has forgotten one: that with a later version counts.
        known = [each for each in named if each.epoch > topology.epoch or each.highest > topology.highest]
        if known:
            newest = max(known, key=lambda successor: (successor.highest, successor.epoch))
            with suppress(HeadraceError):  # where the topology lies may be down; the partitions may be elsewhere
                stored = await reassert(self._store, newest, proven=True)
                if stored is not None and stored.epoch >= newest.epoch:
                    newest = stored
            self._topologies[topology.queue] = newest
            return newest
        found = await reassert(self._store, topology)
        if found is None:
            self._topologies.pop(topology.queue, None)
            raise UnknownQueue(topology.queue)
        self._topologies[topology.queue] = found
        if found.epoch <= topology.epoch:
            # The partition refuses although the stored topology lists it as active: its promoter is between two steps.
            # Wait for it to be written.
            await asyncio.sleep(0.02 * random.uniform(0.5, 1.0))
        return found


def _identity(topology: Topology) -> tuple[int, int, int]:
    """Say which active version it is that jobs are sent to."""
    return topology.active, topology.partitions, topology.incarnation


def _steps(topology: Topology, jobs: Sequence[Pending]) -> Iterator[Step]:
    """Yield the steps that carry the jobs, partition by partition in turn, as large as a step may be."""
    partitions = topology.partitions
    groups: dict[int, list[Pending]] = {}
    for job in jobs:
        number = partition_of(job.id, partitions) if partitions > 1 else 0
        groups.setdefault(number, []).append(job)
    cut = [_cut(PartitionRef(topology.queue, topology.active, number), group) for number, group in groups.items()]
    while cut:  # by turns, so that what is sent together spreads over the partitions
        following = []
        for steps in cut:
            if (step := next(steps, None)) is not None:
                yield step
                following.append(steps)
        cut = following


def _cut(ref: PartitionRef, group: list[Pending]) -> Iterator[Step]:
    part: list[Pending] = []
    size = 0
    for job in group:
        weight = len(job.job.body)
        if part and (len(part) == MAX_ENQUEUE or size + weight > MAX_STEP_BYTES):
            yield Step(ref, part, size)
            part, size = [], 0
        part.append(job)
        size += weight
    yield Step(ref, part, size)


def _rounds(steps: Iterator[Step]) -> Iterator[list[Step]]:
    """Yield steps in lists that may be on their way at the same time."""
    together: list[Step] = []
    size = 0
    for step in steps:
        if together and (len(together) == ROUND_STEPS or size + step.size > ROUND_BYTES):
            yield together
            together, size = [], 0
        together.append(step)
        size += step.size
    if together:
        yield together


def _not_sent(step: Step) -> StoreUnavailable | None:
    """Return the error of further jobs for a partition that did not answer this step; None if it did."""
    errors: list[Any] = [
        job.error
        for job in step.jobs
        if job.result is None and isinstance(job.error, StoreUnavailable | OutcomeUnknown)
    ]
    if not errors:
        return None
    kind = type(errors[0]) if isinstance(errors[0], StoreUnavailable) else StoreUnavailable
    # What is told of a job in doubt names it, and these are others.
    why = errors[0].__cause__ if isinstance(errors[0], OutcomeUnknown) else errors[0]
    return kind(f"not sent, after another step had failed: {why}")
