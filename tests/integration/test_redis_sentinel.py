"""A queue behind Sentinels: the primary dies, a replica takes over, work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace import App, Producer, Worker, WorkerSettings, lifecycle
from headrace.errors import InvalidInput, OutcomeUnknown, StoreUnavailable
from headrace.stores import open_store
from tests.cluster.guard import Guard
from tests.services.redis_access import Login
from tests.services.redis_sentinel import SentinelServers

PASSWORD = "p%40ss-word"


@pytest.fixture
def servers(process_guard: Guard) -> Iterator[SentinelServers]:
    servers = SentinelServers("valkey", login=Login("", "p@ss-word"), guard=process_guard)
    servers.start()
    yield servers
    servers.close()


@pytest.mark.parametrize("planned", [False, True])
async def test_QF1_a_failover_is_survived(servers: SentinelServers, prefix: str, planned: bool) -> None:
    """The primary dies, or becomes a replica under readers that are blocked on it."""
    store = open_store(servers.url, prefix)
    await store.check()
    await lifecycle.promote(store, "emails", 1, 2)
    app = App()
    ran: list[str] = []

    @app.handler("note")
    async def note(ctx, payload):  # type: ignore[no-untyped-def]
        ran.append(ctx.job.id)

    worker = Worker(app, store, WorkerSettings(queues=("emails",), lease_ms=3000, leader_profile="fast"))
    running = asyncio.create_task(worker.run())
    # What it returns is on the replica, too: an unplanned failover would lose the last of it.
    producer = Producer(store, wait_replicas=1, wait_ms=2000)
    placed: list[str] = []

    async def enqueue_more(jobs: int) -> None:
        async with asyncio.timeout(60):
            while len(placed) < jobs:
                try:
                    placed.append((await producer.enqueue("emails", "note", id=f"job-{len(placed)}")).id)
                except (StoreUnavailable, OutcomeUnknown):
                    await asyncio.sleep(0.1)  # the same id again: it lives once

    await enqueue_more(20)
    async with asyncio.timeout(60):
        while len(ran) < 20:
            await asyncio.sleep(0.01)
    if planned:
        servers.replicate()
        await asyncio.to_thread(servers.switch_over)
    else:
        servers.kill_primary()
        producer = Producer(store)  # nobody is left to wait for
    await enqueue_more(60)
    async with asyncio.timeout(60):
        while not set(placed) <= set(ran):
            await asyncio.sleep(0.01)
        # Fence and lock of its leadership went over to the new primary as well.
        while not worker.is_leader():
            await asyncio.sleep(0.01)
    await worker.stop()
    await running
    await store.close()


def test_credentials_of_sentinel_urls_are_not_shown() -> None:
    store = open_store(f"redis+sentinel://user:{PASSWORD}@one:26379,two/jobs/3")
    assert repr(store) == "RedisStore('jobs/3 of sentinels one:26379,two:26379', prefix='headrace')"
    with pytest.raises(InvalidInput) as refused:
        open_store(f"redis+sentinel://user:{PASSWORD}@one:26379")
    assert "ss-word" not in str(refused.value)


def test_credentials_of_cluster_urls_are_not_shown() -> None:
    store = open_store(f"redis+cluster://user:{PASSWORD}@one:7000,[::1]:7001,two")
    assert repr(store) == "RedisStore('one:7000,[::1]:7001,two:6379', prefix='headrace')"
    with pytest.raises(InvalidInput, match="database 0 only") as refused:
        open_store(f"redis+cluster://user:{PASSWORD}@one:7000/3")
    assert "ss-word" not in str(refused.value)
