"""Memory and a real server under the same random commands: every answer and every count must agree.

The scenarios of this folder say what is right; this one finds where two stores differ in what nobody thought of. Time
is made equal: no two commands fall into one millisecond on either side, leases and delays are either over at once or
never, and what depends on other times (hints that are due, the alarm) is left to the tests of the timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.lifecycle import promote
from headrace.stores.base import Claim, Failure, NewJob, Release, Settled, Store, Unknown
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef, Topology
from tests.conformance.conftest import ManualClock
from tests.conformance.steps import LONG_MS, QUEUE, key, new, opened, ref
from tests.services.redis import RedisServer

T = TypeVar("T")
Settle = Callable[[Store, PartitionRef, list[Settled]], Awaitable[list[int]]]

IDS = ["a", "b", "c", "d", "e", "ünïcödé", "exactly-16-bytes", "018f3c5e-7b1a-7c3d-9e2f-0a1b2c3d4e5f"]
PARTITIONS = 2
TYPES = ["known", "unknown"]

partitions = st.integers(0, PARTITIONS - 1)
never_or_now = st.sampled_from([0, LONG_MS])
picks = st.lists(st.integers(0, 40), max_size=4)


class SameBehaviour(RuleBasedStateMachine):
    """Sends each command to both stores and compares the answers."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.memory: Store = MemoryStore(self.clock)
        self.server: Store = RedisStore(self.url, prefix=f"t{uuid4().hex[:16]}")
        self.server_time = 0
        self.nonces: list[tuple[int, bytes, list[NewJob]]] = []
        self.leases: list[tuple[int, Settled]] = []
        self.seq = 0
        self.commands = 0
        self.topology: Topology

    def teardown(self) -> None:
        self.run(self.server.close())
        self.loop.close()

    def run(self, step: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        return self.loop.run_until_complete(_awaited(step))

    async def _next_millisecond(self) -> None:
        self.clock.now += 1
        while True:
            (counts,) = await self.server.counts([ref()])
            if counts.now > self.server_time:
                self.server_time = counts.now
                return

    def both(self, command: Callable[[Store], Awaitable[T]], shown: Callable[[T], object] = lambda answer: answer) -> T:
        """Give one command to both; their answers, as far as ``shown``, must be the same."""
        self.commands += 1
        self.run(self._next_millisecond())
        expected, found = self.run(command(self.memory)), self.run(command(self.server))
        assert shown(found) == shown(expected)
        return expected

    def pick(self, numbers: list[int]) -> dict[int, list[Settled]]:
        """Some of the leases ever granted, by partition."""
        picked: dict[int, list[Settled]] = {partition: [] for partition in range(PARTITIONS)}
        for number in numbers:
            if self.leases:
                partition, lease = self.leases[-1 - number % len(self.leases)]
                picked[partition].append(lease)
        return picked

    # ---- commands --------------------------------------------------------------------------------------------------

    @initialize()
    def create(self) -> None:
        self.topology = self.both(lambda store: promote(store, QUEUE, 1, PARTITIONS))

    @rule(
        partition=partitions,
        jobs=st.lists(
            st.tuples(st.sampled_from(IDS), st.sampled_from([0, 1_000, -LONG_MS]), st.sampled_from([b"0", b"1", b"2"])),
            max_size=5,
        ),
        believed=st.sampled_from([PARTITIONS] * 9 + [3]),
    )
    def enqueue(self, partition: int, jobs: list[tuple[str, int, bytes]], believed: int) -> None:
        batch = [new(job_id, when, payload=self.commands, lane=lane) for job_id, when, lane in jobs]
        nonce = b"n%d" % len(self.nonces)
        self.nonces.append((partition, nonce, batch))
        self.both(lambda store: store.enqueue(ref(partition), believed, nonce, batch))

    @precondition(lambda self: self.nonces)
    @rule(number=st.integers(0, 40))
    def enqueue_again(self, number: int) -> None:
        partition, nonce, batch = self.nonces[-1 - number % len(self.nonces)]
        self.both(lambda store: store.enqueue(ref(partition), PARTITIONS, nonce, batch))

    @rule(
        partition=partitions,
        worker=st.sampled_from(["w", "v"]),
        limit=st.sampled_from([0, 1, 1, 2, 4, 12]),
        lease_ms=never_or_now,
        acks=picks,
        suspects=st.sampled_from([0, 1, 1, 3]),
        alone=st.booleans(),
    )
    def claim(
        self, partition: int, worker: str, limit: int, lease_ms: int, acks: list[int], suspects: int, alone: bool
    ) -> None:
        self.seq += 1
        settled = self.pick(acks)[partition]
        claim = self.both(
            lambda store: store.claim(
                ref(partition), worker, self.seq, limit, lease_ms, settled, suspects=suspects, alone=alone
            ),
            lambda claim: (_claim(claim), claim.next_hint),
        )
        self.leases += [(partition, Settled(job.key, claim.token)) for job in claim.jobs]

    @rule(partition=partitions, worker=st.sampled_from(["w", "v"]), ahead=st.integers(-3, 1), lease_ms=never_or_now)
    def resume(self, partition: int, worker: str, ahead: int, lease_ms: int) -> None:
        seq = max(1, self.seq + ahead)
        self.both(
            lambda store: store.resume(ref(partition), worker, seq, lease_ms),
            lambda claim: _claim(claim, ordered=False),
        )

    @rule(numbers=picks)
    def ack(self, numbers: list[int]) -> None:
        self.settle_leases(numbers, lambda store, at, leases: store.ack(at, leases))

    @rule(numbers=picks, delay_ms=st.sampled_from([None, 0, LONG_MS]), error=st.sampled_from(["", "boom", "☃"]))
    def fail(self, numbers: list[int], delay_ms: int | None, error: str) -> None:
        self.settle_leases(
            numbers, lambda store, at, leases: store.fail(at, [Failure(*each, delay_ms, error) for each in leases])
        )

    @rule(numbers=picks, delay_ms=never_or_now, note=st.sampled_from(["", "stopped"]))
    def release(self, numbers: list[int], delay_ms: int, note: str) -> None:
        self.settle_leases(
            numbers, lambda store, at, leases: store.release(at, [Release(*each, delay_ms, note) for each in leases])
        )

    @rule(numbers=picks, kind=st.sampled_from(TYPES))
    def park(self, numbers: list[int], kind: str) -> None:
        self.settle_leases(numbers, lambda store, at, leases: store.park(at, [Unknown(*each, kind) for each in leases]))

    @rule(numbers=picks, lease_ms=never_or_now)
    def renew(self, numbers: list[int], lease_ms: int) -> None:
        self.settle_leases(numbers, lambda store, at, leases: store.renew(at, leases, lease_ms))

    def settle_leases(self, numbers: list[int], command: Settle) -> None:
        for partition, leases in self.pick(numbers).items():
            self._settle_leases(ref(partition), leases, command)

    def _settle_leases(self, at: PartitionRef, leases: list[Settled], command: Settle) -> None:
        self.both(lambda store: command(store, at, leases))

    @rule(partition=partitions, kinds=st.lists(st.sampled_from(TYPES), unique=True))
    def unpark(self, partition: int, kinds: list[str]) -> None:
        self.both(lambda store: store.parked(ref(partition)))
        self.both(lambda store: store.unpark(ref(partition), kinds))

    @rule(partition=partitions)
    def recover(self, partition: int) -> None:
        self.both(lambda store: store.recover(ref(partition)))

    @rule(partition=partitions)
    def promote_due(self, partition: int) -> None:
        self.both(lambda store: store.promote_due(ref(partition)))

    @precondition(lambda self: self.commands > 30)
    @rule(partition=partitions, numbers=picks)
    def probe(self, partition: int, numbers: list[int]) -> None:
        asked = [(key(IDS[number % len(IDS)]), b"n%d" % number) for number in numbers]
        successor = self.topology.promoted(2, 1)
        self.both(lambda store: store.probe(ref(partition), successor, asked))

    @precondition(lambda self: self.commands > 30)
    @rule(partition=partitions)
    def close_and_remove(self, partition: int) -> None:
        self.both(lambda store: store.close_partition(ref(partition)), lambda counts: counts.state)
        self.both(lambda store: store.remove(ref(partition)))

    @rule(partition=partitions, epoch=st.integers(0, 3), count=st.sampled_from([PARTITIONS, PARTITIONS, 3]))
    def settle(self, partition: int, epoch: int, count: int) -> None:
        other = Topology.created(QUEUE, 1, count).promoted(2, 1)
        for _ in range(epoch):
            other = other.configured(other.settings)
        self.both(lambda store: store.settle(ref(partition), other))
        self.both(lambda store: store.install(ref(partition), other, PARTITIONS))

    # ---- what must agree after each of them ------------------------------------------------------------------------

    @invariant()
    def the_counts_agree(self) -> None:
        if self.commands:
            refs = [ref(partition) for partition in range(PARTITIONS)]
            expected, found = self.run(self.memory.counts(refs)), self.run(self.server.counts(refs))
            for memory, server in zip(expected, found, strict=True):
                assert (server.state, server.nonempty()) == (memory.state, memory.nonempty())
                assert (server.next_due_at is None) == (memory.next_due_at is None)
                assert (server.oldest_ready_at is None) == (memory.oldest_ready_at is None)


async def _awaited(step: Awaitable[T]) -> T:
    return await step


def _claim(claim: Claim, *, ordered: bool = True) -> tuple[object, ...]:
    """A claim without its times."""
    jobs = []
    for claimed in claim.jobs:
        job = opened(claimed)
        history = [(entry.status, entry.worker, entry.error) for entry in job.history]
        facts = (job.attempt, job.expiries, job.crashes, job.suspect, job.alone, job.last_error, history)
        jobs.append((claimed.key, job.payload, facts))
    lost = [(each.key, each.token, each.dead) for each in claim.lost]
    if not ordered:
        jobs.sort(key=lambda each: each[0])
    return claim.token, jobs, claim.refused, claim.gone, claim.make_room, lost


def test_memory_behaves_like_a_server(redis_server: RedisServer) -> None:
    class Machine(SameBehaviour):
        url = redis_server.url

    # Without shrinking, which takes minutes: the same failure comes again with every run.
    phases = (Phase.generate,)
    run_state_machine_as_test(Machine, settings=settings(max_examples=25, stateful_step_count=40, phases=phases))
