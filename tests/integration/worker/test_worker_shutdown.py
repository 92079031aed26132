"""The end of a worker: nothing is claimed, nothing that can be finished is thrown away, nothing stays leased."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import Any, cast

import pytest

from headrace import App, Context, Store
from headrace.stores.base import Tick
from headrace.topology import PartitionRef
from headrace.worker import runs
from tests.integration.worker.support import (
    QUEUE,
    Faulty,
    Running,
    empty,
    eventually,
    only_job,
    put,
    queue,
    sizes,
    working,
)


async def test_J17_QG1_what_has_not_started_goes_back_at_once_and_what_runs_may_finish(store: Store) -> None:
    app, started, may_end = App(), list[Any](), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(payload)
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "job", range(64))
    running = Running(app, store, concurrency=4, queue_buffer=60, grace_seconds=60)
    await eventually(lambda: len(started) == 4)

    async def all_leased() -> bool:
        return await sizes(store) == {"leased": 64}

    await eventually(all_leased)
    running.worker.request_stop()

    async def handed_back() -> bool:
        return await sizes(store) == {"leased": 4, "ready": 60}

    await eventually(handed_back)
    await put(producer, "job", ["late"])
    may_end.set()
    ending = await running.task
    assert ending.clean
    assert len(started) == 4
    assert running.told.outcomes == {"succeeded": 4, "handed_back": 60}
    assert await sizes(store) == {"ready": 61}
    # No attempt, no history, and in the order they had.
    job_back = await only_job(store)
    assert (job_back.payload, job_back.attempt, job_back.expiries, job_back.history) == (4, 0, 0, ())


async def test_J17_QG1_a_run_that_has_its_slot_and_has_not_begun_goes_back_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that do not wait begin one after the other; the grace is for those that have begun."""
    monkeypatch.setattr(runs, "STEP_SECONDS", -1.0)  # the event loop has a turn after each
    app, started = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(payload)
        if payload == 0:
            running.worker.request_stop()

    producer = await queue(store)
    await put(producer, "job", range(64))
    running = Running(app, store, concurrency=64, grace_seconds=60)
    assert (await running.task).clean
    begun = len(started)
    assert 1 <= begun < running.told.claims[0]
    assert running.told.outcomes == {"succeeded": begun, "handed_back": sum(running.told.claims) - begun}
    assert await sizes(store) == {"ready": 64 - begun}
    back = await only_job(store)
    assert back.payload not in started
    assert (back.attempt, back.expiries, back.history) == (0, 0, ())


async def test_QG2_a_run_that_outlives_the_grace_time_is_handed_back_without_an_attempt(store: Store) -> None:
    app, told = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append((ctx.cancelled, ctx.lost))
            raise

    producer = await queue(store)
    await put(producer, "job", [None])
    running = Running(app, store, grace_seconds=0.2)

    async def leased() -> bool:
        return await sizes(store) == {"leased": 1}

    await eventually(leased)
    ending = await running.stop()
    assert ending.clean
    assert told == [(True, False)]
    assert running.told.outcomes == {"interrupted": 1}
    assert await sizes(store) == {"ready": 1}
    back = await only_job(store)
    assert (back.attempt, back.expiries, back.last_error) == (0, 0, "")
    assert [(entry.status, entry.worker) for entry in back.history] == [("interrupted", running.worker.identity)]


async def test_QG2_an_error_that_answers_the_interruption_costs_no_attempt_either(store: Store) -> None:
    app = App()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionError("closed while in use") from None

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store) as running:
        await eventually(lambda: running.told.claims)
        await running.stop(at_once=True)
    assert running.told.outcomes == {"interrupted": 1}
    assert (await only_job(store)).attempt == 0


async def test_QG2_a_coroutine_that_swallows_its_cancellation_is_handed_back(store: Store) -> None:
    """Nobody can tell whether it finished: it runs again."""
    app, started = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(1)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store) as running:
        await eventually(lambda: started)
        assert (await running.stop(at_once=True)).clean
    assert running.told.outcomes == {"interrupted": 1}
    back = await only_job(store)
    assert (back.attempt, [entry.status for entry in back.history]) == (0, ["interrupted"])


async def test_QG2_a_plain_function_that_sees_the_end_and_returns_is_handed_back(store: Store) -> None:
    app, started = App(), list[Any]()

    @app.handler("job")
    def job(ctx: Context, payload: Any) -> None:
        started.append(1)
        while True:
            if ctx.cancelled:
                return
            time.sleep(0.005)

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store) as running:
        await eventually(lambda: started)
        assert (await running.stop(at_once=True)).clean
    assert running.told.outcomes == {"interrupted": 1}
    back = await only_job(store)
    assert (back.attempt, [entry.status for entry in back.history]) == (0, ["interrupted"])


