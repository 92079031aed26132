"""What a run may say and know beside its payload: progress, heartbeats, the fencing token."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest

from headrace import App, BatchContext, Context, InvalidInput, RetryPolicy, Store, StoreUnavailable
from headrace.dead_letters import dead_jobs
from headrace.job import Job
from headrace.stores.base import Failure, Settled
from headrace.testing import TestQueue
from headrace.topology import PartitionRef
from tests.integration.worker.support import (
    QUEUE,
    Faulty,
    ThreadWorker,
    empty,
    eventually,
    only_job,
    put,
    queue,
    sizes,
    working,
)

AT = PartitionRef(QUEUE, 1, 0)
SHORT = 500
ONCE = RetryPolicy(max_retries=0)


async def dead(store: Store) -> Job:
    (letter,) = [each async for each in dead_jobs(store, QUEUE)]
    assert letter.job is not None
    return letter.job


# ---- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_progress_is_stored_while_the_run_goes_on(store: Store, kind: str) -> None:
    app, may_end = App(), threading.Event()

    if kind == "async":

        @app.handler("long")
        async def long(ctx: Context, payload: Any) -> None:
            for page in range(100):
                ctx.progress(page / 100, f"page {page}")
            await asyncio.to_thread(may_end.wait, 20)

    else:

        @app.handler("long")
        def long_in_thread(ctx: Context, payload: Any) -> None:
            for page in range(100):
                ctx.progress(page / 100, f"page {page}")
            may_end.wait(60)

    producer = await queue(store)
    await put(producer, "long", [None])
    async with working(app, store) as running:  # with a lease of 30 s, whose renewal is 10 s away
        await eventually(lambda: running.worker._executor.running)
        (execution,) = running.worker._executor.running
        await eventually(lambda: hasattr(execution, "report") and not execution.batch.reported)
        kept_at = running.worker._keeper.kept_at
        await eventually(lambda: running.worker._keeper.kept_at > kept_at)  # the call that took it has been answered
        # It is taken away, to be looked at.
        key, token = execution.settled
        assert await store.fail(AT, [Failure(key, token, None, "taken away")]) == []
        may_end.set()
        await eventually(lambda: not running.worker._executor.running)
    found = (await dead(store)).progress
    assert found is not None
    assert (found.value, found.note) == (0.99, "page 99")


async def test_the_next_run_finds_what_a_failed_one_has_reported_last(store: Store) -> None:
    app, seen = App(), []

    @app.handler("pages", retry=RetryPolicy(max_retries=2, strategy="linear", base_ms=1, cap_ms=1))
    async def pages(ctx: Context, payload: Any) -> None:
        done = int(ctx.job.progress.value) if ctx.job.progress else 0
        seen.append(done)
        for page in range(done + 1, done + 4):
            ctx.progress(page)
        if len(seen) < 3:
            raise ConnectionError("away")

    producer = await queue(store)
    await put(producer, "pages", [None])
    faulty = Faulty(store)
    faulty.before["renew"] = [StoreUnavailable("away")]  # a report that could not be stored is not forgotten
    async with working(app, cast(Store, faulty)) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 2, "succeeded": 1})
    assert seen == [0, 3, 6]


async def test_reports_are_bounded_and_checked(store: Store) -> None:
    app = App()

    @app.handler("long", retry=ONCE)
    async def long(ctx: Context, payload: Any) -> None:
        for wrong in (float("nan"), float("inf"), True, "half"):
            with pytest.raises(InvalidInput, match=r"value: is .*; give a finite number"):
                ctx.progress(cast(Any, wrong))
        ctx.progress(1, "x" * 1000)
        raise ValueError("to be looked at")

    producer = await queue(store)
    await put(producer, "long", [None])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 1})
    job = await dead(store)
    assert job.last_error.startswith("ValueError: to be looked at")
    assert job.progress is not None
    assert (job.progress.value, job.progress.note) == (1.0, "x" * 200)


async def test_a_batch_reports_for_all_of_its_jobs_or_for_each(store: Store) -> None:
    app = App()

    @app.batch_handler("index", max_size=2, max_wait=3600, retry=ONCE)
    def index(ctx: BatchContext, payloads: Any) -> None:
        ctx.progress(1, "all")
        ctx.runs[1].progress(2, "the second")
        raise ValueError("to be looked at")

    producer = await queue(store)
    await put(producer, "index", ["a", "b"])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 2})
    found = {letter.job.payload: letter.job.progress async for letter in dead_jobs(store, QUEUE) if letter.job}
    assert {payload: each.note for payload, each in found.items() if each} == {"a": "all", "b": "the second"}


async def test_the_testing_kit_shows_what_was_reported() -> None:
    app = App()

    @app.handler("pages")
    async def pages(ctx: Context, payload: Any) -> None:
        if ctx.job.progress is None:
            ctx.progress(5, "page 5")
            raise ConnectionError("away")

    async with TestQueue(app) as kit:
        await kit.enqueue("pages")
        await kit.run_until_idle()
        (waiting,) = kit.delayed()
        assert waiting.job.progress is not None
        assert (waiting.job.progress.note, waiting.job.progress.at) == ("page 5", int(kit.now.timestamp() * 1000))
        (run,) = await kit.drain()
    assert run.outcome == "succeeded"


# ---- heartbeats ------------------------------------------------------------------------------------------------------


def another(runs: list[str]) -> App:
    """An app whose handler notes that it ran the job."""
    app = App()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(ctx.job.id)

    return app


async def test_QA4_code_that_blocks_the_loop_past_its_timeout_keeps_its_lease_while_it_says_that_it_is_alive(
    store: Store,
) -> None:
    app, elsewhere, ended = App(), list[str](), threading.Event()

    @app.handler("job", retry=ONCE)
    async def cleans_up(ctx: Context, payload: Any) -> None:
        ends = time.monotonic() + 2.5  # five leases, and well past time-out and grace
        while time.monotonic() < ends:
            ctx.heartbeat()
            time.sleep(0.01)
        ended.set()

    producer = await queue(store)
    async with working(app, store, lease_ms=SHORT, timeout_grace_ms=500) as running:
        await put(producer, "job", [None], timeout=0.2)
        await eventually(lambda: running.told.claims)
        with ThreadWorker(another(elsewhere), store, lease_ms=SHORT):
            await eventually(ended.is_set)
            await eventually(lambda: running.told.outcomes == {"dead": 1})
    assert (elsewhere, running.told.lost) == ([], 0)
    assert (await dead(store)).last_error == "timed out after 200 ms"


async def test_a_coroutine_that_ignores_its_timeout_fails_when_it_no_longer_says_that_it_is_alive(store: Store) -> None:
    app, beating, silent = App(), asyncio.Event(), asyncio.Event()

    @app.handler("job", retry=ONCE)
    async def cleans_up(ctx: Context, payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            while not silent.is_set():
                ctx.heartbeat()
                beating.set()
                await asyncio.sleep(0.01)
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if running.told.outcomes:
                        raise

    producer = await queue(store)
    await put(producer, "job", [None], timeout=0.1)
    async with working(app, store, timeout_grace_ms=1000) as running:  # longer than a busy machine stands still
        await beating.wait()
        told_at = time.monotonic()
        await eventually(lambda: time.monotonic() > told_at + 2.0)  # twice the grace
        assert await sizes(store) == {"leased": 1}
        silent.set()
        await eventually(lambda: running.told.outcomes == {"dead": 1})


# ---- fencing token ---------------------------------------------------------------------------------------------------


async def test_QB4_a_late_run_is_refused_here_and_downstream_by_its_lower_fencing_token(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It blocks the loop beyond what is waited for; another worker takes the job; both write what they have done."""
    written: list[tuple[str, int]] = []
    refused: list[tuple[str, int]] = []
    lock, highest, told, began = threading.Lock(), 0, list[Any](), threading.Event()

    def write(who: str, token: int) -> None:
        nonlocal highest
        with lock:
            (refused if token < highest else written).append((who, token))
            highest = max(highest, token)

    late, quick = App(), App()

    @late.handler("job")
    async def blocks(ctx: Context, payload: Any) -> None:
        began.set()
        ends = time.monotonic() + 60
        while not written and time.monotonic() < ends:
            time.sleep(0.01)
        write("late", ctx.fencing_token)
        try:
            await asyncio.sleep(60)
        finally:
            told.append((ctx, ctx.cancelled))

    @quick.handler("job")
    async def runs(ctx: Context, payload: Any) -> None:
        write("quick", ctx.fencing_token)

    producer = await queue(store)
    with ThreadWorker(late, store, lease_ms=SHORT, timeout_grace_ms=100) as blocked:
        await put(producer, "job", [None], timeout=0.2)
        await eventually(began.is_set)
        async with working(quick, store, lease_ms=SHORT) as running:
            await eventually(lambda: empty(store))
            await eventually(lambda: running.told.outcomes == {"succeeded": 1})
        await eventually(lambda: blocked.told.lost == 1)
        ((ctx, cancelled),) = told
        assert cancelled
        await eventually(lambda: ctx.lost)
        assert blocked.told.outcomes == {}
    ((_, accepted),) = written
    assert [who for who, _ in written] == ["quick"]
    assert [who for who, _ in refused] == ["late"]
    assert refused[0][1] < accepted
    assert "the handler of 'job' has blocked the event loop" in caplog.text


