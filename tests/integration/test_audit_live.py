"""An audit of a queue that is in use: it never reports what is only on its way, and it still sees real damage."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
import redis

from headrace.audit import QueueAudit, audit
from headrace.errors import JobMoving, JobUnlisted, NotDrained
from headrace.job_spec import JobSpec
from headrace.lifecycle import complete, configure, promote
from headrace.migration import move_jobs, tidy_arrivals
from headrace.producer import Producer
from headrace.purging import Purge, PurgeState, purge_queue
from headrace.schedules.mark import ScheduleMark
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Beat, Claim, Failure, Fence, Release, Settled, Store, Success, Unknown
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef, Topology
from headrace.withdrawal import cancel_jobs
from tests.conformance.steps import QUEUE
from tests.services.redis import RedisServer
from tests.services.redis_setups import RedisSetups

BACKLOG = 4_000


class Traffic:
    """Producers, workers, a leader and a promoter that use every transition, as fast as they can."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.rng = random.Random(seed)
        self.ended = 0
        self.promoted = 1
        self.seq = 0
        self.over = False
        self.removed = 0
        self.noted = 0

    async def topology(self) -> Topology:
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        return topology

    async def produce(self) -> None:
        producer = Producer(self.store)
        while not self.over:
            topology = await self.topology()
            if sum(each.live for each in await self.store.counts(topology.refs(topology.active))) > 2 * BACKLOG:
                await asyncio.sleep(0.01)
                continue
            delays, lanes = (None, None, 0.001, 0.05), (0, 1, 2)
            await producer.enqueue_many(
                QUEUE,
                [
                    JobSpec("send", n, delay=self.rng.choice(delays), priority=self.rng.choice(lanes))
                    for n in range(self.rng.choice((1, 20, 200)))
                ],
            )

    async def work(self) -> None:
        while not self.over:
            topology = await self.topology()
            at = self.rng.choice([ref for version in topology.versions for ref in topology.refs(version)])
            self.seq += 1
            lease_ms = self.rng.choice((1, 60_000, 60_000, 60_000))
            limit = self.rng.choice((1, 10, 100, 250))
            alone = self.rng.random() < 0.3
            claim = await self.store.claim(at, "w", self.seq, limit, lease_ms, suspects=10, alone=alone)
            if self.rng.random() < 0.05:
                claim = await self.store.resume(at, "w", self.seq, 60_000)
            if not claim.gone and lease_ms > 1:
                await self._settle(at, claim)
            if self.rng.random() < 0.1:
                await self.store.unpark(at, ["send"])
            if self.rng.random() < 0.1:
                letters = await self.store.dead_letters(at)
                await self.store.remove_dead(at, [letter.letter for letter in letters])

    async def _settle(self, where: PartitionRef, claim: Claim) -> None:
        held = [Settled(job.key, claim.token) for job in claim.jobs]
        for start in range(0, len(held), 40):
            part = held[start : start + 40]
            ways = ("ack", "fail", "later", "park", "dead", "renew", "release")
            match self.rng.choices(ways, (40, 10, 10, 10, 10, 10, 1))[0]:
                case "ack":
                    told = [Success("send", 0, b"r" * 100)] * len(part)
                    self.ended += len(part) - len(await self.store.ack(where, part, told))
                case "fail":
                    await self.store.fail(where, [Failure(*each, 5, "boom") for each in part])
                case "release":
                    await self.store.release(where, [Release(*each) for each in part])
                case "later":
                    await self.store.release(where, [Release(*each, 5, "put off") for each in part])
                case "park":
                    await self.store.park(where, [Unknown(*each, "send") for each in part])
                case "dead":
                    await self.store.fail(where, [Failure(*each, None, "boom") for each in part])
                case "renew":
                    await self.store.renew(where, part, 20)

    async def remove(self) -> None:
        """Cancel jobs, whether they wait or run, and purge what matches, dead letters and finished jobs too."""
        ids: deque[str] = deque(maxlen=500)
        producer = Producer(self.store)
        while not self.over:
            specs = [JobSpec("send", n, delay=self.rng.choice((None, 0.01, 3600))) for n in range(50)]
            ids.extend(each.id for each in await producer.enqueue_many(QUEUE, specs))
            with suppress(JobMoving, JobUnlisted):
                chosen = self.rng.sample(list(ids), 40)
                found = await cancel_jobs(self.store, QUEUE, chosen, running=self.rng.random() < 0.5)
                self.removed += sum(each.cancelled for each in found)
            if self.rng.random() < 0.2:
                states: tuple[PurgeState, ...] = self.rng.choice((("scheduled",), ("retry_wait", "dead"), ("parked",)))
                wanted = Purge(states, int(time.time() * 1000), "send")
                self.removed += (await purge_queue(self.store, QUEUE, wanted, load=1.0)).total()
            await asyncio.sleep(0.01)

    async def lead(self) -> None:
        """What a leader does beside moving: marks of schedules, statistics, retention; and workers that come and go."""
        fence, mark = Fence(1, "leader"), None
        while not self.over:
            topology = await self.topology()
            following = ScheduleMark(self.noted, "every day")
            assert await self.store.note_schedule(QUEUE, fence, "nightly", mark, following)
            self.noted, mark = self.noted + 1, following
            await summarise(self.store, QUEUE)
            await self.store.count_work(QUEUE, {"claimed": 1})
            await configure(
                self.store, QUEUE, QueueSettings(retention=Retention(done_count=self.rng.choice((100, 10_000))))
            )
            for version in topology.versions:
                for at in topology.refs(version):
                    await self.store.trim(at)
                    await self.store.sleep(at, 1000)
            worker = f"worker-{self.rng.randrange(5)}"
            await self.store.tick(QUEUE, worker, Beat("host", 1))
            await self.store.stop_claiming(QUEUE, [worker], 100)
            if self.rng.random() < 0.3:
                await self.store.leave(QUEUE, worker)
            await self.store.wait_hint([QUEUE], 0.001)
            await asyncio.sleep(0.1)

    async def promote_and_move(self) -> None:
        fence = Fence(1, "leader")
        while not self.over:
            topology = await self.topology()
            if len(topology.versions) < 3:
                topology = await promote(self.store, QUEUE, topology.highest + 1, self.rng.choice((1, 2, 3)))
                self.promoted += 1
            for version in topology.older:
                for at in topology.refs(version):
                    await move_jobs(self.store, at, fence)
                    letters = await self.store.dead_letters(at)
                    await self.store.remove_dead(at, [letter.letter for letter in letters])
                with suppress(NotDrained):
                    await complete(self.store, QUEUE, version, client_retry_ms=0)
            for at in topology.refs(topology.active):
                await tidy_arrivals(self.store, at, fence)
            await asyncio.sleep(0.01)


