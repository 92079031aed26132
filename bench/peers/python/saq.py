"""SAQ: one asyncio worker, results not kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from importlib.metadata import version

import uvloop
from saq import Queue, Worker

from bench.peers.python.meter import Due, Meter, Parameters, Report, emptied, enqueued, scheduled, serve

VERSION = version("saq")
CLIENT = f"redis-py {version('redis')}, hiredis {version('hiredis')}, uvloop {version('uvloop')}"
CALLERS = 50


def fill(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue({"mode": "concurrent", "callers": CALLERS, **parameters}))


def enqueue(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue(parameters))


def schedule(parameters: Parameters) -> Report:
    return uvloop.run(_schedule(parameters))


def work(parameters: Parameters) -> Report:
    return uvloop.run(_work(parameters))


async def _enqueue(parameters: Parameters) -> Report:
    # Every job is an enqueue call of its own; 20 of them at a time is the library's default.
    queue = Queue.from_url(parameters["url"], max_concurrent_ops=CALLERS)
    when = {}
    if delay := parameters.get("delay"):
        when = {"scheduled": int(time.time() + delay)}
    report = await enqueued(
        parameters,
        lambda text: queue.enqueue("noop", text=text, ttl=-1, **when),
        None,
        version=VERSION,
        settings={"client": CLIENT, "max_concurrent_ops": CALLERS},
    )
    await queue.disconnect()
    return report


async def _schedule(parameters: Parameters) -> Report:
    queue = Queue.from_url(parameters["url"], max_concurrent_ops=CALLERS)

    async def many(dues: Sequence[Due]) -> None:
        # Documented as whole seconds; the queue keeps fractions, which is better for it.
        calls = (queue.enqueue("noop", text=text, ttl=-1, scheduled=due_ms / 1000) for due_ms, text in dues)
        await asyncio.gather(*calls)

    report = await scheduled(parameters, many, version=VERSION)
    await queue.disconnect()
    return report


async def _work(parameters: Parameters) -> Report:
    started = asyncio.Event()
    meter = Meter(parameters, started.set)

    async def noop(ctx: object, *, text: str) -> None:
        meter.started(text)

    queue = Queue.from_url(parameters["url"])
    worker = Worker(queue, [("noop", noop)], concurrency=parameters["concurrency"])
    running = asyncio.create_task(worker.start())
    await started.wait()
    await emptied(meter, lambda: queue.count("incomplete"))
    settings = {"client": CLIENT, "concurrency": parameters["concurrency"], "ttl": "-1 (no result kept)"}
    if meter.leaves:
        settings["schedule timer"] = f"{worker.timers['schedule']} s (the smallest)"
    report = meter.report(version=VERSION, settings=settings)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return report


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
