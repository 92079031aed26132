"""The same news does not fill the log, and what is remembered for that is bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace import App, Context, JobSpec, Producer, Worker, WorkerSettings
from headrace.lifecycle import promote
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from headrace.worker.repeats import INTERVAL_SECONDS, MAX_SUBJECTS, Repeats


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_subject_is_told_once_per_interval() -> None:
    clock = Clock()
    repeats = Repeats(clock=clock)
    assert [repeats.tells(each) for each in ("a", "a", "b", "a")] == [True, False, True, False]
    clock.now += INTERVAL_SECONDS
    assert [repeats.tells(each) for each in ("a", "a")] == [True, False]
    repeats.over("a")
    assert repeats.tells("a")


def test_subjects_are_bounded_and_make_room_when_they_are_old() -> None:
    clock = Clock()
    repeats = Repeats(clock=clock)
    told = sum(repeats.tells(f"type-{n}") for n in range(10 * MAX_SUBJECTS))
    assert (told, len(repeats)) == (MAX_SUBJECTS, MAX_SUBJECTS)
    clock.now += INTERVAL_SECONDS
    assert repeats.tells("another")
    assert len(repeats) == 1


async def test_types_that_producers_make_up_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await promote(store, "emails", 1, 1)
    number = 2 * MAX_SUBJECTS
    await Producer(store).enqueue_many("emails", [JobSpec(f"type-{n}") for n in range(number)])
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None: ...

    worker = Worker(app, store, WorkerSettings(queues=("emails",)))
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(30):
            while (await store.counts([PartitionRef("emails", 1, 0)]))[0].parked < number:
                await asyncio.sleep(0.005)
    finally:
        await worker.stop(at_once=True)
        await running
    assert caplog.text.count("no handler here for type") == MAX_SUBJECTS
