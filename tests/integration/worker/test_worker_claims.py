"""Who gets the slots: fairness over partitions, versions and queues, wake-ups, and how an outage is lived through."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from headrace import (
    App,
    Context,
    JobSpec,
    NotDrained,
    Producer,
    Store,
    StoreUnavailable,
    UnknownVersion,
    WorkerSettings,
)
from headrace.election.timings import RELAXED
from headrace.envelope import encode_body
from headrace.ids import encode_id, new_id, partition_of
from headrace.lifecycle import complete, promote
from headrace.stores import open_store
from headrace.stores.base import NewJob
from headrace.testing import TestQueue
from headrace.topology import PartitionRef, Topology
from headrace.worker import wakeups
from tests.integration.worker.support import (
    QUEUE,
    Counted,
    Faulty,
    empty,
    eventually,
    put,
    queue,
    sizes,
    working,
)
from tests.services.redis import RedisServer


def ids_in(partition: int, partitions: int, number: int) -> list[str]:
    """Ids that belong to one partition."""
    found: list[str] = []
    while len(found) < number:
        if partition_of(job_id := new_id(), partitions) == partition:
            found.append(job_id)
    return found


def ordering() -> tuple[App, list[Any]]:
    """An app whose handler notes (version, partition) of each run."""
    app, order = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        order.append((ctx.job.version, ctx.job.partition))

    return app, order


async def test_J11_a_lone_job_behind_a_full_partition_starts_within_one_rotation(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store, partitions=8)
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=each) for each in ids_in(0, 8, 1000)])
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=ids_in(7, 8, 1)[0])])
    async with working(app, store, concurrency=64, batch_size=64):
        await eventually(lambda: len(order) == 1001)
    # Two claims may be under way before the hint of the other partition is known.
    assert order.index((1, 7)) <= 3 * 64


async def test_J11_the_same_for_a_draining_version_beside_an_active_one(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store)
    await put(producer, "job", [None])
    await promote(store, QUEUE, 2, 1)
    await put(producer, "job", range(1000))
    async with working(app, store, concurrency=64, batch_size=64):
        await eventually(lambda: len(order) == 1001)
    assert order.index((1, 0)) <= 3 * 64
    order.clear()
    await promote(store, QUEUE, 3, 1)
    await put(producer, "job", range(10))
    async with working(app, store):
        await eventually(lambda: len(order) == 10)
    assert set(order) == {(3, 0)}


async def test_a_busy_queue_does_not_starve_another(store: Store) -> None:
    app, order = App(), list[str]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        order.append(ctx.job.queue)
        await asyncio.sleep(0.002)

    producer = await queue(store, name="busy")
    await queue(store, name="quiet")
    await producer.enqueue_many("busy", [JobSpec("job") for _ in range(300)])
    async with working(app, store, queues="busy,quiet", concurrency=2):
        await eventually(lambda: len(order) >= 10)
        before = len(order)
        await producer.enqueue("quiet", "job")
        await eventually(lambda: "quiet" in order)
        assert order.index("quiet") - before < 100


async def test_QK2_no_job_waits_behind_a_slow_one(store: Store) -> None:
    app, done, may_end = App(), list[Any](), asyncio.Event()

    @app.handler("slow")
    async def slow(ctx: Context, payload: Any) -> None:
        await may_end.wait()

    @app.handler("quick")
    async def quick(ctx: Context, payload: Any) -> None:
        done.append(payload)

    producer = await queue(store)
    await put(producer, "slow", [None])
    async with working(app, store, concurrency=1), working(app, store, concurrency=1):
        await put(producer, "quick", range(50))
        await eventually(lambda: len(done) == 50)  # by the other worker, while the slow one runs

        async def only_the_slow_one_is_left() -> bool:
            return await sizes(store) == {"leased": 1}

        await eventually(only_the_slow_one_is_left)
        may_end.set()
        await eventually(lambda: empty(store))


async def test_QK2_a_slow_job_takes_one_slot_only(store: Store) -> None:
    app, done, may_end = App(), list[Any](), asyncio.Event()

    @app.handler("slow")
    async def slow(ctx: Context, payload: Any) -> None:
        await may_end.wait()

    @app.handler("quick")
    async def quick(ctx: Context, payload: Any) -> None:
        done.append(payload)

    producer = await queue(store)
    await put(producer, "slow", [None])
    await put(producer, "quick", range(100))
    async with working(app, store, concurrency=2, queue_buffer=8):
        await eventually(lambda: len(done) == 100)
        may_end.set()
        await eventually(lambda: empty(store))


async def test_a_worker_may_start_before_its_queue_exists(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    app, order = ordering()
    async with working(app, store):
        await eventually(lambda: "queue emails does not exist yet" in caplog.text)
        producer = await queue(store)
        await put(producer, "job", [None])
        await eventually(lambda: len(order) == 1)
    assert caplog.text.count("does not exist yet") == 1


async def test_V11_jobs_of_a_worker_that_is_gone_are_recovered_without_any_leader(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store)
    await put(producer, "job", range(3))
    gone = await store.claim(PartitionRef(QUEUE, 1, 0), "gone", 1, 3, 300)
    assert len(gone.jobs) == 3
    async with working(app, store):
        await eventually(lambda: len(order) == 3)


async def test_V17_a_hint_that_was_taken_by_a_dying_worker_is_raised_again(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store)
    await put(producer, "job", [None])
    assert await store.wait_hint([QUEUE], 5) == PartitionRef(QUEUE, 1, 0)  # and nothing is done about it
    async with working(app, store):
        await eventually(lambda: len(order) == 1)


async def test_QC2_delayed_jobs_run_when_nothing_else_happens(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store, partitions=4)
    await producer.enqueue_many(QUEUE, [JobSpec("job", delay=0.3 * n) for n in range(1, 5)])
    async with working(app, store, poll_ms=300_000):
        await eventually(lambda: len(order) == 4)


async def test_QC2_a_job_that_becomes_the_earliest_moves_the_timer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 3600.0)
    app, order = ordering()
    producer = await queue(store, partitions=4)
    async with working(app, store, poll_ms=300_000):
        await producer.enqueue(QUEUE, "job", delay=3600)
        await producer.enqueue(QUEUE, "job", delay=0.2)
        await eventually(lambda: len(order) == 1)


async def test_QC2_a_delayed_job_runs_after_days_in_which_nothing_else_happened() -> None:
    app, order = ordering()
    async with TestQueue(app, queues=[QUEUE], partitions=4) as stage:
        await stage.producer.enqueue(QUEUE, "job", delay=timedelta(days=6))
        for _ in range(5):
            await stage.advance(days=1)
        assert order == []
        await stage.advance(days=1)
        assert len(order) == 1


async def test_QF9_an_idle_worker_makes_no_calls_for_its_partitions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.01)
    app, order = ordering()
    producer = await queue(store, partitions=64)
    counted = Counted(store)
    async with working(app, cast(Store, counted)):
        await put(producer, "job", [None])
        await eventually(lambda: len(order) == 1)
        await eventually(lambda: empty(store))
        before, ticks = counted.calls.total(), counted.cloned["tick"]
        await eventually(lambda: counted.cloned["tick"] > ticks + 20)
        # Ticks and waits go over stores of their own; the claims' store is silent whatever the number of partitions.
        assert counted.calls.total() - before <= 1


async def test_QF4_M6_through_an_outage_results_are_kept_and_sent_later(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, runs, may_end = App(), list[Any](), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(payload)
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "job", range(4))
    faulty = Faulty(store)
    async with working(app, cast(Store, faulty)) as running:
        await eventually(lambda: len(runs) == 4)
        gone = [StoreUnavailable("redis 127.0.0.1:1/0 does not answer") for _ in range(40)]
        for call in ("ack", "claim", "resume"):
            faulty.before[call] = list(gone[:6])
        may_end.set()
        await put(producer, "job", range(4, 8))
        await eventually(lambda: empty(store))
        assert running.told.lost == 0
    assert sorted(runs) == list(range(8))
    assert caplog.text.count("does not answer") == 1
    assert "the store answers again" in caplog.text


async def test_a_completed_version_is_forgotten_without_harm(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store)
    async with working(app, store) as running:
        await put(producer, "job", [None])
        await eventually(lambda: empty(store))
        await promote(store, QUEUE, 2, 2)

        async def topology() -> Topology:
            stored = await store.read_topology(QUEUE)
            assert stored is not None
            return stored

        async def completed() -> bool:
            try:
                await complete(store, QUEUE, 1)
            except NotDrained as problem:
                return problem.reason != "ClientsMayRetry"  # nothing else may hold it up
            except UnknownVersion:
                pass  # the worker's leader was faster
            return 1 not in (await topology()).versions

        await eventually(completed)
        assert set((await topology()).versions) == {2}
        await store.hint(PartitionRef(QUEUE, 1, 0))  # a stale hint to what is a tombstone now
        await put(producer, "job", [None])
        await eventually(lambda: len(order) == 2)
        assert not running.task.done()
    assert order[-1][0] == 2


async def test_jobs_put_in_by_an_older_library_without_settings_run(store: Store) -> None:
    """The smallest record that the format allows."""
    app, order = ordering()
    await queue(store)
    job = NewJob(b"1" + encode_id("plain"), 0, encode_body("job", None))
    await store.enqueue(PartitionRef(QUEUE, 1, 0), 1, b"n", [job])
    async with working(app, store):
        await eventually(lambda: len(order) == 1)


async def test_V18_forty_idle_workers_and_one_job_one_of_them_wakes(store: Store) -> None:
    app, order = ordering()
    producer = await queue(store, partitions=4)
    counted = [Faulty(store) for _ in range(40)]
    async with AsyncExitStack() as stack:
        for each in counted:
            await stack.enter_async_context(working(app, cast(Store, each)))
        await put(producer, "job", [None])
        await eventually(lambda: empty(store))
        await eventually(lambda: len(order) == 1)
        assert sum(each.calls["claim"] for each in counted) == 1


async def test_P1_QF9_an_idle_process_costs_less_than_a_command_per_second(
    redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by the server, over all connections of the worker, on 2 versions with 64 and 128 partitions."""
    store = open_store(redis_server.url, prefix)
    app, _ = ordering()
    await promote(store, QUEUE, 1, 64, owner={"name": "emails"})  # whose operator keeps the older version here
    await promote(store, QUEUE, 2, 128)
    producer = Producer(store)
    server = Redis.from_url(redis_server.url)

    async def commands() -> int:
        # The server also counts what scripts call inside, which is none of these. With each GET of the topology a
        # worker sends one ZRANGE (parked jobs), which cannot be told from those inside.
        stats = await server.info("commandstats")
        sent = ("cmdstat_evalsha", "cmdstat_get", "cmdstat_get", "cmdstat_bzpopmin")
        return sum(int(stats.get(name, {}).get("calls", 0)) for name in sent)

    counted, pause = Counted(store), wakeups.TICK_SECONDS
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.05)
    async with working(app, cast(Store, counted)) as running:
        await put(producer, "job", [None])
        await eventually(lambda: empty(store))
        # What its leader does once per term, and once more after the last job.
        await eventually(lambda: running.told.duties.keys() >= {"unfinished_changes", "lost_hints", "statistics"})
        signs = running.worker._signs[QUEUE]
        await eventually(lambda: signs.watched)
        before, ticks = await commands(), counted.cloned["tick"]
        await eventually(lambda: counted.cloned["tick"] > ticks + 50)
        ticks = counted.cloned["tick"] - ticks
        per_tick = (await commands() - before) / ticks
    waits = 1000 / WorkerSettings().poll_ms
    # A leader's lock and fence, whose calls come too seldom to be counted here.
    election = 1 / RELAXED.retry_period + 3 / RELAXED.fence_ttl
    assert per_tick / pause + waits + election < 1
    await server.aclose()
    await store.close()
