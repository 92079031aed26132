"""Redis with an append-only file is killed, or restarted in order: whatever was accepted is there, and runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from headrace.audit import audit
from headrace.errors import StoreUnavailable
from headrace.lifecycle import complete, promote
from headrace.migration import move_jobs
from headrace.producer import JobSpec, Producer
from headrace.settings import QueueSettings, Retention
from headrace.stores import open_store
from headrace.stores.base import Failure, Fence, Release, Store, Success, Unknown
from headrace.topology import Topology
from tests.cluster.guard import Guard
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    ids,
    new,
    no_pause,
    ref,
    run_everything,
    settled,
    sizes,
)
from tests.services.redis import RedisServer, flavours
from tests.services.redis_cluster import RedisClusterServers

SETUPS = (*flavours(), "cluster")
APPEND_ONLY = ("--appendonly", "yes", "--appendfsync", "always")
LEADER = Fence(1, "leader")


class Persistent:
    """Servers that keep what they were told. ``url``: of one, or of a Cluster."""

    def __init__(self, url: str, servers: list[RedisServer]) -> None:
        self.url = url
        self._servers = servers

    def end(self, how: str) -> None:
        """All of them at once: "killed", or stopped in order; and start them again."""
        for server in self._servers:
            server.kill() if how == "killed" else server.stop()
        for server in self._servers:
            server.start()


@pytest.fixture
def servers(request: pytest.FixtureRequest, process_guard: Guard) -> Iterator[Persistent]:
    if request.param == "cluster":
        cluster = RedisClusterServers("valkey", options=APPEND_ONLY, guard=process_guard)
        with contextlib.closing(cluster):
            cluster.start()
            yield Persistent(cluster.url, cluster.servers)
    else:
        with RedisServer(request.param, persist=True, guard=process_guard) as server:
            yield Persistent(server.url, [server])


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[Store]:
    store = open_store(url, prefix)
    yield store
    await store.close()


async def answered(store: Store, versions: int = 1) -> Topology | None:
    """Read the topology once all keys can be reached; connections of before end, and a Cluster takes time to form."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.counts([ref(0, version + 1) for version in range(versions)])
                await store.audit_keys(QUEUE, repair=False, pause=no_pause)
                return await store.read_topology(QUEUE)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("servers", SETUPS, indirect=True)
async def test_QA18_whatever_state_a_job_was_in_it_is_there_again_and_runs(
    servers: Persistent, how: str, prefix: str
) -> None:
    async with opened(servers.url, prefix) as store:
        await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
        worker = Worker(store)
        names = ("lost", "suspect", "failed", "put off", "handed back", "parked", "dead", "done", "held")
        await enqueue(store, *names)
        leases = dict(zip(ids(claim := await worker.claim()), settled(claim), strict=True))
        await store.renew(ref(), [leases["suspect"]], 1)
        async with asyncio.timeout(60):
            while not await store.recover(ref()):
                await asyncio.sleep(0.002)
        await store.fail(ref(), [Failure(*leases["failed"], 1, "boom"), Failure(*leases["dead"], None, "boom")])
        await store.release(ref(), [Release(*leases["put off"], 1, "snoozed"), Release(*leases["handed back"])])
        await store.park(ref(), [Unknown(*leases["parked"], "send")])
        await store.ack(ref(), [leases["done"]], [Success("send", 0)])
        await store.renew(ref(), [leases["lost"]], 1)
        await enqueue(store, "ready", new("high", lane=b"0"), new("soon", when=-50), new("late", when=-LONG_MS))
        nonce = b"sent again"
        await enqueue(store, "again", nonce=nonce)
        topology, before = await store.read_topology(QUEUE), await sizes(store)

        servers.end(how)
        assert await answered(store) == topology
        after = await counts(store)
        assert after.live == sum(number for state, number in before.items() if state != "dead")
        assert (await audit(store, QUEUE, load=1.0)).leftovers == []
        # What was under way goes on: the call without an answer, the lease, the job's outcome.
        await enqueue(store, "again", nonce=nonce)
        assert await store.ack(ref(), [leases["held"]]) == []
        assert await store.ack(ref(), [leases["done"]]) == [0]
        assert (await store.find_finished(ref(), [b"done"])).jobs.keys() == {b"done"}
        assert [each.stored_id for each in await store.dead_letters(ref())] == [b"dead"]
        assert await store.unpark(ref(), ["send"]) == 1
        expected = {"lost", "suspect", "failed", "put off", "handed back", "parked", "ready", "high", "soon", "again"}
        ran = list[str]()
        async with asyncio.timeout(60):
            while len(ran) < len(expected):
                claim = await worker.claim()
                assert await store.ack(ref(), settled(claim)) == []
                ran += ids(claim)
                await asyncio.sleep(0.002)
        assert sorted(ran) == sorted(expected)
        assert await sizes(store) == {"scheduled": 1, "dead": 1}


@pytest.mark.parametrize("servers", SETUPS, indirect=True)
async def test_QA18_a_version_that_is_being_left_is_left_after_the_restart(servers: Persistent, prefix: str) -> None:
    """A promotion is done, jobs are on their way and one runs."""
    async with opened(servers.url, prefix) as store:
        await created(store)
        placed = [job.id for job in await Producer(store).enqueue_many(QUEUE, [JobSpec("send", n) for n in range(20)])]
        running = await Worker(store).claim(1)
        await promote(store, QUEUE, 2, 1)
        await store.fence(ref(), LEADER)
        moving = await store.set_aside(ref(), LEADER, 2, 10)
        assert await store.adopt(ref(0, 2), 1, LEADER, ref(), moving[:5]) == [True] * 5
        servers.end("killed")
        topology = await answered(store, 2)
        assert topology is not None
        assert await store.ack(ref(), settled(running)) == []
        assert await move_jobs(store, ref(), LEADER) == 19
        assert sorted([*ids(running), *await run_everything(store, topology)]) == sorted(placed)
        assert set((await complete(store, QUEUE, 1, client_retry_ms=0)).versions) == {2}
