"""A replica that lacks the last writes takes over, in a Cluster and under Sentinels."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from headrace import (
    App,
    Context,
    JobSpec,
    NotDrained,
    NotReplicated,
    OutcomeUnknown,
    Producer,
    StoreUnavailable,
    Worker,
    WorkerSettings,
)
from headrace.lifecycle import complete, promote
from headrace.stores import Store, open_store
from headrace.stores.redis.keys import Keys
from headrace.topology import PartitionRef, Topology
from tests.cluster.guard import Guard
from tests.conformance.steps import run_everything
from tests.integration.worker.support import eventually
from tests.services.redis import RedisServer, drop_replicas
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_sentinel import SentinelServers

QUEUE = "emails"
PARTITIONS = 24
"""So many that each master has some."""


@pytest.fixture
def cluster(process_guard: Guard) -> Iterator[RedisClusterServers]:
    servers = RedisClusterServers("valkey", replicas=1, guard=process_guard)
    servers.start()
    yield servers
    servers.close()


@pytest.fixture
def sentinel(process_guard: Guard) -> Iterator[SentinelServers]:
    servers = SentinelServers("valkey", guard=process_guard)
    servers.start()
    yield servers
    servers.close()


@contextlib.asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[Store]:
    store = open_store(url, prefix)
    try:
        yield store
    finally:
        await store.close()


T = TypeVar("T")


async def answered(call: Callable[[], Awaitable[T]]) -> T:
    """Call until there is an answer: a failover takes a few seconds."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(StoreUnavailable, OutcomeUnknown):
                return await call()
            await asyncio.sleep(0.05)


def topology_key(prefix: str) -> bytes:
    return Keys(prefix, hinted=False).queue(QUEUE, "topology")


async def fail_over(cluster: RedisClusterServers, master: RedisServer, replica: RedisServer) -> None:
    """The master dies; its replica, which may lack what was written last, takes over."""
    master.kill()
    replica.resume()
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(cluster.serves_all_slots):
            await asyncio.sleep(0.05)


async def promoted_and_forgotten(cluster: RedisClusterServers, store: Store, prefix: str) -> Topology:
    """Promote v1, then v2 while the replica of the topology's master gets nothing; then that replica takes over."""
    first = await promote(store, QUEUE, 1, PARTITIONS)
    master = cluster.holder(topology_key(prefix))
    replica = cluster.replica_of(master)
    await eventually(lambda: store.replicated(QUEUE, first.refs(1)))
    drop_replicas(master, replica)
    second = await promote(store, QUEUE, 2, PARTITIONS)
    knowing = Producer(store)
    placed = await knowing.enqueue_many(QUEUE, [JobSpec("note", n) for n in range(100)])
    assert {job.version for job in placed} == {2}
    await fail_over(cluster, master, replica)
    assert await answered(lambda: store.read_topology(QUEUE)) == first
    return second


async def test_V13_a_topology_that_a_failover_forgot_comes_back_with_a_producer(
    cluster: RedisClusterServers, prefix: str
) -> None:
    async with opened(cluster.url, prefix) as store:
        second = await promoted_and_forgotten(cluster, store, prefix)
        kept = sum(each.ready for each in await store.counts(second.refs(2)))
        assert 20 < kept < 100  # the others lay on the master that died
        async with opened(cluster.url, prefix) as other:
            placed = await Producer(other).enqueue_many(QUEUE, [JobSpec("note", n) for n in range(50)])
        # Partitions of v1 on the master that died have forgotten that they drain; they are told again.
        assert 2 in {job.version for job in placed}
        assert await store.read_topology(QUEUE) == second
        assert {each.state for each in await store.counts(second.refs(1))} == {"draining"}
        ran = await run_everything(store, second)
        assert len(ran) == len(set(ran)) == kept + 50
        assert {each.state for each in await store.counts(second.refs(2))} == {"active"}
        assert set((await complete(store, QUEUE, 1, client_retry_ms=0)).versions) == {2}


