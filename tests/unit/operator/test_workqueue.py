"""The queue of keys: each once, in time, one worker at a time."""

from __future__ import annotations

import asyncio

import pytest

from headrace_operator.workqueue import WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def nothing_to_take(work: WorkQueue[str]) -> bool:
    taking = asyncio.create_task(work.take())
    for _ in range(5):
        await asyncio.sleep(0)
    idle = not taking.done()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    return idle


async def test_a_key_that_is_added_twice_is_taken_once() -> None:
    work: WorkQueue[str] = WorkQueue(Clock())
    work.add("a")
    work.add("a")
    work.add("b")
    assert [await work.take(), await work.take()] == ["a", "b"]
    assert await nothing_to_take(work)


async def test_the_earlier_time_counts() -> None:
    clock = Clock()
    work: WorkQueue[str] = WorkQueue(clock)
    work.add("a", 100)
    assert await nothing_to_take(work)
    work.add("a", 10)
    work.add("a", 50)
    clock.now = 10
    assert await work.take() == "a"
    work.done("a")
    clock.now = 1000
    assert await nothing_to_take(work)


async def test_a_key_in_work_is_not_given_to_another_worker() -> None:
    work: WorkQueue[str] = WorkQueue(Clock())
    work.add("a")
    assert await work.take() == "a"
    work.add("a")
    assert await nothing_to_take(work)
    work.done("a")
    assert await work.take() == "a"


async def test_adding_wakes_who_waits() -> None:
    work: WorkQueue[str] = WorkQueue(Clock())
    takers = [asyncio.create_task(work.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        work.add(key)
    async with asyncio.timeout(5):
        assert sorted(await asyncio.gather(*takers)) == ["a", "b", "c"]


async def test_lateness_is_that_of_the_oldest_key_that_waits() -> None:
    clock = Clock()
    work: WorkQueue[str] = WorkQueue(clock)
    work.add("a")
    work.add("b", 5)
    clock.now = 7
    assert work.lateness == pytest.approx(7)
    assert await work.take() == "a"
    assert len(work) == 1
    assert work.lateness == pytest.approx(2)
