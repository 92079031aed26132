"""Handlers: what they are given, what follows when they fail, and that none of them can end the worker."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import App, Context, Dead, JobSpec, Retry, RetryPolicy, Snooze, Store
from headrace.stores.base import NewJob
from headrace.testing import TestQueue
from headrace.topology import PartitionRef
from tests.integration.worker.support import QUEUE, Faulty, empty, eventually, only_job, put, queue, sizes, working

AT_ONCE = RetryPolicy(strategy="linear", base_ms=1, cap_ms=1)


async def dead_letters(store: Store) -> int:
    return (await sizes(store)).get("dead", 0)


async def test_async_and_plain_handlers_run_with_context_and_payload(store: Store) -> None:
    app, seen, threads = App(), [], set()

    @app.handler("async")
    async def on_loop(ctx: Context, payload: Any) -> None:
        seen.append((ctx.job.id, ctx.job.type, payload, ctx.attempt, ctx.job.headers))
        assert 0 < ctx.remaining() <= 30
        threads.add(("async", threading.get_ident()))

    @app.handler("plain")
    def in_thread(ctx: Context, payload: Any) -> None:
        seen.append((ctx.job.id, ctx.job.type, payload, ctx.attempt, ctx.job.headers))
        threads.add(("plain", threading.get_ident()))

    producer = await queue(store, partitions=2)
    first = await producer.enqueue(QUEUE, "async", {"n": 1}, id="a", headers={"trace": "t"})
    second = await producer.enqueue(QUEUE, "plain", b"\x00raw")
    async with working(app, store) as running:
        await eventually(lambda: empty(store))
        assert running.told.outcomes == {"succeeded": 2}
    assert sorted(seen, key=lambda each: each[1]) == [
        (first.id, "async", {"n": 1}, 0, {"trace": "t"}),
        (second.id, "plain", b"\x00raw", 0, {}),
    ]
    here = threading.get_ident()
    assert {kind: thread == here for kind, thread in threads} == {"async": True, "plain": False}


async def test_J18_M10_three_retries_are_four_runs_then_dead_in_every_store(store: Store) -> None:
    app, runs = App(), []

    @app.handler("fails", retry=AT_ONCE)
    async def fails(ctx: Context, payload: Any) -> None:
        runs.append(ctx.attempt)
        raise ValueError(f"no luck in run {len(runs)}")

    producer = await queue(store)
    await put(producer, "fails", [None], max_retries=3)
    async with working(app, store) as running:
        await eventually(lambda: dead_letters(store))
        assert running.told.outcomes == {"retried": 3, "dead": 1}
    assert runs == [0, 1, 2, 3]
    assert await sizes(store) == {"dead": 1}


async def test_a_failed_run_keeps_its_error_in_the_history(store: Store) -> None:
    app = App()

    @app.handler("fails", retry=AT_ONCE)
    def fails(ctx: Context, payload: Any) -> None:
        raise ValueError("no luck\ud800")

    producer = await queue(store)
    await put(producer, "fails", [None])
    async with working(app, store, timeout_ms=60_000) as running:
        await eventually(lambda: running.told.outcomes["retried"] >= 1)
        await running.stop()
    job = await only_job(store)
    assert job.attempt == running.told.outcomes["retried"]
    assert job.last_error.startswith("ValueError: no luck?\n")
    assert "in fails" in job.last_error
    entry = job.history[0]
    assert (entry.status, entry.worker) == ("failed", running.worker.identity)
    assert entry.error == job.last_error


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize(
    "error",
    [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, asyncio.CancelledError],
)
async def test_J16_M7_no_error_of_a_handler_ends_the_worker(
    store: Store, kind: str, error: type[BaseException]
) -> None:
    app, ran = App(), []

    if kind == "async":

        @app.handler("raises")
        async def raises(ctx: Context, payload: Any) -> None:
            raise error

    else:

        @app.handler("raises")
        def raises_in_thread(ctx: Context, payload: Any) -> None:
            raise error

    @app.handler("works")
    async def works(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    await put(producer, "raises", [None], max_retries=0)
    async with working(app, store, concurrency=1) as running:
        await eventually(lambda: dead_letters(store))
        await put(producer, "works", [1])
        await eventually(lambda: ran == [1])
        assert not running.task.done()
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})


async def test_J16_a_handler_that_calls_exit_fails_its_run_only(store: Store) -> None:
    app, calls = App(), []

    @app.handler("exits", retry=AT_ONCE)
    async def exits(ctx: Context, payload: Any) -> None:
        calls.append(ctx.attempt)
        if len(calls) == 1:
            sys.exit("bye")

    producer = await queue(store)
    await put(producer, "exits", [None])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 1, "succeeded": 1})
    assert calls == [0, 1]


async def test_Retry_says_when_but_not_for_ever(store: Store) -> None:
    app, runs = App(), []

    @app.handler("again")
    async def again(ctx: Context, payload: Any) -> None:
        runs.append(ctx.attempt)
        raise Retry(after=0.01, reason="the other side is busy")

    producer = await queue(store)
    await put(producer, "again", [None], max_retries=2)
    async with working(app, store) as running:
        # The policy's first delay would be a second.
        await eventually(lambda: running.told.outcomes == {"retried": 2, "dead": 1})
    assert runs == [0, 1, 2]


async def test_Dead_ends_a_job_at_once(store: Store) -> None:
    app, runs = App(), []

    @app.handler("hopeless")
    def hopeless(ctx: Context, payload: Any) -> None:
        runs.append(1)
        raise Dead("the address does not exist")

    producer = await queue(store)
    await put(producer, "hopeless", [None])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 1})
    assert runs == [1]


@pytest.mark.parametrize("form", ["timedelta", "datetime"])
async def test_Snooze_puts_a_job_off_without_an_attempt(store: Store, form: str) -> None:
    app, runs = App(), []

    @app.handler("later")
    async def later(ctx: Context, payload: Any) -> None:
        runs.append((ctx.attempt, time.monotonic()))
        if len(runs) < 3:
            delay = timedelta(seconds=0.3)
            raise Snooze(delay if form == "timedelta" else datetime.now(UTC) + delay)

    producer = await queue(store)
    await put(producer, "later", [None], max_retries=0)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"snoozed": 2, "succeeded": 1})
    assert [attempt for attempt, _ in runs] == [0, 0, 0]
    assert runs[1][1] - runs[0][1] >= 0.25


async def test_J15_QK1_M9_an_unknown_type_is_left_for_a_worker_that_knows_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    old, new, ran = App(), App(), []

    @old.handler("known")
    async def known(ctx: Context, payload: Any) -> None:
        ran.append(("known", ctx.attempt))

    @new.handler("new")
    async def handle_new(ctx: Context, payload: Any) -> None:
        ran.append(("new", ctx.attempt))

    producer = await queue(store)
    await put(producer, "new", [None])
    await put(producer, "known", [None])
    async with working(old, store) as first:
        await eventually(lambda: first.told.outcomes == {"parked": 1, "succeeded": 1})
        assert ran == [("known", 0)]
        assert await sizes(store) == {"parked": 1}
        assert caplog.text.count("no handler here for type 'new'") == 1
        async with working(new, store):
            await eventually(lambda: ran == [("known", 0), ("new", 0)])


async def test_J15_jobs_of_an_unknown_type_die_by_the_limit_of_the_settings_and_by_nothing_else(store: Store) -> None:
    app, ran = App(), []

    @app.handler("known")
    async def known(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    await put(producer, "new", range(5))
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes["parked"] == 5)
        await put(producer, "known", ["while they wait"])
        await eventually(lambda: running.told.outcomes == {"parked": 5, "succeeded": 1})
        assert await sizes(store) == {"parked": 5}
    async with working(app, store, parked_jobs=3):

        async def limited() -> bool:
            return await sizes(store) == {"parked": 3, "dead": 2}

        await eventually(limited)


async def test_QK1_a_worker_that_starts_tells_of_parked_types_that_it_does_not_know(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    producer = await queue(store)
    await put(producer, "retired", [None] * 3)
    async with working(App(), store) as first:
        await eventually(lambda: first.told.outcomes == {"parked": 3})
    caplog.clear()
    async with working(App(), store):
        await eventually(lambda: "type 'retired'; 3 job(s) of it are parked until a worker has one" in caplog.text)


async def test_a_record_that_cannot_be_read_is_dead_with_a_reason(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, ran = App(), []

    @app.handler("works")
    async def works(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    broken = [NewJob(b"1" + b"odd", 0, b"\x09nonsense"), NewJob(b"1" + b"\xff\xfe", 0, b"")]
    await store.enqueue(PartitionRef(QUEUE, 1, 0), 1, b"nonce", broken)
    await put(producer, "works", [1])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 2, "succeeded": 1})
    assert ran == [1]
    assert await sizes(store) == {"dead": 2}
    assert "job odd (unreadable) is dead: the stored record cannot be read" in caplog.text


@pytest.mark.parametrize("max_in_flight", [None, 8])
async def test_M8_ten_thousand_due_jobs_respect_concurrency_and_in_flight_limits(
    store: Store, max_in_flight: int | None
) -> None:
    app, running_now, most, done = App(), 0, 0, 0

    @app.handler("counts")
    async def counts(ctx: Context, payload: Any) -> None:
        nonlocal running_now, most, done
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0)
        running_now -= 1
        done += 1

    producer = await queue(store, partitions=2)
    await put(producer, "counts", range(10_000), run_at=1.0)
    leased = 0
    async with working(app, store, concurrency=8, max_in_flight=max_in_flight):

        async def finished() -> bool:
            nonlocal leased
            leased = max(leased, (await sizes(store)).get("leased", 0))
            return done == 10_000 and await empty(store)

        await eventually(finished, within=120)
    assert most == 8
    assert 0 < leased <= (max_in_flight or 1008)


async def test_J13_QF8_ten_thousand_jobs_that_fail_at_once_come_back_spread_over_half_the_mean_delay() -> None:
    app = App()

    @app.handler("call")
    async def call(ctx: Context, payload: Any) -> None:
        raise ConnectionError("the other side is away")

    async with TestQueue(app, concurrency=500, within=120) as kit:
        for _ in range(10):
            await kit.enqueue_many([JobSpec("call")] * 1000)
        assert len(await kit.run_until_idle()) == 10_000
        waits = [(each.due_at - kit.now).total_seconds() for each in kit.delayed()]
    assert len(waits) == 10_000
    assert min(waits) >= 0.75
    assert max(waits) <= 1.25
    assert abs(sum(waits) / 10_000 - 1) < 0.01
    tenths = Counter(int((wait - 0.75) / 0.05) for wait in waits)
    assert max(tenths[n] for n in range(10)) < 2 * min(tenths[n] for n in range(10))


async def test_M1_a_delayed_job_runs_at_its_time_and_not_before(store: Store) -> None:
    app, ran = App(), {}

    @app.handler("delayed")
    async def delayed(ctx: Context, payload: Any) -> None:
        ran[payload] = (time.time() * 1000, ctx.job.run_at)

    producer = await queue(store, partitions=4)
    async with working(app, store):
        await producer.enqueue_many(QUEUE, [JobSpec("delayed", n, delay=0.2 + n / 20) for n in range(5)])
        await eventually(lambda: len(ran) == 5)
    # The server's clock is this machine's.
    assert all(at >= run_at for at, run_at in ran.values())


async def test_handlers_of_a_running_job_are_not_shown_credentials_or_the_store(store: Store) -> None:
    app, seen = App(), []

    @app.handler("looks")
    async def looks(ctx: Context, payload: Any) -> None:
        seen.append(repr(ctx))

    producer = await queue(store)
    (job,) = await put(producer, "looks", [None])
    async with working(app, store):
        await eventually(lambda: seen)
    assert seen == [f"<Context of job '{job}' (looks) in queue 'emails'>"]


async def test_unexpected_errors_are_logged_once_per_interval(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    app, ran = App(), []

    @app.handler("works")
    async def works(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    await put(producer, "works", [1])
    faulty = Faulty(store)
    faulty.before["claim"] = [RuntimeError("a defect"), RuntimeError("a defect")]
    faulty.before["ack"] = [RuntimeError("a defect")]
    with caplog.at_level(logging.INFO):
        async with working(app, faulty) as running:
            await eventually(lambda: empty(store))
            assert running.told.outcomes == {"succeeded": 1}
    assert ran == [1]
    assert caplog.text.count("RuntimeError: a defect") == 1


async def test_a_plain_function_that_returns_a_coroutine_is_told_what_is_wrong(store: Store) -> None:
    app = App()

    async def inner(ctx: Context, payload: Any) -> None: ...

    app.handler("wrapped", retry=AT_ONCE)(lambda ctx, payload: inner(ctx, payload))
    producer = await queue(store)
    await put(producer, "wrapped", [None], max_retries=1)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 1, "dead": 1})


async def test_a_run_whose_end_cannot_be_decided_has_failed_and_holds_up_no_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Endless(Snooze):
        def delay_ms(self, server_now: int) -> int:
            raise SystemExit("a defect")

    def after(failed_runs: int, error: BaseException) -> float:
        raise SystemExit("another defect")

    app, ran = App(), Counter[str]()

    @app.handler("endless", retry=AT_ONCE)
    async def endless(ctx: Context, payload: Any) -> None:
        ran["endless"] += 1
        raise Endless(timedelta(0))

    @app.handler("by function", retry=after)
    async def by_function(ctx: Context, payload: Any) -> None:
        ran["by function"] += 1
        raise ValueError("x")

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ran["job"] += 1

    producer = await queue(store)
    async with working(app, store, concurrency=8, retry=AT_ONCE) as running:
        await put(producer, "endless", [None], max_retries=2)
        await put(producer, "by function", [None], max_retries=2)
        await put(producer, "job", range(50))
        await eventually(lambda: running.told.outcomes == {"retried": 4, "dead": 2, "succeeded": 50})
        await put(producer, "job", range(50))
        await eventually(lambda: running.told.outcomes["succeeded"] == 100)
        assert await dead_letters(store) == 2
    assert ran == {"endless": 3, "by function": 3, "job": 100}
    assert caplog.text.count("could not be decided; it counts as failed") == 3
