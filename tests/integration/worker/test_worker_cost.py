"""What workers cost the store: counted in calls, whatever the machine."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from headrace import App, Context, JobSpec
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.stores.base import Store
from headrace.testing import TestQueue
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, Counted, empty, eventually, put, queue, sizes, working


def counting() -> tuple[App, list[Any]]:
    app, ran = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    return app, ran


def _reached(ran: list[Any], number: int) -> bool:
    return len(ran) == number


async def _empty(store: Store, name: str) -> bool:
    return await sizes(store, name) == {}


async def test_P1_ten_idle_workers_cost_the_same_each_whatever_the_partitions_and_versions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.02)
    app, ran = counting()
    await promote(store, QUEUE, 1, 16, owner={"name": "emails"})  # whose operator keeps the older version here
    await promote(store, QUEUE, 2, 64)
    async with AsyncExitStack() as stack:
        counted = [Counted(store) for _ in range(10)]
        running = [await stack.enter_async_context(working(app, cast(Store, each))) for each in counted]
        await put(Producer(store), "job", range(20))
        await eventually(lambda: len(ran) == 20)
        await eventually(lambda: empty(store))
        # What the leader among them does once per term, for every partition.
        duties = {"unfinished_changes", "lost_hints", "statistics"}
        await eventually(lambda: any(each.told.duties.keys() >= duties for each in running))
        before = [(each.calls.total(), each.cloned.total(), each.cloned["tick"]) for each in counted]
        await eventually(
            lambda: all(each.cloned["tick"] > was[2] + 20 for each, was in zip(counted, before, strict=True))
        )
        for each, (own, cloned, ticks) in zip(counted, before, strict=True):
            # A tick, and a few reads of the topology and of who leads: none for a partition.
            assert each.calls.total() - own + each.cloned.total() - cloned <= 4 * (each.cloned["tick"] - ticks) + 16


@pytest.mark.parametrize("batch", [16, 64])
async def test_P2_round_trips_under_load_do_not_grow_with_partitions(store: Store, batch: int) -> None:
    calls = {}
    for name, partitions in (("one", 1), ("eight", 8)):
        app, ran = counting()
        producer = await queue(store, partitions, name=name)
        await producer.enqueue_many(name, [JobSpec("job", n) for n in range(1600)])
        counted = Counted(store)
        async with working(app, cast(Store, counted), queues=[name], concurrency=batch, batch_size=batch):
            await eventually(partial(_reached, ran, 1600))
            await eventually(partial(_empty, store, name))
        calls[partitions] = sum(counted.calls[step] for step in ("claim", "ack", "renew", "fail", "release"))
    assert calls[8] <= 2 * calls[1] + 32


async def test_QC1_an_idle_worker_starts_a_job_without_looking_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a tick nor the end of a wait comes in time: what starts the job is that it was told of."""
    app, ran = counting()
    producer = await queue(store, 8)
    counted = Counted(store)
    async with working(app, cast(Store, counted), poll_ms=300_000):
        await put(producer, "job", ["first"])
        await eventually(lambda: len(ran) == 1)
        await eventually(lambda: empty(store))
        monkeypatch.setattr(wakeups, "TICK_SECONDS", 3600.0)
        before = counted.calls["claim"]
        for number in range(10):
            await put(producer, "job", [number])
            await eventually(partial(_reached, ran, number + 2))
        await eventually(lambda: empty(store))
        assert counted.calls["claim"] - before <= 20


async def test_QC2_after_days_without_anything_else_a_delayed_job_runs_when_it_is_due() -> None:
    app, ran = counting()
    async with TestQueue(app) as tested:
        await tested.enqueue("job", "in a week", delay=timedelta(days=7))
        await tested.advance(days=6, hours=23)
        assert ran == []
        await tested.advance(hours=1)
        assert ran == ["in a week"]
