"""The circuit breaker: when it opens, whom it tries, and when it closes."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import Any

import pytest

from headrace import App, CircuitBreaker, Context, Dead, InvalidInput, Retry, RetryPolicy, Snooze
from headrace.job import Job
from headrace.testing import TestQueue


class Stage:
    """A breaker on a clock that the test moves, and a dependency that is up or down."""

    def __init__(self, **given: Any) -> None:
        self.now = 1000.0
        middle = {"uniform": lambda low, high: (low + high) / 2}
        self.breaker = CircuitBreaker(**{"failures": 3, "pause": 10, **middle, **given}, clock=lambda: self.now)
        self.error: BaseException | None = ConnectionError("down")
        self.calls = 0

    async def run(self, type: str = "charge", deadline: float = float("inf")) -> Any:
        ctx = Context(Job("id", "emails", type, None, 0, 0, 1, 0), deadline)

        async def handler(ctx: Context, payload: Any) -> str:
            self.calls += 1
            if self.error is not None:
                raise self.error
            return "done"

        try:
            return await self.breaker(ctx, None, handler)
        except BaseException as error:
            return error

    async def fail(self, times: int) -> None:
        for _ in range(times):
            assert await self.run() is self.error


async def test_QF8_after_so_many_failures_in_a_row_the_jobs_of_the_type_are_put_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    await stage.fail(3)
    put_off = await stage.run()
    assert isinstance(put_off, Snooze)
    assert put_off.after_ms == 15_000  # the pause, and half of one for the spread
    assert stage.calls == 3
    assert stage.breaker.open_types() == {("emails", "charge"): 10}
    assert caplog.text.count("3 runs of type 'charge' have failed in a row") == 1
    stage.error = None
    assert await stage.run("other") == "done"


async def test_QF8_a_success_in_between_starts_the_count_anew() -> None:
    stage = Stage()
    await stage.fail(2)
    error, stage.error = stage.error, None
    assert await stage.run() == "done"
    stage.error = error
    await stage.fail(2)
    assert stage.breaker.open_types() == {}


async def test_QF8_one_job_is_tried_and_closes_it(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    await stage.fail(3)
    stage.now += 10
    stage.error = None
    gate = asyncio.Event()

    async def slowly(ctx: Context, payload: Any) -> str:
        await gate.wait()
        return "done"

    ctx = Context(Job("id", "emails", "charge", None, 0, 0, 1, 0), float("inf"))
    trial = asyncio.ensure_future(stage.breaker(ctx, None, slowly))
    await asyncio.sleep(0)
    assert isinstance(await stage.run(), Snooze)
    gate.set()
    assert await trial == "done"
    assert await stage.run() == "done"
    assert stage.breaker.open_types() == {}
    assert "a job of type 'charge' has succeeded" in caplog.text


async def test_QF8_while_it_stays_down_the_pauses_grow_to_a_bound() -> None:
    stage = Stage(longest=35)
    await stage.fail(3)
    pauses = []
    for _ in range(4):
        pauses.append(stage.breaker.open_types()["emails", "charge"])
        stage.now += pauses[-1]
        await stage.fail(1)
    assert pauses == [10, 20, 35, 35]
    assert stage.calls == 7


@pytest.mark.parametrize("error", [Retry(), Dead("no"), Snooze(timedelta(1)), asyncio.CancelledError()])
async def test_what_a_handler_decides_and_a_stop_are_no_failures(error: BaseException) -> None:
    stage = Stage(failures=1)
    stage.error = error
    await stage.fail(3)
    assert stage.breaker.open_types() == {}


async def test_a_timeout_is_a_failure() -> None:
    stage = Stage(failures=1)
    stage.error = asyncio.CancelledError()
    assert await stage.run(deadline=time.monotonic() - 1) is stage.error
    assert isinstance(await stage.run(), Snooze)


async def test_an_application_says_which_errors_mean_that_something_is_down() -> None:
    stage = Stage(failures=1, failed=lambda error: isinstance(error, ConnectionError))
    stage.error = ValueError("of this job alone")
    await stage.fail(3)
    assert stage.breaker.open_types() == {}
    stage.error = ConnectionError()
    await stage.fail(1)
    assert isinstance(await stage.run(), Snooze)


@pytest.mark.parametrize("given", [{"failures": 0}, {"pause": 0}, {"pause": 60, "longest": 30}])
def test_numbers_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CircuitBreaker(**given)


async def test_QF8_a_burst_costs_few_attempts_and_all_jobs_succeed_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    app = App()
    up = False
    calls = 0
    moved = 0.0

    @app.handler("charge", retry=RetryPolicy(max_retries=3))
    async def charge(ctx: Context, payload: Any) -> None:
        nonlocal calls
        calls += 1
        if not up:
            raise ConnectionError("down")

    app.middleware(CircuitBreaker(failures=10, pause=30, clock=lambda: moved))
    async with TestQueue(app, concurrency=5) as queue:
        for number in range(300):
            await queue.enqueue("charge", number)
        await queue.run_until_idle()
        assert calls < 20
        for _ in range(3):
            moved += 60
            await queue.advance(seconds=60)
        up = True
        for _ in range(40):
            if not await queue.counts():
                break
            moved += 60
            await queue.advance(seconds=60)
        assert await queue.counts() == {}
        assert await queue.dead() == []
    assert calls < 300 + 60
