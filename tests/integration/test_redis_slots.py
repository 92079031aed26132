"""Slots on their way from one master of a Cluster to another: MOVED, ASK and TRYAGAIN, each on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from headrace import App, Context, JobSpec, Producer, StoreRefused, Worker, WorkerSettings
from headrace.lifecycle import promote
from headrace.stores import Store, open_store
from headrace.stores.redis.keys import Keys
from headrace.topology import PartitionRef
from tests.cluster.guard import Guard
from tests.conformance.steps import QUEUE, enqueue, ids, ref, settled, sizes
from tests.conformance.steps import Worker as Claimer
from tests.services.redis_cluster import RedisClusterServers


@pytest.fixture(scope="module")
def servers(process_guard: Guard) -> Iterator[RedisClusterServers]:
    servers = RedisClusterServers("valkey", guard=process_guard)
    servers.start()
    yield servers
    servers.close()


@pytest.fixture
async def store(servers: RedisClusterServers, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(servers.url, prefix)
    await promote(opened, QUEUE, 1, 1)
    await enqueue(opened, "a", "b")
    yield opened
    await opened.close()


def meta(prefix: str) -> bytes:
    return Keys(prefix, hinted=False).partition(ref(), "meta")


async def test_QE6_MOVED_a_slot_that_has_moved_is_found(
    store: Store, servers: RedisClusterServers, prefix: str
) -> None:
    before = servers.holder(meta(prefix))
    await asyncio.to_thread(servers.move_slot_of, meta(prefix))
    assert servers.holder(meta(prefix)) is not before
    claim = await Claimer(store).claim()
    assert ids(claim) == ["a", "b"]
    assert await store.ack(ref(), settled(claim)) == []


async def test_QE6_ASK_a_key_that_has_gone_ahead_is_asked_where_it_is(
    store: Store, servers: RedisClusterServers, prefix: str
) -> None:
    """By a plain command, and by a script that the target does not know yet; the source still has the slot."""
    moving = servers.begin_to_move(meta(prefix))
    moving.move_keys()
    with moving.target.client() as target:
        target.script_flush()
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    second = topology.promoted(2, 1)
    assert await store.successor(ref()) is None
    assert await store.mark(ref(), second) == "draining"
    assert await store.successor(ref()) == second
    with moving.source.client() as source:
        assert source.execute_command("CLUSTER", "COUNTKEYSINSLOT", moving.slot) == 0
    moving.finish()
    assert await sizes(store) == {"ready": 2}


async def test_QE6_TRYAGAIN_a_slot_whose_keys_lie_on_both_sides_is_waited_for(
    store: Store, servers: RedisClusterServers, prefix: str
) -> None:
    moving = servers.begin_to_move(meta(prefix))
    moving.move_keys(1)
    calls = [asyncio.ensure_future(call) for call in (enqueue(store, "c"), Claimer(store).claim(1))]
    await asyncio.sleep(0.05)
    assert not any(call.done() for call in calls)  # neither side has all of the keys
    moving.move_keys()
    moving.finish()
    await asyncio.gather(*calls)
    assert await sizes(store) == {"leased": 1, "ready": 2}


async def test_QE6_a_slot_that_never_settles_is_an_error_and_nothing_is_applied(
    store: Store, servers: RedisClusterServers, prefix: str
) -> None:
    moving = servers.begin_to_move(meta(prefix))
    moving.move_keys(1)
    try:
        with pytest.raises(StoreRefused, match="a slot is on its way between two nodes for 2 s now; nothing was run"):
            await enqueue(store, "c")
        with pytest.raises(StoreRefused):  # a producer tries for longer, and knows that the job is not there
            await Producer(store, retry_for=2.5).enqueue(QUEUE, "send")
    finally:
        moving.move_keys()
        moving.finish()
    assert await sizes(store) == {"ready": 2}


async def test_QE6_hints_and_topology_move_too(store: Store, servers: RedisClusterServers, prefix: str) -> None:
    """A worker waits for hints on a slot that goes away under it."""
    app, ran = App(), list[str]()

    @app.handler("note")
    async def note(ctx: Context, payload: object) -> None:
        ran.append(ctx.job.id)

    for claim in [await Claimer(store).claim()]:
        await store.ack(ref(), settled(claim))
    worker = Worker(app, store, WorkerSettings(queues=(QUEUE,)))
    running = asyncio.create_task(worker.run())
    await worker.started.wait()
    topology = Keys(prefix, hinted=False).queue(QUEUE, "topology")
    placed: list[str] = []
    producer = Producer(store)
    async with asyncio.timeout(60):
        for _ in range(3):
            await asyncio.to_thread(servers.move_slot_of, topology)
            placed += [job.id for job in await producer.enqueue_many(QUEUE, [JobSpec("note")] * 5)]
            while len(ran) < len(placed):
                await asyncio.sleep(0.01)
    await worker.stop()
    await running
    assert sorted(ran) == sorted(placed)
    assert (await promote(store, QUEUE, 2, 1)).active == 2
    assert (await store.counts([PartitionRef(QUEUE, 2, 0)]))[0].state == "active"
