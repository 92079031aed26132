"""Our worker: one process that runs handlers until the queue is empty."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.ours.queue import LOOP, QUEUE, TYPE, VERSION, left, prepared, run, store_of
from bench.peers.python.meter import Meter, emptied
from headrace.app import App
from headrace.context import Context
from headrace.worker import Worker
from headrace.worker.settings import WorkerSettings


def work(parameters: dict[str, Any]) -> dict[str, Any]:
    """Run a worker until ``jobs`` jobs are acknowledged."""
    return run(_work(parameters))


def settings_of(parameters: dict[str, Any]) -> WorkerSettings:
    """Return the worker's settings: the defaults, except queue and concurrency."""
    return WorkerSettings(queues=(QUEUE,), concurrency=int(parameters.get("concurrency", 100)))


async def _work(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    topology = await prepared(store, parameters)
    started = asyncio.Event()
    meter = Meter(int(parameters["jobs"]), started.set)
    app = App()

    @app.handler(TYPE)
    async def noop(ctx: Context, payload: Any) -> None:
        meter.started()

    settings = settings_of(parameters)
    worker = asyncio.ensure_future(Worker(app, store.clone(), settings).run())
    done = asyncio.ensure_future(started.wait())
    await asyncio.wait((worker, done), return_when=asyncio.FIRST_COMPLETED)
    if worker.done():
        raise RuntimeError(f"the worker ended early: {worker.result()}")
    await emptied(lambda: left(store, topology))
    report = meter.report(
        version=VERSION,
        settings={
            "client": LOOP,
            "concurrency": settings.concurrency,
            "batch": settings.claim_limit,
        },
    )
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await store.close()
    return report
