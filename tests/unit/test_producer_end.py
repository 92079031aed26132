"""Producers are closed while others still use them: calls under way end first, and none waits for ever."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.errors import HeadraceError, InvalidInput, UnknownQueue
from headrace.lifecycle import promote
from headrace.producer import JobSpec, Producer
from headrace.stores.memory import MemoryStore
from headrace.sync_producer import SyncProducer

QUEUE = "emails"


class Slow(MemoryStore):
    """Enqueues when told; ``closed`` counts how often it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.closed = 0

    async def enqueue(self, *args: Any) -> Any:
        self.asked.set()
        assert await asyncio.to_thread(self.go_on.wait, 10)
        assert not self.closed
        return await super().enqueue(*args)

    async def close(self) -> None:
        self.closed += 1


async def slow_store() -> Slow:
    store = Slow()
    await promote(store, QUEUE, 1, 1)
    return store


async def test_aclose_waits_for_every_call_under_way() -> None:
    store = await slow_store()
    producer = Producer(store)
    many = asyncio.create_task(producer.enqueue_many(QUEUE, [JobSpec("send")]))
    await asyncio.to_thread(store.asked.wait, 10)
    closing = asyncio.create_task(producer.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    store.go_on.set()
    await closing
    assert store.closed == 1
    assert [placed.existing for placed in await many] == [False]


@pytest.mark.parametrize("many", [False, True])
def test_a_thread_whose_call_is_under_way_gets_its_result_when_another_one_closes(many: bool) -> None:
    store = asyncio.run(slow_store())
    producer = SyncProducer(store)

    def enqueue() -> Any:
        return producer.enqueue_many(QUEUE, [JobSpec("send")]) if many else producer.enqueue(QUEUE, "send")

    with ThreadPoolExecutor(2) as threads:
        placed = threads.submit(enqueue)
        assert store.asked.wait(10)
        closing = threads.submit(producer.close)
        store.go_on.set()
        assert placed.result(10)
        closing.result(10)
    producer.close()
    assert store.closed == 1
    with pytest.raises(HeadraceError, match="closed"):
        enqueue()


async def test_a_producer_opens_a_url_and_closes_it_at_the_end_of_its_block() -> None:
    async with Producer("memory://") as producer:
        with pytest.raises(UnknownQueue):
            await producer.enqueue(QUEUE, "send")
    with pytest.raises(HeadraceError, match="closed"):
        await producer.enqueue(QUEUE, "send")
    with pytest.raises(InvalidInput, match="unknown scheme 'http'"):
        Producer("http://localhost")


async def test_a_block_that_fails_closes_the_store_too() -> None:
    store = Slow()
    with pytest.raises(ZeroDivisionError):
        async with Producer(store):
            raise ZeroDivisionError
    assert store.closed == 1
