"""What share of a worker's slots each queue gets, and that nothing waits behind what is slow."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from headrace import App, Context, JobSpec, Producer, Store
from headrace.lifecycle import promote
from headrace.stores.memory import MemoryStore
from headrace.testing import TestQueue
from tests.integration.worker.support import QUEUE, eventually, queue, sizes, working


class Slots:
    """Handlers that note how many jobs of each queue run whenever one begins."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.app = App()
        self.running: Counter[str] = Counter()
        self.samples: list[Counter[str]] = []
        self.began: list[Any] = []
        self._seconds = seconds
        self.app.handler("work")(self._work)

    async def _work(self, ctx: Context, payload: Any) -> None:
        name = ctx.job.queue
        self.running[name] += 1
        self.began.append((name, payload))
        self.samples.append(Counter(self.running))
        try:
            await asyncio.sleep(self._seconds[name])
        finally:
            self.running[name] -= 1


async def fill(producer: Producer, name: str, jobs: int) -> None:
    await producer.enqueue_many(name, [JobSpec("work", number) for number in range(jobs)])


async def test_QK2_slots_are_shared_by_the_weights_of_queues(store: Store) -> None:
    producer = await queue(store, partitions=2)
    await queue(store, partitions=3, name="others")
    await fill(producer, "emails", 300)
    await fill(producer, "others", 300)
    slots = Slots({"emails": 0.02, "others": 0.02})
    async with working(slots.app, store, queues="emails:3,others", concurrency=16):
        await eventually(lambda: len(slots.began) >= 300)
    began = Counter(name for name, _ in slots.began[:300])
    assert 2 < began["emails"] / began["others"] < 4


async def test_QK2_a_queue_of_slow_jobs_leaves_its_share_to_a_queue_of_quick_ones(store: Store) -> None:
    producer = await queue(store, partitions=2)
    await queue(store, partitions=3, name="others")
    await fill(producer, "emails", 100)
    await fill(producer, "others", 300)
    slots = Slots({"emails": 0.3, "others": 0.002})
    async with working(slots.app, store, queues="emails:3,others", concurrency=16):
        await eventually(lambda: Counter(name for name, _ in slots.began)["others"] == 300)
    # In turn, they would have waited for the slow ones: one for each that ends.
    assert Counter(name for name, _ in slots.began)["emails"] < 100


async def test_QK2_a_queue_alone_uses_all_slots(store: Store) -> None:
    producer = await queue(store)
    await queue(store, name="others")
    await fill(producer, "others", 60)
    slots = Slots({"emails": 0.01, "others": 0.01})
    async with working(slots.app, store, queues="emails:9,others", concurrency=12):
        await eventually(lambda: max((sample["others"] for sample in slots.samples), default=0) == 12)


async def test_J11_a_lone_job_in_a_draining_version_starts_within_one_rotation_of_a_full_active_one() -> None:
    """Counted in jobs, on a store in memory whose time stands still: no more than one claim per partition before it."""
    app = App()
    order: list[int] = []

    @app.handler("work")
    async def work(ctx: Context, payload: Any) -> None:
        order.append(ctx.job.version)

    async with TestQueue(app, queues=[QUEUE], partitions=1, concurrency=4) as stage:
        await stage.producer.enqueue(QUEUE, "work", None)
        await promote(stage.store, QUEUE, 2, 8)
        await fill(stage.producer, QUEUE, 400)
        await stage.run_until_idle()
    assert len(order) == 401
    assert order.index(1) <= 4 * 9


async def test_QK3_jobs_of_a_draining_partition_keep_their_order_and_none_is_left(store: Store) -> None:
    producer = await queue(store)
    await fill(producer, QUEUE, 60)
    await promote(store, QUEUE, 2, 4)
    slots = Slots({QUEUE: 0.001})
    async with working(slots.app, store, concurrency=5, queue_buffer=5):
        await eventually(lambda: _none(store))
    numbers = [number for _, number in slots.began]
    assert sorted(numbers) == list(range(60))
    # As many as a worker takes at a time may overtake each other.
    assert all(abs(number - place) <= 10 for place, number in enumerate(numbers))


async def _none(store: Store) -> bool:
    return await sizes(store) == {}


def test_the_store_in_memory_is_the_one_of_the_kit() -> None:
    assert issubclass(type(TestQueue(App()).store), MemoryStore)
