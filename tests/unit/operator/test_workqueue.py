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


async def test_a_key_that_comes_due_wakes_one_of_those_who_wait_and_one_for_later_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work: WorkQueue[str] = WorkQueue(Clock())
    looks = 0
    wait = work._wait

    def counted() -> float | None:
        nonlocal looks
        looks += 1
        return wait()

    monkeypatch.setattr(work, "_wait", counted)
    takers = [asyncio.create_task(work.take()) for _ in range(8)]
    work.add("soon", 50)
    for _ in range(5):
        await asyncio.sleep(0)
    begun = looks
    for number in range(100):
        work.add(f"later-{number}", 100)
        await asyncio.sleep(0)
    assert looks == begun
    work.add("now")
    done, waiting = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    assert [task.result() for task in done] == ["now"]
    assert looks <= begun + 2
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_keys_for_later_come_due_together_and_those_for_soon_in_time() -> None:
    clock = Clock()
    work: WorkQueue[str] = WorkQueue(clock, tick=0.25)
    for number in range(4):
        clock.now = (number + 1) / 20
        work.add(f"later-{number}", 30)
    work.add("soon", 1.0)
    clock.now = 1.21
    assert await work.take() == "soon"
    clock.now = 30.2
    assert await nothing_to_take(work)
    clock.now = 30.25
    assert [await work.take() for _ in range(4)] == [f"later-{number}" for number in range(4)]


async def test_who_is_cancelled_while_he_waits_leaves_the_turn_to_others() -> None:
    work: WorkQueue[str] = WorkQueue(Clock())
    first, second = (asyncio.create_task(work.take()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    work.add("a")
    async with asyncio.timeout(5):
        assert await second == "a"


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