async def test_QG2_a_plain_function_that_finishes_without_looking_has_succeeded(store: Store) -> None:
    app, started, may_end = App(), list[Any](), threading.Event()

    @app.handler("job")
    def job(ctx: Context, payload: Any) -> None:
        started.append(ctx.cancelled)
        may_end.wait(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store) as running:
        await eventually(lambda: started)
        running.worker.request_stop(at_once=True)
        await eventually(lambda: all(run.withdrawn for run in running.worker._executor.running))
        may_end.set()
        assert (await running.task).clean
    assert started == [False]
    assert running.told.outcomes == {"succeeded": 1}
    assert await empty(store)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_QG3_code_that_ignores_its_end_is_abandoned_and_its_job_handed_back(store: Store, kind: str) -> None:
    app, ends, started = App(), threading.Event(), list[Any]()

    if kind == "async":

        @app.handler("job")
        async def stubborn(ctx: Context, payload: Any) -> None:
            started.append(1)
            while not ends.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    started.append(2)
    else:

        @app.handler("job")
        def deaf(ctx: Context, payload: Any) -> None:
            started.append(1)
            ends.wait(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    running = Running(app, store, grace_seconds=0)
    await eventually(lambda: started)
    try:
        ending = await running.stop()
        assert (ending.abandoned, ending.unconfirmed, ending.clean) == (1, 0, False)
        assert running.told.outcomes == {"interrupted": 1}
        assert await sizes(store) == {"ready": 1}
    finally:
        ends.set()
    await eventually(lambda: not running.worker._executor.running)


async def test_a_second_request_ends_the_grace_time(store: Store) -> None:
    app, started = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(1)
        await asyncio.sleep(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    running = Running(app, store, grace_seconds=3600)
    await eventually(lambda: started)
    running.worker.request_stop()
    await asyncio.sleep(0)
    assert not running.task.done()
    running.worker.request_stop()
    assert (await running.task).clean
    assert running.told.outcomes == {"interrupted": 1}


async def test_QA11_jobs_of_a_claim_that_is_answered_during_the_stop_go_back(store: Store) -> None:
    app, runs = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(payload)

    producer = await queue(store)
    faulty = Faulty(store)
    gate = faulty.hold["claim"] = asyncio.Event()
    running = Running(app, faulty)
    await put(producer, "job", range(4))
    await eventually(lambda: faulty.calls["claim"])
    running.worker.request_stop()
    await eventually(lambda: running.worker._claims._stopping)
    gate.set()
    assert (await running.task).clean
    assert runs == []
    assert await sizes(store) == {"ready": 4}


async def test_M5_the_acknowledgement_of_the_last_run_outlives_the_stop(store: Store) -> None:
    app, may_end, started = App(), asyncio.Event(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(1)
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "job", [None])
    running = Running(app, store)
    await eventually(lambda: started)
    running.worker.request_stop()
    await asyncio.sleep(0)
    may_end.set()
    assert (await running.task).clean
    assert await empty(store)


async def test_results_that_the_store_never_confirms_are_told(store: Store) -> None:
    app, ran = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ran.append(1)

    producer = await queue(store)
    await put(producer, "job", [None])
    faulty = Faulty(store)
    faulty.hold["ack"] = asyncio.Event()
    running = Running(app, faulty, leader_backends="none")  # a hint of a leader would bring a claim, with the result
    await eventually(lambda: faulty.calls["ack"])
    ending = await running.stop()
    assert (ending.abandoned, ending.unconfirmed) == (0, 1)
    assert await sizes(store) == {"leased": 1}


async def test_a_worker_that_is_cancelled_hands_its_jobs_back(store: Store) -> None:
    app, started = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(1)
        await asyncio.sleep(60)

    producer = await queue(store)
    await put(producer, "job", [None])
    running = Running(app, store, grace_seconds=3600)
    await eventually(lambda: started)
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    assert await sizes(store) == {"ready": 1}


class Ticking:
    """A store that remembers what its clones' ticks returned."""

    def __init__(self, store: Store, ticks: list[int | None]) -> None:
        self._store, self.ticks = store, ticks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def clone(self) -> Any:
        return Ticking(self._store.clone(), self.ticks)

    async def tick(self, *args: Any) -> Tick:
        tick = await self._store.tick(*args)
        self.ticks.append(tick.alarm_ms)
        return tick


async def test_V17_a_worker_that_stops_leaves_the_timer_to_others(store: Store) -> None:
    producer = await queue(store)
    await put(producer, "job", [None], delay=3600)
    ticking = Ticking(store, [])
    async with working(App(), cast(Store, ticking)) as running:
        await eventually(lambda: any(tick is not None for tick in ticking.ticks))
        assert (await store.tick(QUEUE, "other")).alarm_ms is None
        assert (await running.stop()).clean
    assert await store.wait_hint([QUEUE], 10) == QUEUE
    assert (await store.tick(QUEUE, "other")).alarm_ms is not None


async def test_a_worker_runs_once(store: Store) -> None:
    app = App()
    async with working(app, store) as running:
        with pytest.raises(RuntimeError, match="runs once"):
            await running.worker.run()


async def test_identities_are_new_for_each_worker(store: Store) -> None:
    first, second = Running(App(), store), Running(App(), store)
    await first.stop()
    await second.stop()
    assert first.worker.identity != second.worker.identity
    assert first.worker.identity.startswith("w-")


async def test_only_waiting_jobs_that_are_ours_go_back_to_the_head(store: Store) -> None:
    """Jobs that came later stay behind those handed back."""
    app, started = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(payload)
        await asyncio.sleep(60)

    producer = await queue(store)
    await put(producer, "job", range(5))
    running = Running(app, store, concurrency=1, queue_buffer=4)
    await eventually(lambda: started == [0])

    async def leased() -> bool:
        return await sizes(store) == {"leased": 5}

    await eventually(leased)
    await put(producer, "job", [5])
    await running.stop(at_once=True)
    at = PartitionRef(QUEUE, 1, 0)
    order = [(await only_job(store, at)).payload for _ in range(6)]
    assert order.index(5) == 5
    assert sorted(order[:5]) == [0, 1, 2, 3, 4]
