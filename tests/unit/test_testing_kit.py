"""The testing kit for applications: real worker, memory store, and a clock that only the test moves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import (
    App,
    Context,
    Dead,
    InvalidInput,
    JobSpec,
    QueueSettings,
    ResultNotKept,
    Retention,
    RetentionOff,
    Retry,
    RetryPolicy,
    Snooze,
    SyncProducer,
)
from headrace.testing import BlockingTestQueue, TestQueue

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LINEAR = RetryPolicy(max_retries=3, strategy="linear", base_ms=60_000)


def later(**parts: float) -> datetime:
    return START + timedelta(**parts)


def failing(times: int, **options: Any) -> App:
    """An application whose one handler fails so often."""
    app = App()

    @app.handler("send", **options)
    async def send(ctx: Context, payload: Any) -> None:
        if ctx.attempt < times:
            raise ValueError(f"no {payload}")

    return app


async def test_nothing_runs_before_it_is_asked_for_and_then_everything_due() -> None:
    async with TestQueue(failing(0)) as queue:
        placed = await queue.enqueue("send", {"to": "ada"}, headers={"from": "x"})
        await asyncio.sleep(0.01)  # no chance is enough
        assert await queue.counts() == {"ready": 1}
        assert queue.runs == []
        (run,) = await queue.run_until_idle()
        assert (run.job.id, run.job.payload, run.job.headers) == (placed.id, {"to": "ada"}, {"from": "x"})
        assert (run.outcome, run.error, run.failed) == ("succeeded", "", False)
        assert await queue.counts() == {}
        assert await queue.run_until_idle() == []
        assert queue.runs == [run]


async def test_a_delayed_job_runs_at_its_time_not_before() -> None:
    async with TestQueue(failing(0), now=START) as queue:
        await queue.enqueue("send", delay=3600)
        await queue.enqueue("send", run_at=later(hours=2))
        assert await queue.run_until_idle() == []
        assert [each.due_at for each in queue.delayed()] == [later(hours=1), later(hours=2)]
        assert await queue.advance(minutes=59, seconds=59.999) == []
        (first,) = await queue.advance(seconds=0.001)
        assert first.at == later(hours=1)
        (second,) = await queue.advance(to=later(days=1))
        assert second.at == later(hours=2)
        assert queue.now == later(days=1)


async def test_retries_run_on_the_clock_of_the_test() -> None:
    async with TestQueue(failing(2, retry=LINEAR), now=START) as queue:
        await queue.enqueue("send", 7)
        (run,) = await queue.run_until_idle()
        assert (run.outcome, run.failed) == ("retried", True)
        assert run.error.startswith("ValueError: no 7\n")
        ((job, due_at),) = queue.delayed()
        assert (job.attempt, due_at) == (1, later(minutes=1))
        assert job.last_error == run.error
        assert [each.at for each in await queue.advance(hours=1)] == [later(minutes=1), later(minutes=2)]
        assert [each.outcome for each in queue.runs] == ["retried", "retried", "succeeded"]
        assert queue.failures == queue.runs[:2]
        assert [run.job.attempt for run in queue.runs] == [0, 1, 2]


async def test_the_dead_are_shown_with_their_errors() -> None:
    async with TestQueue(failing(99, retry=LINEAR), now=START) as queue:
        await queue.enqueue("send", 7, max_retries=1)
        runs = await queue.drain()
        assert [run.outcome for run in runs] == ["retried", "dead"]
        assert queue.now == later(minutes=1)
        (job,) = await queue.dead()
        assert job.last_error.startswith("ValueError: no 7")
        assert [entry.status for entry in job.history] == ["failed", "failed"]
        assert await queue.counts() == {"dead": 1}


async def test_what_a_handler_asks_for_is_followed() -> None:
    app = App()

    @app.handler("control")
    async def control(ctx: Context, payload: str) -> None:
        if payload == "dead":
            raise Dead("not an address")
        if payload == "retry" and ctx.attempt == 0:
            raise Retry(after=30)
        if payload == "snooze" and not ctx.job.history:
            raise Snooze(START + timedelta(hours=1))

    async with TestQueue(app, now=START) as queue:
        await queue.enqueue_many([JobSpec("control", each) for each in ("dead", "retry", "snooze")])
        await queue.enqueue("nobody-knows-it")
        runs = await queue.run_until_idle()
        outcomes = {run.job.payload: run.outcome for run in runs}
        assert outcomes == {"dead": "dead", "retry": "retried", "snooze": "snoozed", None: "parked"}
        retried, snoozed = queue.delayed()
        assert (retried.job.payload, retried.due_at) == ("retry", later(seconds=30))
        # The worker works out the store's time with the time that has really passed since the claim.
        assert later(minutes=59) < snoozed.due_at <= later(hours=1)
        assert [run.outcome for run in await queue.drain()] == ["succeeded", "succeeded"]
        assert await queue.counts() == {"dead": 1, "parked": 1}


async def test_jobs_that_handlers_enqueue_run_too_in_other_queues_as_well() -> None:
    app = App()

    @app.handler("step")
    async def step(ctx: Context, payload: int) -> None:
        if payload:
            await queue.enqueue("step", payload - 1, queue="second" if payload % 2 else "first", delay=payload)

    async with TestQueue(app, queues=("first", "second"), partitions=4, now=START) as queue:
        await queue.enqueue("step", 3)
        await queue.run_until_idle()
        assert [each.job.payload for each in queue.delayed("second")] == [2]
        runs = await queue.drain()
        assert [(run.job.queue, run.job.payload) for run in runs] == [("second", 2), ("first", 1), ("second", 0)]
        assert queue.now == later(seconds=6)


async def test_plain_handlers_run_in_their_threads() -> None:
    app = App()

    @app.handler("plain", retry=LINEAR)
    def plain(ctx: Context, payload: Any) -> None:
        if ctx.attempt == 0:
            raise ValueError("no")

    async with TestQueue(app) as queue:
        await queue.enqueue_many([JobSpec("plain", number) for number in range(40)])
        runs = await queue.drain()
        assert [run.outcome for run in runs] == ["retried"] * 40 + ["succeeded"] * 40


async def test_settings_of_queue_and_worker_hold() -> None:
    limited = QueueSettings(rate_per_second=1, retry=RetryPolicy(max_retries=0))
    async with TestQueue(failing(99), settings=limited, now=START, concurrency=2) as queue:
        await queue.enqueue_many([JobSpec("send", number) for number in range(4)])
        runs = await queue.advance(minutes=1)
        assert [run.at for run in runs] == [later(seconds=number) for number in range(4)]
        assert {run.outcome for run in runs} == {"dead"}


async def test_a_time_out_is_a_failed_run() -> None:
    app = App()

    @app.handler("hangs", timeout=0.01)
    async def hangs(ctx: Context, payload: Any) -> None:
        await asyncio.sleep(3600)

    async with TestQueue(app) as queue:
        await queue.enqueue("hangs")
        (run,) = await queue.run_until_idle()
        assert (run.outcome, run.error) == ("retried", "timed out after 10 ms")


async def test_a_handler_that_does_not_end_is_named() -> None:
    app = App()

    @app.handler("hangs")
    async def hangs(ctx: Context, payload: Any) -> None:
        await asyncio.sleep(3600)

    @app.handler("again")
    async def again(ctx: Context, payload: Any) -> None:
        raise Snooze(timedelta(minutes=1))

    async with TestQueue(app, within=0.05) as queue:
        await queue.enqueue("hangs")
        with pytest.raises(TimeoutError, match=r"not idle after 0\.05 s of real time; still running: hangs"):
            await queue.run_until_idle()
    async with TestQueue(app, within=0.05) as queue:
        await queue.enqueue("again")
        with pytest.raises(TimeoutError, match=r"not idle after 0\.05 s"):
            await queue.drain()


async def test_time_only_goes_forward_and_has_a_zone() -> None:
    async with TestQueue(failing(0), now=START) as queue:
        with pytest.raises(InvalidInput, match="time only goes forward"):
            await queue.advance(seconds=-1)
    with pytest.raises(InvalidInput, match="give an aware datetime"):
        TestQueue(failing(0), now=datetime(2026, 3, 1))


async def test_outside_of_its_block_it_says_so() -> None:
    queue = TestQueue(failing(0))
    with pytest.raises(RuntimeError, match="async with TestQueue"):
        await queue.run_until_idle()


async def test_the_environment_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TIMEOUT_MS", "1")
    monkeypatch.setenv("HEADRACE_HEALTH_PORT", "not a port")
    async with TestQueue(failing(0)) as queue:
        await queue.enqueue("send")
        assert [run.outcome for run in await queue.run_until_idle()] == ["succeeded"]


async def test_a_thousand_jobs_over_days_with_retries_take_no_time() -> None:
    """The deadline is generous, for busy machines; the days are what is not waited for."""
    began = time.monotonic()
    async with TestQueue(failing(1), now=START, within=60) as queue:
        await queue.enqueue_many([JobSpec("send", delay=3600 * (number % 48) + number) for number in range(1000)])
        runs = await queue.drain()
    assert len(runs) == 2000
    assert [run.outcome for run in runs].count("succeeded") == 1000
    assert queue.now > later(days=1, hours=23)
    assert [run.at for run in runs] == sorted(run.at for run in runs)
    assert time.monotonic() - began < 30


def test_plain_tests_have_a_queue_without_await() -> None:
    with BlockingTestQueue(failing(1, retry=LINEAR), now=START) as queue:
        queue.enqueue("send", 1)
        queue.enqueue_many([JobSpec("send", 2, delay=60)])
        assert [run.outcome for run in queue.run_until_idle()] == ["retried"]
        assert len(queue.delayed()) == 2
        assert [run.outcome for run in queue.advance(minutes=1)] == ["succeeded", "retried"]
        with SyncProducer(queue.store) as producer:  # as a view has one
            producer.enqueue("default", "send", 3)
        assert len(queue.drain()) == 3
        assert (queue.counts(), queue.dead(), len(queue.failures), len(queue.runs)) == ({}, [], 3, 6)
        assert queue.now == later(minutes=2)


def test_a_queue_that_cannot_start_leaves_no_thread() -> None:
    with pytest.raises(InvalidInput), BlockingTestQueue(failing(0), partitions=0):
        pass


pytest_plugins = ["pytester"]


def test_the_kit_needs_no_pytest() -> None:
    hidden = "import sys; sys.modules['pytest'] = None; sys.modules['pytest_asyncio'] = None; import headrace.testing"
    subprocess.run([sys.executable, "-c", hidden], check=True, timeout=60)


APPLICATION = """
    import pytest
    from headrace import App

    app = App()

    @app.handler("greet")
    async def greet(ctx, payload):
        assert payload == "Ada"

    @pytest.fixture
    def headrace_app():
        return app
