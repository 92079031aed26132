"""Middleware: around every kind of handler, in the documented order, and an error of it is one of that run only."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import App, BatchContext, CallNext, Context, Dead, Retry, RetryPolicy, Store, current_run
from headrace.dead_letters import dead_jobs
from tests.integration.worker.support import QUEUE, eventually, only_job, put, queue, sizes, working


class Named(BaseModel):
    name: str


async def test_middleware_is_around_handlers_the_first_registered_outermost(store: Store) -> None:
    app, order = App(), []

    @app.handler("async")
    async def on_loop(ctx: Context, payload: Named) -> str:
        order.append(("handler", payload.name))
        return "result"

    @app.middleware
    async def outer(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        order.append(("outer", payload))
        assert current_run() is ctx
        returned = await call_next(ctx, {"name": payload["name"].upper()})
        order.append(("outer again", returned))

    @app.middleware
    async def inner(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        order.append(("inner", payload))
        try:
            return await call_next(ctx, payload)
        finally:
            order.append(("inner again", ctx.job.type))

    @app.handler("plain")
    def in_thread(ctx: Context, payload: Named) -> str:
        order.append(("handler", payload.name))
        assert threading.current_thread() is not threading.main_thread()
        return "result"

    producer = await queue(store)
    async with working(app, store) as running:
        for type in ("async", "plain"):
            order.clear()
            await producer.enqueue(QUEUE, type, {"name": "ada"})
            await eventually(lambda: len(order) == 5)
            assert order == [
                ("outer", {"name": "ada"}),
                ("inner", {"name": "ADA"}),
                ("handler", "ADA"),
                ("inner again", type),
                ("outer again", "result"),
            ]
        await eventually(lambda: running.told.outcomes == {"succeeded": 2})


@pytest.mark.parametrize("where", ["before", "after"])
async def test_an_error_of_middleware_is_one_of_that_run_only(store: Store, where: str) -> None:
    app, ran = App(), []

    @app.middleware
    async def fails(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        if where == "after":
            await call_next(ctx, payload)
        if payload == "bad":
            raise RuntimeError("the middleware is broken")
        if where == "before":
            await call_next(ctx, payload)

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    await put(producer, "send", ["good", "bad", "good"], max_retries=0)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"succeeded": 2, "dead": 1})
    assert sorted(ran) == (["good", "good"] if where == "before" else ["bad", "good", "good"])


async def test_middleware_decides_like_a_handler(store: Store) -> None:
    app, ran = App(), []

    @app.middleware
    async def decides(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        if payload == "skip":
            return "not called"
        try:
            return await call_next(ctx, payload)
        except ConnectionError as error:
            raise Retry(after=3600) from error
        except LookupError as error:
            raise Dead("there is no such thing") from error

    @app.handler("send")
    def send(ctx: Context, payload: Any) -> None:
        ran.append(payload)
        raise {"away": ConnectionError, "missing": LookupError}[payload]

    producer = await queue(store)
    await put(producer, "send", ["skip", "away", "missing"])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"succeeded": 1, "retried": 1, "dead": 1})
    assert sorted(ran) == ["away", "missing"]
    assert await sizes(store) == {"retry": 1, "dead": 1}


async def test_J16_a_function_in_a_thread_keeps_its_slot_whatever_is_around_it(store: Store) -> None:
    """It is told of its time-out, and its middleware goes on only when its code has really ended."""
    app, may_end, order = App(), threading.Event(), []

    @app.middleware
    async def around(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        try:
            return await call_next(ctx, payload)
        finally:
            order.append(f"after {ctx.job.type}")

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
        await eventually(lambda: running.told.outcomes == {"dead": 1})
        await put(producer, "next", [None])
        await eventually(lambda: order == ["told"])
        assert await sizes(store) == {"dead": 1, "ready": 1}
        may_end.set()
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})
    assert order == ["told", "after slow", "next", "after next"]


async def test_QG2_a_plain_function_that_finishes_at_the_stop_has_succeeded_whatever_is_around_it(
    store: Store,
) -> None:
    app, may_end, began = App(), threading.Event(), threading.Event()

    @app.middleware
    async def around(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        return await call_next(ctx, payload)

    @app.handler("long")
    def long(ctx: Context, payload: Any) -> None:
        began.set()
        may_end.wait(60)

    producer = await queue(store)
    await put(producer, "long", [None])
    async with working(app, store) as running:
        await eventually(began.is_set)
        stopping = asyncio.create_task(running.stop(at_once=True))
        await eventually(lambda: next(iter(running.worker._executor.running)).withdrawn)
        may_end.set()
        assert (await stopping).clean
        assert running.told.outcomes == {"succeeded": 1}


async def test_a_timeout_of_middleware_waits_for_a_thread_and_is_an_error_all_the_same(store: Store) -> None:
    app, ended = App(), []

    @app.middleware
    async def at_most(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        async with asyncio.timeout(0.05):
            return await call_next(ctx, payload)

    @app.handler("slow", retry=RetryPolicy(max_retries=0))
    def slow(ctx: Context, payload: Any) -> None:
        time.sleep(0.3)
        ended.append(payload)

    producer = await queue(store)
    await put(producer, "slow", [1])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 1})
        assert ended == [1]


async def test_middleware_that_is_interrupted_hands_its_job_back(store: Store) -> None:
    app, began = App(), asyncio.Event()

    @app.middleware
    async def waits(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        began.set()
        await asyncio.Event().wait()

    @app.handler("plain")
    def plain(ctx: Context, payload: Any) -> None: ...

    producer = await queue(store)
    await put(producer, "plain", [None])
    async with working(app, store) as running:
        await began.wait()
        await running.stop(at_once=True)
        assert running.told.outcomes == {"interrupted": 1}
    assert (await only_job(store)).attempt == 0


@pytest.mark.parametrize("where", ["middleware", "handler", "batch handler"])
async def test_M7_a_run_that_forgets_to_await_has_failed(store: Store, where: str) -> None:
    app, ran = App(), list[Any]()

    async def inner(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    if where == "middleware":
        app.handler("job")(inner)

        @app.middleware
        async def forgets(ctx: Context, payload: Any, call_next: CallNext) -> Any:
            return call_next(ctx, payload)

    elif where == "handler":

        @app.handler("job")
        async def job(ctx: Context, payload: Any) -> Any:
            return inner(ctx, payload)

    else:

        @app.batch_handler("job")
        async def jobs(ctx: BatchContext, payloads: list[Any]) -> Any:
            return inner(ctx, payloads)

    producer = await queue(store)
    await put(producer, "job", [1, 2], max_retries=0)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 2})
    assert ran == []
    errors = [letter.job.last_error async for letter in dead_jobs(store, QUEUE) if letter.job is not None]
    assert len(errors) == 2
    assert all("instead of awaiting it" in error for error in errors)
