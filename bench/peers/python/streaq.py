"""streaq: one asyncio worker, results not kept, logs of single tasks off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import uvloop
from streaq import Worker

from bench.peers.python.meter import Due, Meter, Parameters, Report, emptied, enqueued, scheduled, serve

VERSION = version("streaq")
CLIENT = f"coredis {version('coredis')}, uvloop {version('uvloop')}"
BULK = 500


def fill(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue({"mode": "bulk", "bulk": BULK, **parameters}))


def enqueue(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue(parameters))


def schedule(parameters: Parameters) -> Report:
    return uvloop.run(_schedule(parameters))


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


async def _schedule(parameters: Parameters) -> Report:
    worker = Worker(redis_url=parameters["url"])

    @worker.task(ttl=0, silent=True, name="noop")
    async def noop(text: str) -> None: ...

    async def many(dues: Sequence[Due]) -> None:
        fresh = ((noop.enqueue(text), datetime.fromtimestamp(due_ms / 1000, UTC)) for due_ms, text in dues)
        await worker.enqueue_many([task.start(schedule=due) for task, due in fresh])

    async with worker:
        return await scheduled(parameters, many, version=VERSION)


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
    await emptied(meter, worker.queue_size)
    settings = {"client": CLIENT, "concurrency": concurrency, "ttl": "0 (no result kept)", "silent": True}
    if meter.leaves:
        settings["poll of delayed tasks"] = "0.5 s (fixed)"
    report = meter.report(version=VERSION, settings=settings)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return report


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
