"""streaq: one asyncio worker, results not kept, logs of single tasks off."""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import version
from typing import Any

import uvloop
from streaq import Worker

from bench.peers.python.meter import Meter, Parameters, Report, emptied, enqueued, serve

VERSION = version("streaq")
CLIENT = f"coredis {version('coredis')}, uvloop {version('uvloop')}"
BULK = 500


def fill(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue({"mode": "bulk", "bulk": BULK, **parameters}))


def enqueue(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue(parameters))


def work(parameters: Parameters) -> Report:
    logging.disable(logging.INFO)
    return uvloop.run(_work(parameters))


async def _enqueue(parameters: Parameters) -> Report:
    worker = Worker(redis_url=parameters["url"])

    @worker.task(ttl=0, silent=True, name="noop")
    async def noop(text: str) -> None: ...

    delay = parameters.get("delay")

    def task(text: str) -> Any:
        fresh = noop.enqueue(text)
        return fresh.start(delay=delay) if delay else fresh

    async def one(text: str) -> None:
        await task(text)

    async with worker:
        return await enqueued(
            parameters,
            one,
            lambda text, count: worker.enqueue_many([task(text) for _ in range(count)]),
            version=VERSION,
            settings={"client": CLIENT, "bulk call": "Worker.enqueue_many"},
        )


async def _work(parameters: Parameters) -> Report:
    concurrency = parameters["concurrency"]
    started = asyncio.Event()
    meter = Meter(parameters, started.set)
    worker = Worker(redis_url=parameters["url"], concurrency=concurrency, handle_signals=False)

    @worker.task(ttl=0, silent=True, name="noop")
    async def noop(text: str) -> None:
        meter.started(text)

    running = asyncio.create_task(worker.run_async())
    done = asyncio.create_task(started.wait())
    await asyncio.wait((running, done), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    await emptied(worker.queue_size)
    report = meter.report(
        version=VERSION,
        settings={"client": CLIENT, "concurrency": concurrency, "ttl": "0 (no result kept)", "silent": True},
    )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return report


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "work": work})
