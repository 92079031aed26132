"""Our producer: fills a queue, or enqueues against time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.ours.queue import LOOP, QUEUE, TYPE, VERSION, prepared, run, store_of
from bench.peers.python.meter import Due, enqueued, payload, scheduled
from headrace.producer import JobSpec, Producer

FILL_BATCH = 1000


def fill(parameters: dict[str, Any]) -> dict[str, Any]:
    """Put ``jobs`` jobs into the queue, after ``delay`` seconds if that is given."""
    return run(_fill(parameters))


def schedule(parameters: dict[str, Any]) -> dict[str, Any]:
    """Put ``jobs`` jobs into the queue that become due one by one from ``after`` to ``after + span`` seconds."""
    return run(_schedule(parameters))


def enqueue(parameters: dict[str, Any]) -> dict[str, Any]:
    """Enqueue in the wanted mode, measured."""
    return run(_enqueue(parameters))


async def _fill(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    await prepared(store, parameters)
    producer = Producer(store)
    spec = JobSpec(TYPE, payload(parameters), delay=parameters.get("delay"))
    jobs, cpu = int(parameters["jobs"]), time.process_time()
    for begun in range(0, jobs, FILL_BATCH):
        await producer.enqueue_many(QUEUE, [spec] * min(FILL_BATCH, jobs - begun))
    used = time.process_time() - cpu
    await producer.aclose()
    settings = {"client": LOOP, "calls": "Producer.enqueue_many"}
    return {"jobs": jobs, "seconds": 0.0, "cpu_seconds": used, "version": VERSION, "settings": settings}


async def _enqueue(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    await prepared(store, parameters)
    producer = Producer(store)
    report = await enqueued(
        parameters,
        lambda text: producer.enqueue(QUEUE, TYPE, text),
        lambda text, count: producer.enqueue_many(QUEUE, [JobSpec(TYPE, text)] * count),
        version=VERSION,
        settings={"client": LOOP, "calls": "Producer.enqueue, Producer.enqueue_many"},
    )
    await producer.aclose()
    return report


async def _schedule(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    await prepared(store, parameters)
    producer = Producer(store)

    async def many(dues: Sequence[Due]) -> None:
        await producer.enqueue_many(QUEUE, [JobSpec(TYPE, text, run_at=due_ms / 1000) for due_ms, text in dues])

    report = await scheduled(parameters, many, version=VERSION)
    await producer.aclose()
    return report
