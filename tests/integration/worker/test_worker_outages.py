"""What a worker does while its store does not do its part: it refuses writes, is away, or never answers a claim."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from headrace import App, Context, RetryPolicy, Store
from headrace.dead_letters import dead_jobs
from headrace.stores import open_store
from headrace.stores.memory import MemoryStore
from headrace.worker import vitals
from tests.cluster.guard import Guard
from tests.integration.worker.support import QUEUE, Faulty, empty, eventually, put, queue, sizes, working
from tests.services.redis import RedisServer, flavours
from tests.unit.test_worker_parts import ask


@pytest.fixture
def own_server(process_guard: Guard) -> Iterator[RedisServer]:
    with RedisServer(flavours()[0], persist=True, guard=process_guard) as server:
        yield server


def waiting() -> tuple[App, Counter[str], asyncio.Event]:
    """An app with jobs that end ``well`` and jobs of which each ``fails``, when they may; how often each has begun."""
    app, runs, may_end = App(), Counter[str](), asyncio.Event()

    @app.handler("well")
    async def well(ctx: Context, payload: Any) -> None:
        runs[ctx.job.id] += 1
        await may_end.wait()

    @app.handler("fails", retry=RetryPolicy(max_retries=0))
    async def fails(ctx: Context, payload: Any) -> None:
        runs[ctx.job.id] += 1
        await may_end.wait()
        raise ValueError("no luck")

    return app, runs, may_end


async def test_QA2_while_redis_refuses_writes_results_are_kept_and_nothing_stays_leased_afterwards(
    own_server: RedisServer, prefix: str
) -> None:
    """Successes, failures and hand-backs: each is told once the writes are taken again, and no job runs twice."""
    app, runs, may_end = waiting()
    store = open_store(own_server.url, prefix)
    setter = Redis.from_url(own_server.url)
    producer = await queue(store, partitions=2)
    jobs = [*await put(producer, "well", range(12)), *await put(producer, "fails", range(4))]
    # Leases that would outlive the test: only what the worker tells can end them.
    async with working(app, store, concurrency=20, lease_ms=600_000) as running:
        await eventually(lambda: len(runs) == 16)
        await setter.config_set("min-replicas-to-write", 1)
        may_end.set()
        await eventually(lambda: running.told.unavailable >= 4)
        assert running.told.outcomes == {}
        assert await sizes(store) == {"leased": 16}
        await setter.config_set("min-replicas-to-write", 0)
        await eventually(lambda: running.told.outcomes == {"succeeded": 12, "dead": 4})
        assert await sizes(store) == {"dead": 4}
        assert running.told.lost == 0
    assert runs == Counter(jobs)
    assert len([letter async for letter in dead_jobs(store, QUEUE)]) == 4
    await setter.aclose()
    await store.close()


async def test_QF5_delayed_jobs_run_on_time_although_redis_was_away_meanwhile(
    own_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of the worker that is slow by its settings (lease, poll) may be what brings them back."""
    app, ran = App(), dict[int, tuple[float, int]]()

    @app.handler("delayed")
    async def delayed(ctx: Context, payload: Any) -> None:
        ran[payload] = (time.time() * 1000, ctx.job.run_at)

    store = open_store(own_server.url, prefix)
    producer = await queue(store, partitions=2)
    async with working(app, store, lease_ms=600_000, poll_ms=300_000):
        await put(producer, "delayed", [0], delay=0.1)
        await eventually(lambda: 0 in ran)  # a worker holds the timer by now
        await put(producer, "delayed", [1, 2], delay=4)
        await put(producer, "delayed", [3], delay=1)
        own_server.kill()
        await eventually(lambda: "does not answer" in caplog.text)
        own_server.start()
        await eventually(lambda: len(ran) == 4)
    # The server's clock is this machine's.
    assert all(at >= run_at for at, run_at in ran.values())
    await store.close()


async def test_QF3_a_claim_that_is_never_answered_fails_the_liveness_probe_and_an_answer_mends_it(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    """The store answers everything else, and the event loop moves: only no job is ever taken."""
    monkeypatch.setattr(vitals, "STALLED_SECONDS", 0.5)
    app, ran = App(), []

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    async def health() -> int:
        status, _ = await ask(unused_tcp_port, b"GET /healthz HTTP/1.1\r\n\r\n")
        return status

    async def is_healthy(wanted: bool) -> bool:
        return (await health() == 200) == wanted

    store = MemoryStore()
    producer = await queue(store)
    faulty = Faulty(store)
    options = {"health_host": "127.0.0.1", "health_port": unused_tcp_port, "poll_ms": 100}
    async with working(app, cast(Store, faulty), **options):
        await put(producer, "job", [1])
        await eventually(lambda: ran == [1])
        assert await health() == 200
        gate = faulty.hold["claim"] = asyncio.Event()
        await put(producer, "job", [2])
        await eventually(lambda: is_healthy(False))
        assert ran == [1]
        gate.set()
        await eventually(lambda: ran == [1, 2])
        await eventually(lambda: is_healthy(True))
        assert await empty(store)


async def test_QF3_slots_that_are_taken_for_long_are_no_reason_for_a_restart(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setattr(vitals, "STALLED_SECONDS", 0.5)
    app, began, may_end = App(), asyncio.Event(), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        began.set()
        await may_end.wait()

    store = MemoryStore()
    producer = await queue(store)
    options = {"health_host": "127.0.0.1", "health_port": unused_tcp_port, "poll_ms": 100, "concurrency": 1}
    async with working(app, store, **options) as running:
        await put(producer, "job", [1, 2])
        await began.wait()
        stalled_at = time.monotonic() + 2.5  # five times what would be too long
        await eventually(lambda: time.monotonic() > stalled_at)
        status, facts = await ask(unused_tcp_port, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert status == 200, facts
        may_end.set()
        await eventually(lambda: running.told.outcomes == {"succeeded": 2})


async def test_QF4_jobs_that_end_during_an_outage_longer_than_their_leases_are_told_and_run_once(
    own_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has taken them meanwhile, so what their runs have done counts: successes, failures, hand-backs."""
    app, runs, may_end = waiting()
    store = open_store(own_server.url, prefix)
    producer = await queue(store, partitions=2)
    jobs = [*await put(producer, "well", range(12)), *await put(producer, "fails", range(4))]
    async with working(app, store, concurrency=20, lease_ms=1000) as running:
        await eventually(lambda: len(runs) == 16)
        own_server.kill()
        gone_at = time.monotonic()
        await eventually(lambda: "does not answer" in caplog.text)
        may_end.set()
        await eventually(lambda: time.monotonic() > gone_at + 4)  # four leases
        own_server.start()
        await eventually(lambda: running.told.outcomes == {"succeeded": 12, "dead": 4})
        assert running.told.lost == 0
        assert await sizes(store) == {"dead": 4}
    assert runs == Counter(jobs)
    await store.close()
