"""What workers add to the statistics of their queue."""

from __future__ import annotations

import asyncio

from headrace import App, Context, Retry
from headrace.stores.base import Statistics, Store
from tests.integration.worker.support import QUEUE, empty, eventually, put, queue, working


async def statistics(store: Store) -> Statistics:
    found = await store.read_stats(QUEUE)
    assert found is not None
    return found


async def test_claims_outcomes_and_times_of_runs_are_counted(store: Store) -> None:
    app = App()

    @app.handler("sleep")
    async def sleep(ctx: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.handler("fail")
    async def fail(ctx: Context, payload: object) -> None:
        raise Retry(after=3600)

    producer = await queue(store)
    await put(producer, "sleep", [0.05] * 6)
    await put(producer, "fail", [None])
    await put(producer, "fail", [None], max_retries=0)

    async def counted() -> bool:
        found = await store.read_stats(QUEUE)
        return found is not None and sum(found.counters[name] for name in ("succeeded", "retried", "dead")) == 8

    async with working(app, store):
        await eventually(counted)
    counters = (await statistics(store)).counters
    assert (counters["claimed"], counters["succeeded"], counters["retried"], counters["dead"]) == (8, 6, 1, 1)
    assert 1 <= counters["service_jobs"] <= 8
    assert counters["service_ms"] > 0


async def test_what_was_counted_last_is_sent_at_the_end(store: Store) -> None:
    app = App()

    @app.handler("job")
    async def job(ctx: Context, payload: object) -> None: ...

    producer = await queue(store)
    ids = await put(producer, "job", range(3))

    async with working(app, store):
        await eventually(lambda: empty(store))
    assert len(ids) == (await statistics(store)).counters["succeeded"] == 3
