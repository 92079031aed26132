"""Our worker: one process that runs no-op handlers, until all jobs are done or until it is told to stop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench.ours.queue import LOOP, QUEUE, TYPE, VERSION, left, prepared, run, store_of
from bench.peers.python.meter import Meter, emptied, payload
from headrace.app import App
from headrace.context import Context
from headrace.producer import JobSpec, Producer
from headrace.stores.base import Store
from headrace.worker import Worker, WorkerSettings

SLEEP_SECONDS = 0.01
CPU_SECONDS = 0.001


def work(parameters: dict[str, Any]) -> dict[str, Any]:
    """Run a worker until ``jobs`` jobs are acknowledged; with ``leave`` until they have started.

    ``store``: redis (default), or memory, filled here first. ``kind``: no-op (default), 10 ms sleep, 1 ms CPU.
    """
    return run(_work(parameters))


def attend(parameters: dict[str, Any]) -> dict[str, Any]:
    """Print ``ready``, wait for a line, run a worker until the next line; report what it ran and when it began.

    With ``at_once`` it starts before it prints ``ready``.
    """
    return run(_attend(parameters))


def settings_of(parameters: dict[str, Any]) -> WorkerSettings:
    """Return the worker's settings: the defaults, except queue and concurrency."""
    return WorkerSettings(queues=(QUEUE,), concurrency=int(parameters.get("concurrency", 100)))


def facts(settings: WorkerSettings, store: str = "redis") -> dict[str, Any]:
    """Return version and settings for the report."""
    return {
        "version": VERSION,
        "settings": {
            "client": LOOP if store == "redis" else "memory",
            "concurrency": settings.concurrency,
            "batch": settings.claim_limit,
            "lease_ms": settings.lease_ms,
        },
    }


@asynccontextmanager
async def running(handle: Callable[[Context, Any], Any], store: Store, settings: WorkerSettings) -> AsyncIterator[None]:
    """Run a worker on ``store`` within the context; an early end of it ends the process."""
    app = App()
    app.handler(TYPE)(handle)
    worker = Worker(app, store, settings)
    task = asyncio.create_task(worker.run())
    started = asyncio.create_task(worker.started.wait())
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        raise RuntimeError(f"the worker ended at once: {task.result()}")
    yield
    await worker.stop()
    ending = await task
    if not ending.clean:
        raise RuntimeError(f"the worker did not end in order: {ending}")


async def _work(parameters: dict[str, Any]) -> dict[str, Any]:
    store, kind = store_of(parameters), str(parameters.get("store", "redis"))
    topology = await prepared(store, parameters)
    jobs = int(parameters["jobs"])
    if kind == "memory":
        await Producer(store).enqueue_many(QUEUE, [JobSpec(TYPE, payload(parameters))] * jobs)
    started = asyncio.Event()
    meter = Meter(parameters, started.set)

    async def noop(ctx: Context, text: str) -> None:
        meter.started(text)

    async def sleep(ctx: Context, text: str) -> None:
        meter.started(text)
        await asyncio.sleep(SLEEP_SECONDS)

    async def compute(ctx: Context, text: str) -> None:
        meter.started(text)
        until = time.perf_counter() + CPU_SECONDS
        while time.perf_counter() < until:
            pass

    handle = {"10 ms sleep": sleep, "1 ms CPU": compute}.get(str(parameters.get("kind")), noop)
    settings = settings_of(parameters)
    async with running(handle, store.clone(), settings):
        await started.wait()
        await emptied(meter, lambda: left(store, topology))
        report = meter.report(**facts(settings, kind))
    await store.close()
    return report


async def _attend(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    await prepared(store, parameters)
    lines = _standard_input()
    count, first = 0, 0.0

    async def noop(ctx: Context, text: str) -> None:
        nonlocal count, first
        if not count:
            first = time.monotonic()
        count += 1

    settings = settings_of(parameters)
    if not parameters.get("at_once"):
        print("ready", flush=True)
        await lines.get()
    cpu = time.process_time()
    async with running(noop, store, settings):
        if parameters.get("at_once"):
            print("ready", flush=True)
        await lines.get()
        used = time.process_time() - cpu
    await store.close()
    return {"jobs": count, "seconds": 0.0, "cpu_seconds": used, "first": first, **facts(settings)}


def _standard_input() -> asyncio.Queue[str]:
    """Return a queue of the lines of standard input."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line.strip())

    threading.Thread(target=read, daemon=True).start()
    return lines
