"""A worker that is about to be removed: it claims nothing more, hands back what waits, and ends what it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace import App, Context, JobSpec, Store
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, Running, eventually, put, queue, sizes, working


class Stage:
    """Handlers that wait until they may end."""

    def __init__(self) -> None:
        self.app = App()
        self.began: list[str] = []
        self.go = asyncio.Event()
        self.app.handler("wait")(self._wait)
        self.app.handler("note")(self._note)

    async def _wait(self, ctx: Context, payload: Any) -> None:
        self.began.append(payload)
        await self.go.wait()

    async def _note(self, ctx: Context, payload: Any) -> None:
        self.began.append(payload)


async def said(store: Store, running: Running) -> Any:
    """What the worker says of itself, once it has."""
    return next((entry for entry in await store.workers(QUEUE) if entry.worker == running.worker.identity), None)


async def paused(store: Store, running: Running) -> bool:
    return running.worker._claims.rotation.queues[QUEUE].paused


async def only(store: Store, expected: dict[str, int]) -> bool:
    return await sizes(store) == expected


async def test_QG6_a_worker_that_is_to_go_hands_back_what_waits_and_ends_what_runs(store: Store) -> None:
    producer = await queue(store)
    await put(producer, "wait", [f"job-{n}" for n in range(6)])
    stage = Stage()
    async with working(stage.app, store, concurrency=2, queue_buffer=4) as running:
        await eventually(lambda: only(store, {"leased": 6}))
        await store.stop_claiming(QUEUE, [running.worker.identity], 600_000)
        await eventually(lambda: only(store, {"leased": 2, "ready": 4}))
        stage.go.set()
        await eventually(lambda: only(store, {"ready": 4}))
        # Another one takes what it leaves, and nothing was charged.
        other = Stage()
        other.go.set()
        async with working(other.app, store, worker_id="other"):
            await eventually(lambda: only(store, {}))
        assert len(stage.began) == 2
        assert sorted(stage.began + other.began) == [f"job-{n}" for n in range(6)]
        assert running.told.outcomes == {"succeeded": 2, "handed_back": 4}


async def test_QG6_a_worker_says_that_it_claims_nothing_once_it_has_learnt_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.1)
    producer = await queue(store)
    await put(producer, "wait", ["job"])
    stage = Stage()
    async with working(stage.app, store) as running:
        await eventually(lambda: stage.began)

        async def says(standing: bool, jobs: int) -> bool:
            entry = await said(store, running)
            return entry is not None and (entry.stands_by_ms > 0, entry.beat.in_flight) == (standing, jobs)

        await eventually(lambda: says(False, 1))
        await store.stop_claiming(QUEUE, [running.worker.identity], 600_000)
        await eventually(lambda: says(True, 1))
        assert await paused(store, running)
        stage.go.set()
        await eventually(lambda: says(True, 0))
        await store.stop_claiming(QUEUE, [running.worker.identity], 0)
        await eventually(lambda: says(False, 0))
        assert not await paused(store, running)


async def test_QG6_an_idle_worker_that_is_to_go_leaves_hints_to_others(store: Store) -> None:
    producer = await queue(store)
    stage, other = Stage(), Stage()
    async with working(stage.app, store) as going, working(other.app, store, worker_id="other"):
        await store.stop_claiming(QUEUE, [going.worker.identity], 600_000)
        await eventually(lambda: paused(store, going))
        for number in range(20):
            await put(producer, "note", [f"job-{number}"])
            await eventually(lambda: only(store, {}))
    assert stage.began == []
    assert len(other.began) == 20


async def test_QG6_it_claims_again_when_the_order_runs_out_or_is_taken_back(store: Store) -> None:
    producer = await queue(store)
    stage = Stage()
    async with working(stage.app, store) as running:
        await store.stop_claiming(QUEUE, [running.worker.identity], 600_000)
        await eventually(lambda: paused(store, running))
        await put(producer, "note", ["first"])
        await store.stop_claiming(QUEUE, [running.worker.identity], 0)
        await eventually(lambda: only(store, {}))
        await store.stop_claiming(QUEUE, [running.worker.identity], 7_000)
        await eventually(lambda: paused(store, running))
        # Whoever said it may be dead: nobody says anything more.
        await put(producer, "note", ["second"])
        await eventually(lambda: only(store, {}))
    assert stage.began == ["first", "second"]


async def test_QG6_other_queues_of_the_worker_go_on(store: Store) -> None:
    producer = await queue(store)
    await queue(store, name="others")
    stage = Stage()
    async with working(stage.app, store, queues=f"{QUEUE},others") as running:
        await store.stop_claiming(QUEUE, [running.worker.identity], 600_000)
        await eventually(lambda: paused(store, running))
        await put(producer, "note", ["stays"])
        await producer.enqueue_many("others", [JobSpec("note", "goes on")])
        await eventually(lambda: stage.began == ["goes on"])
        assert await only(store, {"ready": 1})


async def test_QK6_a_worker_says_where_it_is_and_what_it_holds(store: Store) -> None:
    producer = await queue(store)
    await put(producer, "wait", ["job-1", "job-2", "job-3"])
    stage = Stage()

    async def tells() -> Any:
        entry = await said(store, running)
        return entry if entry is not None and entry.beat.in_flight == 3 else None

    async with working(stage.app, store, concurrency=8) as running:
        entry = await eventually(tells)
        assert entry.beat.slots == 8
        assert entry.beat.pid > 0
        assert entry.beat.host
        stage.go.set()
    assert await store.workers(QUEUE) == []
