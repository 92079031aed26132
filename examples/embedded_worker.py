"""A program with producer, queue and worker in one process: ``python -m examples.embedded_worker [URL]``.

Without a URL the queue lives in memory and ends with the program, which needs no server at all.
"""

import asyncio
import sys
from typing import Any

from headrace import App, Context, Producer, Worker, WorkerSettings, open_store
from headrace.lifecycle import promote

app = App()
squares: asyncio.Queue[int] = asyncio.Queue()


@app.handler("square")
async def square(ctx: Context, payload: dict[str, Any]) -> None:
    await squares.put(payload["number"] ** 2)


async def main(url: str) -> None:
    store = open_store(url)
    await promote(store, "numbers", version=1, partitions=2)

    worker = Worker(app, store, WorkerSettings(queues=("numbers",), concurrency=4))
    running = asyncio.create_task(worker.run())

    producer = Producer(store)
    for number in range(5):
        await producer.enqueue("numbers", "square", {"number": number})
    print(sorted([await squares.get() for _ in range(5)]))

    await worker.stop()
    ending = await running
    assert ending.clean, ending
    await producer.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