"""


def test_fixtures_come_with_the_package(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(APPLICATION)
    pytester.makepyfile("""
        import pytest

        @pytest.mark.asyncio
        async def test_async(headrace_queue):
            await headrace_queue.enqueue("greet", "Ada", delay=60)
            assert [run.outcome for run in await headrace_queue.advance(minutes=1)] == ["succeeded"]

        def test_plain(headrace_blocking_queue):
            headrace_blocking_queue.enqueue("greet", "Bob", delay=60)
            assert [run.outcome for run in headrace_blocking_queue.advance(minutes=1)] == ["retried"]

        @pytest.fixture
        def headrace_queue_options():
            return {"queues": ("greetings",)}

        def test_options(headrace_blocking_queue):
            assert headrace_blocking_queue.counts("greetings") == {}
    """)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)


def test_a_project_that_names_no_application_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(headrace_blocking_queue): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*define a fixture headrace_app that returns your headrace.App"])


def test_without_the_asynchronous_plugin_its_fixture_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(absent="import sys; sys.modules['pytest_asyncio'] = None")
    pytester.makeconftest(APPLICATION)
    pytester.makepyfile("""
        def test_plain(headrace_blocking_queue): pass
        def test_async(headrace_queue): pass
    """)
    result = pytester.runpytest_subprocess("-p", "absent", "-p", "no:asyncio", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*install headrace[[]testing[]]*"])


def summing() -> App:
    app = App()

    @app.handler("sum")
    async def add(ctx: Context, payload: Any) -> Any:
        return "x" * 2_000_000 if payload is None else sum(payload)

    return app


async def test_a_run_has_the_result_of_its_handler_if_the_queue_keeps_it() -> None:
    async with TestQueue(summing(), settings=QueueSettings(retention=Retention())) as queue:
        await queue.enqueue("sum", [1, 2])
        await queue.enqueue("sum", ["x"], max_retries=0)
        await queue.enqueue("sum", None)
        runs = {str(run.job.payload): run for run in await queue.drain()}
        assert runs["[1, 2]"].result == 3
        with pytest.raises(InvalidInput, match="result: there is none: the run of 'sum' is dead"):
            _ = runs["['x']"].result
        with pytest.raises(ResultNotKept, match="the limit is"):
            _ = runs["None"].result
    async with TestQueue(summing()) as queue:
        await queue.enqueue("sum", [1, 2])
        (run,) = await queue.drain()
        with pytest.raises(RetentionOff):
            _ = run.result


async def test_a_job_that_is_cancelled_does_not_run() -> None:
    async with TestQueue(failing(0), now=START) as queue:
        later_job = await queue.enqueue("send", delay=60)
        ready = await queue.enqueue("send")
        assert (await queue.cancel(later_job.id)) == (later_job.id, "scheduled", True)
        assert (await queue.cancel(ready.id)).cancelled
        assert not (await queue.cancel(ready.id)).cancelled
        assert await queue.drain() == []
        assert await queue.counts() == {}


async def test_a_run_whose_job_is_cancelled_meanwhile_counts_as_cancelled() -> None:
    app = App()

    @app.handler("long")
    async def long(ctx: Context, payload: Any) -> None:
        await asyncio.Event().wait()

    @app.handler("stop")
    async def stop(ctx: Context, payload: str) -> None:
        await queue.cancel(payload)

    async with TestQueue(app, concurrency=2) as queue:
        placed = await queue.enqueue("long", timeout=600)
        await queue.enqueue("stop", placed.id)
        outcomes = {run.job.type: run.outcome for run in await queue.run_until_idle()}
        assert outcomes == {"long": "cancelled", "stop": "succeeded"}
        assert await queue.counts() == {}


def test_a_plain_test_cancels_and_reads_results() -> None:
    with BlockingTestQueue(summing(), settings=QueueSettings(retention=Retention())) as queue:
        gone = queue.enqueue("sum", [9])
        queue.enqueue("sum", [4, 5])
        assert queue.cancel(gone.id).state == "ready"
        (run,) = queue.run_until_idle()
        assert run.result == 9
