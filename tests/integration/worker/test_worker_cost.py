"""What workers cost the store: counted in calls, whatever the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from headrace import App, Context, JobSpec
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.redis.client import RedisClient
from headrace.stores import open_store
from headrace.stores.base import Store
from headrace.testing import TestQueue
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, Counted, empty, eventually, put, queue, sizes, working
from tests.services.redis_setups import SETUPS, RedisSetups


def counting_app() -> tuple[App, list[Any]]:
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
    app, ran = counting_app()
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


@pytest.mark.parametrize("setup", SETUPS)
async def test_P1_ten_idle_workers_send_no_more_for_16_partitions_of_two_versions_than_for_one(
    setup: str, prefix: str, redis_setups: RedisSetups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted below the store, each command that goes to a server; in a Cluster with its sweep for lost hints."""
    # Long enough for a slow machine to send what it would, if it looked everywhere at each tick.
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.4)
    sent = Counter[str]()

    def counting(name: str, script_of: Callable[..., str]) -> None:
        call = getattr(RedisClient, name)

        def count(client: RedisClient, *args: Any, **options: Any) -> Any:
            sent[script_of(*args)] += 1
            return call(client, *args, **options)

        monkeypatch.setattr(RedisClient, name, count)

    counting("send", lambda command, script, *_: script.name if script else str(command[0]))
    counting("blocking", lambda seconds, command, *_: command)

    async def commands_per_tick(name: str, versions: int, partitions: int) -> float:
        store = open_store(redis_setups.url(setup), f"{prefix}-{name}")
        app, ran = counting_app()
        for version in range(1, versions + 1):  # an operator keeps the older version here
            await promote(store, QUEUE, version, partitions, owner={"name": "emails"})
        async with AsyncExitStack() as stack:
            running = [await stack.enter_async_context(working(app, store, worker_id=f"w{n}")) for n in range(10)]
            await put(Producer(store), "job", range(20))
            await eventually(lambda: len(ran) == 20)
            await eventually(lambda: empty(store))
            duties = {"unfinished_changes", "lost_hints", "statistics"}
            await eventually(lambda: any(each.told.duties.keys() >= duties for each in running))
            began = sent["tick"]
            await eventually(lambda: sent["tick"] > began + 20)
            before = sent.copy()
            await eventually(lambda: sent["tick"] > before["tick"] + 120)
            spent = sent - before
        await store.close()
        return spent.total() / spent["tick"]

    one = await commands_per_tick("one", 1, 1)
    many = await commands_per_tick("many", 2, 8)
    assert many <= 1.25 * one
    # A tick, the topology, parked jobs and who leads; in a Cluster one claim from somewhere, with its hints.
    assert one <= (10 if setup == "cluster" else 5)


@pytest.mark.parametrize("batch", [16, 64])
@pytest.mark.parametrize("workers", [1, 8])
async def test_P2_round_trips_under_load_do_not_grow_with_partitions(store: Store, batch: int, workers: int) -> None:
    """Of one worker, and of eight at once; and they are few, since what has ended is told by the next claim."""
    jobs, calls = 1600, dict[int, int]()
    for name, partitions in (("one", 1), ("eight", 8)):
        app, ran = counting_app()
        producer = await queue(store, partitions, name=name)
        await producer.enqueue_many(name, [JobSpec("job", n) for n in range(jobs)])
        counted = [Counted(store) for _ in range(workers)]
        async with AsyncExitStack() as stack:
            for number, each in enumerate(counted):
                given = {"queues": [name], "concurrency": batch, "batch_size": batch, "worker_id": f"w{number}"}
                await stack.enter_async_context(working(app, cast(Store, each), **given))
            await eventually(partial(_reached, ran, jobs))
            await eventually(partial(_empty, store, name))
        steps = [each.calls[step] for step in ("claim", "ack", "renew", "fail", "release") for each in counted]
        calls[partitions] = sum(steps)
    assert calls[8] <= 2 * calls[1] + 32 * workers
    assert calls[1] <= 3 * jobs / batch + 32 * workers


async def test_QC1_an_idle_worker_starts_a_job_without_looking_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a tick nor the end of a wait comes in time: what starts the job is that it was told of."""
    app, ran = counting_app()
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
    app, ran = counting_app()
    async with TestQueue(app) as tested:
        await tested.enqueue("job", "in a week", delay=timedelta(days=7))
        await tested.advance(days=6, hours=23)
        assert ran == []
        await tested.advance(hours=1)
        assert ran == ["in a week"]