async def test_every_run_of_a_job_has_a_higher_fencing_token(store: Store) -> None:
    app, tokens = App(), []

    @app.handler("job", retry=RetryPolicy(max_retries=20, strategy="linear", base_ms=1, cap_ms=1))
    def job(ctx: Context, payload: Any) -> None:
        tokens.append(ctx.fencing_token)
        if len(tokens) < 20:
            raise ValueError

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 19, "succeeded": 1})
    assert tokens == sorted(set(tokens))


async def test_a_batch_has_the_lowest_fencing_token_of_its_jobs(store: Store) -> None:
    app, seen = App(), []

    @app.batch_handler("index", max_size=2, max_wait=3600)
    async def index(ctx: BatchContext, payloads: Any) -> None:
        seen.append((ctx.fencing_token, [run.fencing_token for run in ctx.runs]))

    producer = await queue(store)
    await put(producer, "index", [1])
    async with working(app, store) as running:
        await eventually(lambda: running.told.claims)
        await put(producer, "index", [2])
        await eventually(lambda: running.told.outcomes == {"succeeded": 2})
    ((lowest, each),) = seen
    assert lowest == each[0] < each[1]


async def test_leases_that_reports_renew_are_found_lost_by_them(store: Store) -> None:
    app, began, may_end = App(), asyncio.Event(), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        began.set()
        await may_end.wait()
        ctx.progress(1)
        await asyncio.sleep(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store, lease_ms=600_000) as running:
        await began.wait()
        (execution,) = running.worker._executor.running
        key, token = execution.settled
        assert await store.ack(AT, [Settled(key, token)]) == []
        may_end.set()
        await eventually(lambda: running.told.lost == 1)
        await eventually(lambda: not running.worker._executor.running)


async def test_what_is_handed_back_keeps_its_report(store: Store) -> None:
    app, began = App(), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ctx.progress(3, "third")
        began.set()
        await asyncio.sleep(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store, grace_seconds=0) as running:
        await began.wait()
        await running.stop()
    back = await only_job(store)
    assert back.progress is not None
    assert (back.attempt, back.progress.note) == (0, "third")
