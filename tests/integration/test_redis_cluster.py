"""A queue on a real Redis Cluster: spread over the masters, and safe while slots move and hints are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from headrace import App, Producer, Worker, WorkerSettings, lifecycle
from headrace.envelope import encode_body
from headrace.errors import HeadraceError
from headrace.producer import JobSpec
from headrace.stores import open_store
from headrace.stores.base import NewJob, Settled, Store
from headrace.stores.redis import RedisStore
from headrace.stores.redis.keys import Keys
from headrace.topology import PartitionRef
from tests.cluster.guard import Guard
from tests.services.redis_cluster import SLOTS, RedisClusterServers

QUEUE = "emails"


@pytest.fixture(scope="module")
def servers(process_guard: Guard) -> Iterator[RedisClusterServers]:
    servers = RedisClusterServers("valkey", guard=process_guard)
    servers.start()
    yield servers
    servers.close()


@pytest.fixture
async def store(servers: RedisClusterServers, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(servers.url, prefix)
    await opened.check()
    yield opened
    await opened.close()


async def work_until(store: Store, jobs: int, ran: list[str], app: App) -> None:
    """Run a worker until so many jobs ran and nothing is left."""
    worker = Worker(app, store, WorkerSettings(queues=(QUEUE,), concurrency=8))
    running = asyncio.create_task(worker.run())
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    async with asyncio.timeout(60):
        while len(ran) < jobs or any(each.live for each in await store.counts(topology.refs(topology.active))):
            await asyncio.sleep(0.02)
    await worker.stop()
    await running


def recording(ran: list[str]) -> App:
    app = App()

    @app.handler("note")
    async def note(ctx, payload):  # type: ignore[no-untyped-def]
        ran.append(ctx.job.id)

    return app


async def test_QE1_QA13_jobs_run_on_a_cluster_those_of_a_dead_worker_too(store: Store) -> None:
    topology = await lifecycle.promote(store, QUEUE, 1, 12)
    placed = await Producer(store).enqueue_many(
        QUEUE, [JobSpec("note", n, delay=0.2 if n % 10 == 0 else None) for n in range(300)]
    )
    orphans = [len((await store.claim(ref, "dead", ref.partition, 3, 500)).jobs) for ref in topology.refs(1)]
    assert sum(orphans) > 12
    ran: list[str] = []
    await work_until(store, 300, ran, recording(ran))
    assert sorted(ran) == sorted(job.id for job in placed)


async def test_QE6_slots_move_under_traffic_and_no_job_is_lost_or_doubled(
    store: Store, servers: RedisClusterServers, prefix: str
) -> None:
    await lifecycle.promote(store, QUEUE, 1, 6)
    ran: list[str] = []
    producer = Producer(store)
    placed: list[str] = []
    stop = asyncio.Event()

    async def produce() -> None:
        while not stop.is_set():
            placed.extend(job.id for job in await producer.enqueue_many(QUEUE, [JobSpec("note", n) for n in range(20)]))
            await asyncio.sleep(0.005)

    app = recording(ran)
    worker = Worker(app, store, WorkerSettings(queues=(QUEUE,), concurrency=8))
    running = asyncio.create_task(worker.run())
    producing = asyncio.create_task(produce())
    keys = Keys(prefix, hinted=False)
    for number in range(6):
        key = keys.partition(PartitionRef(QUEUE, 1, number), "meta")
        await asyncio.to_thread(servers.move_slot_of, key)
    await asyncio.to_thread(servers.move_slot_of, keys.queue(QUEUE, "topology"))
    stop.set()
    await producing
    async with asyncio.timeout(60):
        while len(ran) < len(placed):
            await asyncio.sleep(0.02)
    await worker.stop()
    await running
    assert sorted(ran) == sorted(placed)
    assert len(set(ran)) == len(ran)


async def test_a_job_whose_hint_was_lost_is_found(store: Store, servers: RedisClusterServers, prefix: str) -> None:
    """The producer died between the insert and the hint."""
    await lifecycle.promote(store, QUEUE, 1, 1)
    await Producer(store).enqueue(QUEUE, "note")
    keys = Keys(prefix, hinted=False)
    for name in ("hot", "due"):
        servers.node(keys.queue(QUEUE, name)).delete(keys.queue(QUEUE, name))
    ran: list[str] = []
    await work_until(store, 1, ran, recording(ran))


async def test_a_hint_that_the_first_try_lost_is_given_by_the_second(store: Store) -> None:
    """A producer that got no reply sends the step again, or probes: the job must not wait for the workers' sweep."""
    assert isinstance(store, RedisStore)
    await lifecycle.promote(store, QUEUE, 1, 1)
    at, hints = PartitionRef(QUEUE, 1, 0), store._hints
    job = NewJob(b"1job", 0, encode_body("note", None))

    async def lost(nonce: bytes, job: NewJob) -> None:
        store._hints = None  # the script is applied, and its reply lost with the producer's connection
        await store.enqueue(at, 1, nonce, [job])
        store._hints = hints
        assert await store.wait_hint([QUEUE], 0.01) is None

    await lost(b"first", job)
    await store.enqueue(at, 1, b"first", [job])
    assert await store.wait_hint([QUEUE], 10) == at
    claim = await store.claim(at, "w", 1, 10, 60_000)
    await store.ack(at, [Settled(each.key, claim.token) for each in claim.jobs])
    while await store.wait_hint([QUEUE], 0.01):
        pass
    await lost(b"second", job)
    topology = await lifecycle.promote(store, QUEUE, 2, 1)
    while await store.wait_hint([QUEUE], 0.01):
        pass
    assert await store.probe(at, topology, [(b"1job", b"second")]) == [True]
    assert await store.wait_hint([QUEUE], 10) == at


async def test_a_plain_url_to_a_cluster_node_says_what_to_use(servers: RedisClusterServers, prefix: str) -> None:
    keys = Keys(prefix, hinted=False)
    here, elsewhere, *_ = servers.masters
    plain = open_store(f"redis://127.0.0.1:{here.port}", prefix)
    queue = next(
        name for n in range(SLOTS) if servers.holder(keys.queue(name := f"queue-{n}", "topology")) is elsewhere
    )
    with pytest.raises(HeadraceError, match=r"redis\+cluster://"):
        await plain.read_topology(queue)
    await plain.close()


async def test_L1_L10_workers_on_a_cluster_elect_a_leader_and_hand_over(
    servers: RedisClusterServers, store: Store, prefix: str
) -> None:
    await lifecycle.promote(store, QUEUE, 1, 2)
    # Only the announcement of a free lock makes the successor look within the test's time.
    settings = WorkerSettings(
        queues=(QUEUE,), leader_lease_duration=300, leader_renew_deadline=200, leader_retry_period=60
    )
    workers = [Worker(App(), store, settings) for _ in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    channel = f"{{{prefix}:{QUEUE}}}:leader"
    listening = servers.node(channel)
    async with asyncio.timeout(60):
        while not any(worker.is_leader() for worker in workers):
            await asyncio.sleep(0.01)
        first, second = sorted(workers, key=lambda worker: not worker.is_leader())
        assert not second.is_leader()
        while listening.pubsub_numsub(channel)[0][1] < 2:
            await asyncio.sleep(0.01)
        await first.stop()
        while not second.is_leader():
            await asyncio.sleep(0.01)
        await second.stop()
        await asyncio.gather(*running)
    listening.close()
