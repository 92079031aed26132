"""A queue that is deleted while its workers run jobs: nothing of it is left that does not pass, in every set-up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace import App, Context
from headrace.deletion import delete_queue
from headrace.lifecycle import promote
from headrace.producer import JobSpec, Producer
from headrace.stores import open_store
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, eventually, working
from tests.services.redis_setups import SETUPS, RedisSetups


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("ends", ["before the worker", "with the worker"])
async def test_J21_workers_of_a_deleted_queue_leave_nothing_that_does_not_pass(
    setup: str, ends: str, prefix: str, redis_setups: RedisSetups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them runs a job, knows of others and leads; what it says afterwards finds no queue any more."""
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.05)
    store = open_store(redis_setups.url(setup), prefix)
    app, began, gate = App(), asyncio.Event(), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        began.set()
        await gate.wait()

    await promote(store, QUEUE, 1, 8)
    await promote(store, QUEUE, 2, 8)
    producer = Producer(store)
    await producer.enqueue_many(QUEUE, [JobSpec("job", n) for n in range(200)])
    await producer.enqueue_many(QUEUE, [JobSpec("job", n, delay=0.5) for n in range(50)])
    async with working(app, store, concurrency=2, lease_ms=600) as worker:
        await began.wait()
        await delete_queue(store, QUEUE)
        if ends == "before the worker":
            gate.set()
            await eventually(lambda: not worker.worker._executor.by_queue())

        async def ticked() -> bool:
            return await store.tick(QUEUE, "other") is not None

        await eventually(ticked)
    await store.leave(QUEUE, "other")
    left = redis_setups.keys(setup, prefix)
    shared = {f"{{{prefix}}}:queues", f"{{{prefix}}}:wakes", f"{{{prefix}}}:marker"}
    assert {name for name, ms in left.items() if ms < 0} - shared == set()
    await store.close()