async def test_V13_workers_bring_a_forgotten_topology_back_and_run_its_jobs(
    cluster: RedisClusterServers, prefix: str
) -> None:
    """No producer is there any more, and the hints were on the master that died, too."""
    app, ran = App(), set[str]()

    @app.handler("note")
    async def note(ctx: Context, payload: object) -> None:
        ran.add(ctx.job.id)

    async with opened(cluster.url, prefix) as store:
        second = await promoted_and_forgotten(cluster, store, prefix)
        kept = sum(each.ready for each in await store.counts(second.refs(2)))
        workers = [Worker(app, store, WorkerSettings(queues=(QUEUE,))) for _ in range(3)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        async with asyncio.timeout(120):
            while await store.read_topology(QUEUE) != second:
                await asyncio.sleep(0.1)
            # Each worker sweeps a partition every 5 s; a new job in a partition is quicker.
            for ref in second.refs(2):
                await store.hint(ref)
            while len(ran) < kept:
                await asyncio.sleep(0.05)
        for worker in workers:
            await worker.stop()
        await asyncio.gather(*running)
        assert [each.live for each in await store.counts(second.refs(2))] == [0] * PARTITIONS


async def test_V13_a_completion_closes_again_what_a_failover_has_opened(
    cluster: RedisClusterServers, prefix: str
) -> None:
    """A partition is draining again, with a job that had run: it runs again, and is not removed unseen."""
    async with opened(cluster.url, prefix) as store:
        first = await promote(store, QUEUE, 1, PARTITIONS)
        await Producer(store).enqueue_many(QUEUE, [JobSpec("note", n) for n in range(60)])
        second = await promote(store, QUEUE, 2, 1)
        # A partition that does not lie where the topology does.
        home = cluster.holder(topology_key(prefix))
        keys = Keys(prefix, hinted=False)
        holders = [cluster.holder(keys.partition(ref, "jobs")) for ref in first.refs(1)]
        master = next(holder for holder in holders if holder is not home)
        replica = cluster.replica_of(master)
        await eventually(lambda: store.replicated(QUEUE, first.refs(1)))
        drop_replicas(master, replica)
        ran = await run_everything(store, second)
        assert len(ran) == 60
        assert await store.write_topology(second, second.removing(1))
        for ref in first.refs(1):
            await store.close_partition(ref)
        await fail_over(cluster, master, replica)
        with pytest.raises(NotDrained) as refused:
            await answered(lambda: complete(store, QUEUE, 1, client_retry_ms=0))
        assert refused.value.reason == "JobsRemain"
        again = await run_everything(store, second)
        assert set(again) < set(ran)
        assert again
        assert set((await complete(store, QUEUE, 1, client_retry_ms=0)).versions) == {2}


async def test_V13_a_promotion_that_no_replica_confirms_is_told(
    sentinel: SentinelServers, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(sentinel.url, prefix) as store:
        sentinel.replicate()
        with caplog.at_level(logging.WARNING, "headrace.agreement"):
            await promote(store, QUEUE, 1, 1)
        assert caplog.messages == []
        sentinel.replica.pause()
        with caplog.at_level(logging.WARNING, "headrace.agreement"):
            await promote(store, QUEUE, 2, 1)
        sentinel.replica.resume()
        (told,) = caplog.messages
        assert "queue emails: no replica has confirmed topology epoch 2 in time" in told


# ---- producers that wait for replicas -------------------------------------------------------------------------------


async def test_a_producer_that_waits_for_replicas_says_when_they_lag(sentinel: SentinelServers, prefix: str) -> None:
    async with opened(sentinel.url, prefix) as store:
        await promote(store, QUEUE, 1, 2)
        producer, patient = (Producer(store, wait_replicas=1, wait_ms=ms) for ms in (200, 2000))
        sentinel.replicate()
        before = await patient.enqueue(QUEUE, "note", id="before")
        sentinel.replica.pause()
        with pytest.raises(NotReplicated, match="job 'lagging' is stored, but 0 of 1 replica") as told:
            await producer.enqueue(QUEUE, "note", id="lagging")
        assert told.value.placed.id == "lagging"
        each = await producer.enqueue_each(QUEUE, [JobSpec("note", id=name) for name in ("before", "lagging", "new")])
        assert [type(answer) for answer in each] == [NotReplicated] * 3
        sentinel.replica.resume()
        sentinel.replicate()
        again = await patient.enqueue(QUEUE, "note", id="lagging")
        assert again == told.value.placed._replace(existing=True)
        with pytest.raises(NotReplicated):  # there are not so many
            await Producer(store, wait_replicas=2, wait_ms=50).enqueue(QUEUE, "note", id="before")
        assert not before.existing
        topology = await store.read_topology(QUEUE)
        assert topology is not None
        assert sorted(await run_everything(store, topology)) == ["before", "lagging", "new"]


async def test_QF1_what_no_replica_had_is_lost_by_a_failover_and_may_be_sent_again(
    sentinel: SentinelServers, prefix: str
) -> None:
    async with opened(sentinel.url, prefix) as store:
        topology = await promote(store, QUEUE, 1, 2)
        sentinel.replicate()
        careless, careful = Producer(store), Producer(store, wait_replicas=1, wait_ms=100)
        await Producer(store, wait_replicas=1, wait_ms=2000).enqueue(QUEUE, "note", id="kept")
        drop_replicas(sentinel.primary, sentinel.replica)
        await careless.enqueue(QUEUE, "note", id="never told")
        with pytest.raises(NotReplicated):
            await careful.enqueue(QUEUE, "note", id="told")
        sentinel.primary.kill()
        sentinel.replica.resume()
        again = await answered(lambda: careless.enqueue(QUEUE, "note", id="told"))
        assert not again.existing
        assert sorted(await run_everything(store, topology)) == ["kept", "told"]


@pytest.mark.parametrize("form", ["sentinel", "cluster"])
async def test_QF1_what_a_replica_has_confirmed_survives_a_failover_in_the_middle_of_calls(
    form: str, request: pytest.FixtureRequest, prefix: str
) -> None:
    servers: SentinelServers | RedisClusterServers = request.getfixturevalue(form)
    async with opened(servers.url, prefix) as store:
        topology = await promote(store, QUEUE, 1, PARTITIONS)
        await eventually(lambda: store.replicated(QUEUE, topology.refs(1)))  # a busy replica takes its time
        if isinstance(servers, SentinelServers):
            primary, replica = servers.primary, servers.replica
        else:
            primary = servers.holder(Keys(prefix, hinted=False).partition(PartitionRef(QUEUE, 1, 0), "meta"))
            replica = servers.replica_of(primary)
        producers = [Producer(store, wait_replicas=1, wait_ms=300) for _ in range(4)]
        confirmed: set[str] = set()
        doubtful: set[str] = set()
        stop = asyncio.Event()

        async def produce(name: str, producer: Producer) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    confirmed.add((await producer.enqueue(QUEUE, "note", id=f"{name}-{number}")).id)
                except (OutcomeUnknown, StoreUnavailable):
                    doubtful.add(f"{name}-{number}")

        producing = [asyncio.create_task(produce(f"p{n}", producer)) for n, producer in enumerate(producers)]
        async with asyncio.timeout(120):
            while len(confirmed) < 200:
                await asyncio.sleep(0.01)
            primary.kill()
            while not await asyncio.to_thread(replica.is_primary):
                await asyncio.sleep(0.05)
            after = len(confirmed) + len(doubtful)
            while len(confirmed) + len(doubtful) < after + 20:
                await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*producing)
        found = await answered(lambda: run_everything(store, topology))
        assert confirmed <= set(found)
        assert set(found) <= confirmed | doubtful
        assert len(found) == len(set(found))
