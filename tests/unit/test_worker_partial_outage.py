"""A partition that does not answer stops nothing in the other partitions of its queue."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace import App, Context, Producer, Worker, WorkerSettings
from headrace.errors import StoreUnavailable
from headrace.ids import partition_of
from headrace.lifecycle import promote
from headrace.stores.base import Claim
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef

SILENT = PartitionRef("emails", 1, 0)


class HalfAway(MemoryStore):
    """Gives workers no answer about one partition; ``asked`` counts their claims there."""

    asked = 0

    async def claim(self, ref: PartitionRef, *args: Any, **options: Any) -> Claim:
        if ref == SILENT:
            self.asked += 1
            raise StoreUnavailable("no answer")
        return await super().claim(ref, *args, **options)

    async def resume(self, ref: PartitionRef, *args: Any) -> Claim:
        if ref == SILENT:
            raise StoreUnavailable("no answer")
        return await super().resume(ref, *args)


async def test_a_partition_in_doubt_leaves_the_others_of_its_queue_at_work() -> None:
    app, ran = App(), asyncio.Queue[str]()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        await ran.put(ctx.job.id)

    store = HalfAway()
    await promote(store, SILENT.queue, 1, 2)
    worker = Worker(app, store, WorkerSettings(queues=(SILENT.queue,), concurrency=64))
    running = asyncio.create_task(worker.run())
    await worker.started.wait()
    producer = Producer(store)
    elsewhere = [job_id for n in range(100) if partition_of(job_id := f"job-{n}", 2) == 1]
    try:
        async with asyncio.timeout(30):
            await store.hint(SILENT)
            while not store.asked:
                await asyncio.sleep(0.001)
            for job_id in elsewhere[:3]:
                await store.hint(SILENT)  # of which nothing can come while it is in doubt
                await producer.enqueue(SILENT.queue, "send", id=job_id)
                assert await ran.get() == job_id
    finally:
        await worker.stop(at_once=True)
        await running
    assert store.asked == 1
