"""taskiq with taskiq-redis: one asyncio worker on the stream broker, which acknowledges; no result backend."""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import version

import redis.asyncio as redis
import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench.peers.python.meter import Meter, Parameters, Report, emptied, enqueued, serve, unsupported

VERSION = f"{version('taskiq')} (taskiq-redis {version('taskiq-redis')})"
CLIENT = f"redis-py {version('redis')}, hiredis {version('hiredis')}, uvloop {version('uvloop')}"
BROKER = "RedisStreamBroker"
CALLERS = 50
NO_DELAY = "the broker knows no delayed jobs; schedules want a process of their own, which looks once a second at most"


def fill(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue({"mode": "concurrent", "callers": CALLERS, **parameters}))


def enqueue(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue(parameters))


def schedule(parameters: Parameters) -> Report:
    return unsupported(NO_DELAY, {"version": VERSION})


def work(parameters: Parameters) -> Report:
    logging.disable(logging.INFO)
    return uvloop.run(_work(parameters))


async def _enqueue(parameters: Parameters) -> Report:
    if parameters.get("delay"):
        return unsupported(NO_DELAY, {"version": VERSION})
    broker = RedisStreamBroker(parameters["url"], consumer_id="0")
    await broker.startup()

    @broker.task(task_name="noop")
    async def noop(text: str) -> None: ...

    report = await enqueued(
        parameters,
        noop.kiq,
        None,
        version=VERSION,
        settings={"client": CLIENT, "broker": BROKER},
    )
    await broker.shutdown()
    return report


async def _work(parameters: Parameters) -> Report:
    concurrency = parameters["concurrency"]
    started = asyncio.Event()
    meter = Meter(parameters, started.set)
    broker = RedisStreamBroker(parameters["url"], consumer_id="0", xread_count=concurrency)

    @broker.task(task_name="noop")
    async def noop(text: str) -> None:
        meter.started(text)

    running = asyncio.create_task(
        run_receiver_task(broker, max_async_tasks=concurrency, max_prefetch=concurrency, run_startup=True)
    )
    await started.wait()
    client = redis.Redis.from_url(parameters["url"])

    async def left() -> int:
        (group,) = await client.xinfo_groups("taskiq")
        return int(group["pending"])

    await emptied(meter, left)
    report = meter.report(
        version=VERSION,
        settings={
            "client": CLIENT, "broker": BROKER,
            "max_async_tasks": concurrency, "max_prefetch": concurrency, "xread_count": concurrency,
        },
    )  # fmt: skip
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await client.aclose()
    return report


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
