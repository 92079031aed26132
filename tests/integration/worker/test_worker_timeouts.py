"""Time-outs: a run that takes too long has failed, and its slot is taken until its code really ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import pytest

from headrace import App, Context, RetryPolicy, Store
from headrace.lifecycle import configure
from headrace.settings import QueueSettings
from tests.integration.worker.support import QUEUE, Running, eventually, only_job, put, queue, sizes, working


async def dead_letters(store: Store) -> int:
    return (await sizes(store)).get("dead", 0)


async def test_J16_a_run_that_times_out_is_cancelled_and_counts_as_failed(store: Store) -> None:
    app, cancelled = App(), []

    @app.handler("slow")
    async def slow(ctx: Context, payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append((ctx.cancelled, ctx.lost))
            raise

    producer = await queue(store)
    await put(producer, "slow", [None], timeout=0.1, max_retries=1)
    async with working(app, store, retry=RetryPolicy(strategy="linear", base_ms=200, cap_ms=200)) as running:
        await eventually(lambda: running.told.outcomes["retried"])
        assert cancelled == [(True, False)]
        await running.stop()
    job = await only_job(store)
    assert (job.attempt, job.last_error) == (1, "timed out after 100 ms")
    assert job.history[0].status == "timed out"


async def test_J16_a_handler_that_ignores_its_timeout_keeps_its_slot_until_it_ends(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, stubborn_ends, order = App(), asyncio.Event(), []

    @app.handler("stubborn")
    async def stubborn(ctx: Context, payload: Any) -> None:
        # Asked at its time-out, and once more when its grace is over; a third request would be one too many.
        for _ in range(3):
            try:
                await stubborn_ends.wait()
            except asyncio.CancelledError:
                order.append("ignored")

    @app.handler("next")
    async def following(ctx: Context, payload: Any) -> None:
        order.append("next")

    producer = await queue(store)
    await put(producer, "stubborn", [None], timeout=0.1, max_retries=0)
    async with working(app, store, concurrency=1, timeout_grace_ms=100) as running:
        await eventually(lambda: dead_letters(store))  # recorded although the code goes on
        await put(producer, "next", [None])
        assert await sizes(store) == {"dead": 1, "ready": 1}
        await eventually(lambda: order == ["ignored", "ignored"])
        stubborn_ends.set()
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})
    assert order == ["ignored", "ignored", "next"]
    assert "(stubborn) timed out after 100 ms and goes on" in caplog.text


async def test_J16_QB6_a_plain_function_is_told_of_its_timeout_and_keeps_its_slot(store: Store) -> None:
    app, may_end, order = App(), threading.Event(), []

    @app.handler("slow")
    def slow(ctx: Context, payload: Any) -> None:
        while not ctx.cancelled:
            time.sleep(0.005)
        order.append("told")
        may_end.wait(60)

    @app.handler("next")
    def following(ctx: Context, payload: Any) -> None:
        order.append("next")

    producer = await queue(store)
    await put(producer, "slow", [None], timeout=0.1, max_retries=0)
    async with working(app, store, concurrency=1) as running:
        await eventually(lambda: dead_letters(store))
        await put(producer, "next", [None])
        await eventually(lambda: order == ["told"])
        assert await sizes(store) == {"dead": 1, "ready": 1}
        may_end.set()
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})
    assert order == ["told", "next"]


async def test_a_coroutine_that_ends_at_its_timeout_is_told_too(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.handler("obedient")
    async def obedient(ctx: Context, payload: Any) -> None:
        await asyncio.sleep(60)

    producer = await queue(store)
    (job_id,) = await put(producer, "obedient", [None], timeout=0.05, max_retries=0)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 1})
    lines = [record.getMessage() for record in caplog.records]
    assert f"queue emails: job {job_id} (obedient) timed out after 50 ms" in lines
    assert f"queue emails: job {job_id} (obedient) is dead: timed out after 50 ms" in lines


async def test_QB6_a_function_that_sees_first_that_its_time_is_over_has_timed_out(store: Store) -> None:
    app = App()

    @app.handler("polite")
    async def polite(ctx: Context, payload: Any) -> None:
        while ctx.remaining() > 0:
            time.sleep(0.005)  # the event loop does not move, so the worker's own timer comes later

    producer = await queue(store)
    await put(producer, "polite", [None], timeout=0.05, max_retries=0)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes)
        assert running.told.outcomes == {"dead": 1}


async def test_a_result_that_comes_after_the_timeout_does_not_count(store: Store) -> None:
    app = App()

    @app.handler("late")
    async def late(ctx: Context, payload: Any) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done after all"
        return ""

    producer = await queue(store)
    await put(producer, "late", [None], timeout=0.05, max_retries=0)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 1})


async def test_M12_timeouts_come_from_the_job_then_the_queue_then_the_handler_then_the_worker(store: Store) -> None:
    app, given = App(), {}

    @app.handler("with", timeout=7)
    async def with_timeout(ctx: Context, payload: Any) -> None:
        given[payload] = round(ctx.remaining())

    @app.handler("without")
    async def without_timeout(ctx: Context, payload: Any) -> None:
        given[payload] = round(ctx.remaining())

    producer = await queue(store)
    async with working(app, store, timeout_ms=9_000):
        await put(producer, "with", ["handler"])
        await put(producer, "without", ["worker"])
        await put(producer, "with", ["job"], timeout=3)
        await eventually(lambda: given == {"handler": 7, "worker": 9, "job": 3})
    await configure(store, QUEUE, QueueSettings(timeout_ms=5_000))
    given.clear()
    async with working(app, store, timeout_ms=9_000):
        await put(producer, "with", ["queue"])
        await put(producer, "with", ["job"], timeout=3)
        await eventually(lambda: given == {"queue": 5, "job": 3})


async def test_M12_a_jobs_own_retry_policy_wins_over_the_queues_and_the_handlers(store: Store) -> None:
    app, runs = App(), []

    @app.handler("fails", retry=RetryPolicy(max_retries=9, strategy="linear", base_ms=3_600_000, cap_ms=3_600_000))
    async def fails(ctx: Context, payload: Any) -> None:
        runs.append((payload, ctx.job.retry is not None, ctx.job.headers))
        raise ValueError

    soon = RetryPolicy(max_retries=2, strategy="linear", base_ms=1, cap_ms=1)
    producer = await queue(store)
    hourly = RetryPolicy(max_retries=8, strategy="linear", base_ms=3_600_000, cap_ms=3_600_000)
    await configure(store, QUEUE, QueueSettings(retry=hourly))
    await producer.enqueue(QUEUE, "fails", "own policy", retry=soon, headers={"trace": "t"})
    await producer.enqueue(QUEUE, "fails", "own number, too", retry=soon, max_retries=1)
    await producer.enqueue(QUEUE, "fails", "the queue's")
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 4, "dead": 2})
    assert Counter(payload for payload, *_ in runs) == {"own policy": 3, "own number, too": 2, "the queue's": 1}
    assert ("own policy", True, {"trace": "t"}) in runs
    assert ("the queue's", False, {}) in runs
    assert await sizes(store) == {"retry": 1, "dead": 2}


async def test_a_handlers_function_decides_and_gives_way_to_a_jobs_own_policy_only(store: Store) -> None:
    app, asked = App(), []

    def after(failed_runs: int, error: BaseException) -> float | None:
        asked.append((failed_runs, str(error)))
        return 0.001 if failed_runs < 3 else None

    @app.handler("fails", retry=after)
    async def fails(ctx: Context, payload: Any) -> None:
        raise ValueError(payload)

    producer = await queue(store)
    hourly = RetryPolicy(max_retries=8, strategy="linear", base_ms=3_600_000, cap_ms=3_600_000)
    await configure(store, QUEUE, QueueSettings(retry=hourly))
    await producer.enqueue(QUEUE, "fails", "by function")
    await producer.enqueue(QUEUE, "fails", "own policy", retry=hourly)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 3, "dead": 1})
    assert asked == [(1, "by function"), (2, "by function"), (3, "by function")]
    assert await sizes(store) == {"retry": 1, "dead": 1}


async def test_a_running_worker_follows_the_live_settings_of_its_queue(store: Store) -> None:
    app, given = App(), []

    @app.handler("looks")
    async def looks(ctx: Context, payload: Any) -> None:
        given.append(round(ctx.remaining()))

    producer = await queue(store)
    async with working(app, store):
        await put(producer, "looks", [None])
        await eventually(lambda: given == [30])
        await configure(store, QUEUE, QueueSettings(timeout_ms=5_000))

        async def new_value() -> bool:
            await put(producer, "looks", [None])
            return given[-1] == 5

        await eventually(new_value)


async def test_J16_the_time_of_a_run_begins_with_its_code_not_while_others_hold_it_up(store: Store) -> None:
    app, jobs = App(), 16

    @app.handler("computes")
    async def computes(ctx: Context, payload: Any) -> None:
        time.sleep(0.1)

    producer = await queue(store)
    await put(producer, "computes", range(jobs), timeout=1, max_retries=0)
    async with working(app, store, concurrency=jobs) as running:
        await eventually(lambda: running.told.outcomes.total() == jobs)
    assert running.told.outcomes == {"succeeded": jobs}


async def test_J16_what_was_to_begin_when_the_worker_ends_at_once_is_handed_back_without_a_trace(store: Store) -> None:
    app, ends, ran = App(), list[asyncio.Task[Any]](), 0

    @app.handler("computes")
    async def computes(ctx: Context, payload: Any) -> None:
        nonlocal ran
        ran += 1
        if not ends:
            ends.append(asyncio.create_task(running.stop(at_once=True)))
        time.sleep(0.01)

    producer = await queue(store)
    await put(producer, "computes", range(200))
    running = Running(app, store, concurrency=200)
    await eventually(lambda: ends)
    assert (await ends[0]).clean
    assert ran < 200
    assert running.told.outcomes["handed_back"]
    assert running.told.outcomes.keys() == {"succeeded", "handed_back"}  # none is "interrupted"
    assert await sizes(store) == {"ready": 200 - ran}
    assert not running.worker._executor._sampled
