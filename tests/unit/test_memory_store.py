"""What is particular to the in-memory store: its clock, and how it hands hints to those who wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace.lifecycle import promote
from headrace.stores.base import NewJob
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef

HERE = PartitionRef("emails", 1, 0)
THERE = PartitionRef("emails", 1, 1)


async def now(store: MemoryStore) -> int:
    (counts,) = await store.counts([HERE])
    return counts.now


async def test_time_is_the_systems_unless_a_clock_is_given() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= await now(MemoryStore()) <= time.time_ns() // 1_000_000
    assert await now(MemoryStore(lambda: 42)) == 42


async def test_time_never_goes_back() -> None:
    time_is = 100
    store = MemoryStore(lambda: time_is)
    assert await now(store) == 100
    time_is = 90
    assert await now(store) == 100
    time_is = 110
    assert await now(store) == 110


async def test_data_are_shared_with_clones_only() -> None:
    store = MemoryStore()
    await store.write_marker("mine")
    assert await store.clone().clone().read_marker() == "mine"
    assert await MemoryStore().read_marker() is None


async def test_the_longest_waiting_worker_is_woken_first() -> None:
    store = MemoryStore()
    order: list[int] = []

    async def wait(number: int) -> None:
        assert await store.clone().wait_hint(["emails"], 10) == HERE
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    for _ in waiting:
        await store.hint(HERE)
        await asyncio.sleep(0.01)
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2]


async def test_a_wait_that_ended_takes_no_hint() -> None:
    store = MemoryStore()
    assert await store.wait_hint(["emails"], 0.001) is None
    waiting = asyncio.create_task(store.wait_hint(["emails"], 10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await store.hint(HERE)
    assert await store.wait_hint(["emails"], 0.001) == HERE


@pytest.mark.parametrize("others", [0, 1])
async def test_V17_a_hint_handed_to_a_wait_that_is_cancelled_goes_to_the_next(others: int) -> None:
    store = MemoryStore()
    cancelled = asyncio.create_task(store.wait_hint(["emails"], 10))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(store.wait_hint(["emails"], 10)) for _ in range(others)]
    await asyncio.sleep(0)
    await store.hint(HERE)  # handed over, but the waiting task has not run yet
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    if waiting:
        assert await waiting[0] == HERE
    else:
        assert await store.wait_hint(["emails"], 10) == HERE
    assert await store.wait_hint(["emails"], 0.001) is None


async def test_a_request_to_set_the_timer_that_is_cancelled_goes_to_the_next() -> None:
    store = MemoryStore()
    cancelled = asyncio.create_task(store.wait_hint(["emails"], 10))
    await asyncio.sleep(0)
    await _schedule_a_job(store)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await store.wait_hint(["emails"], 10) == "emails"


async def _schedule_a_job(store: MemoryStore) -> None:

    await promote(store, "emails", 1, 1)
    await store.enqueue(HERE, 1, b"nonce", [NewJob(b"1a", -60_000, b"body")])


def test_a_waiter_whose_event_loop_was_closed_takes_no_hint() -> None:
    store = MemoryStore()
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(store.wait_hint(["emails"], 10))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    async def raise_and_wait() -> None:
        await store.hint(THERE)
        assert await store.wait_hint(["emails"], 1) == THERE

    asyncio.run(raise_and_wait())
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]
