"""More jobs than there are slots are claimed while runs end at once; never at the cost of jobs behind a slow one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, cast

import pytest

from headrace import App, Context, Store, StoreUnavailable
from headrace.topology import PartitionRef
from headrace.worker import runs
from headrace.worker.runs import SWIFT_JOBS
from tests.integration.worker.support import Faulty, Running, empty, eventually, put, queue, sizes, working

CONCURRENCY = 2


async def test_jobs_that_end_at_once_are_claimed_many_at_a_time(store: Store) -> None:
    app, order = App(), list[int]()

    @app.handler("swift")
    async def swift(ctx: Context, payload: int) -> None:
        order.append(payload)

    producer = await queue(store)
    await put(producer, "swift", range(1500))
    async with working(app, store, concurrency=CONCURRENCY) as worker:
        await eventually(lambda: worker.told.outcomes["succeeded"] == 1500)
        assert sorted(order) == list(range(1500))
    assert max(worker.told.claims) > CONCURRENCY * 4
    assert await sizes(store) == {}


async def test_what_was_claimed_beyond_the_slots_does_not_wait_for_a_run_that_turns_out_slow(store: Store) -> None:
    app, gate, ran = App(), asyncio.Event(), Counter[str]()

    @app.handler("swift")
    async def swift(ctx: Context, payload: Any) -> None:
        ran["swift"] += 1

    @app.handler("slow")
    async def slow(ctx: Context, payload: Any) -> None:
        ran["slow"] += 1
        await gate.wait()

    producer = await queue(store)
    await put(producer, "swift", range(600))
    await put(producer, "slow", range(CONCURRENCY))
    await put(producer, "swift", range(150))
    async with working(app, store, concurrency=CONCURRENCY) as first:
        await eventually(lambda: ran["slow"] == CONCURRENCY)
        # All its slots are taken. Nothing else is kept here, so another worker runs it.
        async with working(app, store, concurrency=CONCURRENCY):
            await eventually(lambda: ran["swift"] == 750)
        gate.set()
        await eventually(lambda: first.told.outcomes["succeeded"] >= CONCURRENCY)
    assert await sizes(store) == {}
    assert ran == {"swift": 750, "slow": CONCURRENCY}


@pytest.mark.parametrize(("concurrency", "seconds"), [(2, 0.001), (16, 0.0002)])
async def test_P1_no_more_is_claimed_than_there_are_slots_for_while_runs_are_not_swift_enough(
    store: Store, concurrency: int, seconds: float
) -> None:
    app, jobs = App(), 300

    @app.handler("computes")
    async def computes(ctx: Context, payload: int) -> None:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            pass

    producer = await queue(store)
    await put(producer, "computes", range(jobs))
    async with working(app, store, concurrency=concurrency) as worker:
        await eventually(lambda: worker.told.outcomes["succeeded"] == jobs)
    assert worker.told.outcomes == {"succeeded": jobs}  # nothing was claimed only to be handed back
    assert max(worker.told.claims) <= concurrency


class Watched(Faulty):
    """Counts the claims that are under way, and the jobs that they ask for."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.asked: list[int] = []
        self.worker: Running | None = None
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name != "claim":
            return call

        async def claim(ref: PartitionRef, worker: str, seq: int, limit: int, *args: Any, **options: Any) -> Any:
            self.asked.append(limit)
            if self.worker is not None:
                self.most = max(self.most, sum(self.asked) + self.worker.worker._executor.occupied)
            try:
                return await call(ref, worker, seq, limit, *args, **options)
            finally:
                self.asked.remove(limit)

        return claim


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("lost", [False, True])
async def test_the_next_claim_is_under_way_while_jobs_run_and_no_more_are_taken(
    store: Store, partitions: int, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "STEP_SECONDS", 60.0)  # they are swift, however busy the machine is
    app, ran = App(), Counter[int]()

    @app.handler("swift")
    async def swift(ctx: Context, payload: int) -> None:
        ran[payload] += 1

    producer = await queue(store, partitions)
    await put(producer, "swift", range(4000))
    watched = Watched(store)
    async with working(app, cast(Store, watched), concurrency=CONCURRENCY) as worker:
        watched.worker = worker
        await eventually(lambda: len(ran) > 500)
        gate = watched.hold["claim"] = asyncio.Event()
        # Of one partition too; before the first of them is answered.
        await eventually(lambda: len(watched.asked) == 2)
        if lost:
            watched.after["claim"] = [StoreUnavailable("no answer"), StoreUnavailable("no answer")]
        del watched.hold["claim"]
        gate.set()
        await eventually(lambda: len(ran) == 4000)
        await eventually(lambda: empty(store))
    assert set(ran.values()) == {1}
    assert worker.told.lost == 0
    assert watched.most <= SWIFT_JOBS
