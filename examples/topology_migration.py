"""A version bump by the library, without an operator: ``python -m examples.topology_migration redis://...``.

What the operator does when ``spec.version`` is raised: promote, let the old version drain, complete it when it is
proven empty.
"""

import asyncio
import sys

from headrace import App, Context, JobSpec, NotDrained, Producer, UnknownVersion, Worker, WorkerSettings, open_store
from headrace.lifecycle import complete, promote

QUEUE = "migrated"
app = App()
ran: list[tuple[int, int]] = []  # version, number


@app.handler("count")
async def count(ctx: Context, payload: int) -> None:
    ran.append((ctx.job.version, payload))


async def main(url: str) -> None:
    store = open_store(url)
    producer = Producer(store)
    await promote(store, QUEUE, version=1, partitions=2)
    await producer.enqueue_many(QUEUE, [JobSpec("count", number, delay=1) for number in range(10)])

    # From here on new jobs go to version 2. The producer, which still knows version 1 only, is told by the partitions.
    await promote(store, QUEUE, version=2, partitions=8)
    placed = await producer.enqueue_many(QUEUE, [JobSpec("count", number) for number in range(10, 20)])
    assert {job.version for job in placed} == {2}

    worker = Worker(app, store, WorkerSettings(queues=(QUEUE,)))
    running = asyncio.create_task(worker.run())
    while True:
        try:
            await complete(store, QUEUE, 1)
            break
        except NotDrained as waiting:
            print(waiting)
            await asyncio.sleep(0.5)
        except UnknownVersion:
            break  # the worker that leads the queue was faster
    topology = await store.read_topology(QUEUE)
    print(f"version 1 is gone: {topology.summary() if topology else 'and the queue, too'}")

    await worker.stop()
    await running
    await producer.aclose()
    assert sorted(number for _, number in ran) == list(range(20))
    assert {version for version, number in ran if number < 10} == {1}
    assert {version for version, number in ran if number >= 10} == {2}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.topology_migration URL, for example redis://127.0.0.1:6379/0")
    asyncio.run(main(sys.argv[1]))
