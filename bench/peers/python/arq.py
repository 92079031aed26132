"""arq: one asyncio worker, results not kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.worker import Worker, func

from bench.peers.python.meter import Due, Meter, Parameters, Report, emptied, enqueued, scheduled, serve

VERSION = version("arq")
CLIENT = f"redis-py {version('redis')}, hiredis {version('hiredis')}, uvloop {version('uvloop')}"
CALLERS = 50


def fill(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue({"mode": "concurrent", "callers": CALLERS, **parameters}))


def enqueue(parameters: Parameters) -> Report:
    return uvloop.run(_enqueue(parameters))


def schedule(parameters: Parameters) -> Report:
    return uvloop.run(_schedule(parameters))


def work(parameters: Parameters) -> Report:
    logging.disable(logging.INFO)
    return uvloop.run(_work(parameters))


async def _enqueue(parameters: Parameters) -> Report:
    pool = await create_pool(RedisSettings.from_dsn(parameters["url"]))
    delay = parameters.get("delay")
    report = await enqueued(
        parameters,
        lambda text: pool.enqueue_job("noop", text, _defer_by=delay),
        None,
        version=VERSION,
        settings={"client": CLIENT},
    )
    await pool.aclose()
    return report


async def _schedule(parameters: Parameters) -> Report:
    pool = await create_pool(RedisSettings.from_dsn(parameters["url"]))

    async def many(dues: Sequence[Due]) -> None:
        for due_ms, text in dues:
            await pool.enqueue_job("noop", text, _defer_until=datetime.fromtimestamp(due_ms / 1000, UTC))

    report = await scheduled(parameters, many, version=VERSION)
    await pool.aclose()
    return report


async def _work(parameters: Parameters) -> Report:
    started = asyncio.Event()
    meter = Meter(parameters, started.set)

    async def noop(ctx: object, text: str) -> None:
        meter.started(text)

    # A poll picks up at most what is free, so the shortest useful delay between polls is the fastest setting.
    settings = {"max_jobs": parameters["concurrency"], "keep_result": 0, "poll_delay": 0.005}
    worker = Worker(
        [func(noop, name="noop")],
        redis_settings=RedisSettings.from_dsn(parameters["url"]),
        handle_signals=False,
        log_results=False,
        **settings,
    )
    running = asyncio.create_task(worker.async_run())
    await started.wait()
    await emptied(meter, lambda: worker.pool.zcard(default_queue_name))
    report = meter.report(version=VERSION, settings={"client": CLIENT, **settings})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return report


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