async def under_load(
    store: Store, audits: int, seed: int, *, moves: bool, scan: bool = False
) -> tuple[Traffic, list[QueueAudit]]:
    """Audit a queue so often while it is used, and on until something of it is proven."""
    traffic = Traffic(store, seed)
    await promote(store, QUEUE, 1, 2)
    await Producer(store).enqueue_many(QUEUE, [JobSpec("send", n) for n in range(BACKLOG)])
    roles = [traffic.produce, traffic.work, traffic.work, traffic.work, traffic.remove, traffic.lead]
    users = [asyncio.create_task(role()) for role in (*roles, *([traffic.promote_and_move] if moves else []))]
    results: list[QueueAudit] = []
    try:
        async with asyncio.timeout(200):
            while len(results) < audits or not any(each.partitions > len(each.unproven) for each in results):
                results.append(await audit(store, QUEUE, load=0.5, scan=scan and len(results) == 1))
                for user in users:
                    if user.done():
                        user.result()
    finally:
        traffic.over = True
        await asyncio.gather(*users)
    return traffic, results


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test has opened, whatever comes of it: else the next test fails for it."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("moves", [False, True])
async def test_J10_a_queue_under_load_never_alarms(
    redis_server: RedisServer, prefix: str, closing: AsyncExitStack, moves: bool
) -> None:
    store = RedisStore(redis_server.url, prefix=prefix)
    closing.push_async_callback(store.close)
    traffic, results = await under_load(store, 3, 1, moves=moves, scan=True)
    assert [each.leftovers for each in results if each.leftovers] == []
    assert traffic.ended > 1_000
    assert traffic.removed > 100
    assert traffic.noted > 5
    assert traffic.promoted > 1 or not moves
    final = await audit(store, QUEUE, load=1.0)
    assert (final.leftovers, final.unproven) == ([], [])


async def test_J10_a_queue_under_load_in_a_cluster_never_alarms(
    redis_setups: RedisSetups, prefix: str, closing: AsyncExitStack
) -> None:
    store = RedisStore(redis_setups.url("cluster"), prefix=prefix)
    closing.push_async_callback(store.close)
    traffic, results = await under_load(store, 2, 2, moves=True)
    assert [each.leftovers for each in results if each.leftovers] == []
    assert min(traffic.ended, traffic.removed, traffic.noted, traffic.promoted) > 1
    final = await audit(store, QUEUE, load=1.0)
    assert (final.leftovers, final.unproven) == ([], [])


async def test_J10_damage_is_seen_and_mended_under_load(
    redis_server: RedisServer, prefix: str, closing: AsyncExitStack
) -> None:
    store = RedisStore(redis_server.url, prefix=prefix)
    closing.push_async_callback(store.close)
    traffic = Traffic(store, 3)
    await promote(store, QUEUE, 1, 1)
    await Producer(store).enqueue_many(QUEUE, [JobSpec("send", n, delay=3600, id=f"lost-{n}") for n in range(50)])
    await Producer(store).enqueue_many(QUEUE, [JobSpec("send", n) for n in range(BACKLOG)])
    key = f"{{{prefix}:{QUEUE}:1:0}}:"
    with redis.Redis.from_url(redis_server.url) as client:
        for n in range(50):
            assert client.zrem(f"{key}scheduled", f"1lost-{n}") == 1
        users = [asyncio.create_task(role()) for role in (traffic.produce, traffic.work, traffic.work)]
        lost = {f"lost-{n}".encode() for n in range(50)}
        seen = await audit(store, QUEUE, load=0.5)
        mended: set[bytes] = set()
        async with asyncio.timeout(60):
            while mended != lost:  # where the lists change too fast it says so, and is asked again
                result = await audit(store, QUEUE, load=0.5, repair=True)
                mended |= {each.leftover.member for each in result.leftovers}
        traffic.over = True
        await asyncio.gather(*users)
    if not seen.unproven:
        assert {each.leftover.member for each in seen.leftovers} == lost
    final = await audit(store, QUEUE, load=1.0)
    assert (final.leftovers, final.unproven) == ([], [])
