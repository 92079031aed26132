"""Our producer: fills a queue, or enqueues against time."""

from __future__ import annotations

from typing import Any

from bench.ours.queue import LOOP, QUEUE, TYPE, VERSION, prepared, run, store_of
from bench.peers.python.meter import enqueued, payload
from headrace.producer import JobSpec, Producer

FILL_BATCH = 1000


def fill(parameters: dict[str, Any]) -> dict[str, Any]:
    """Put ``jobs`` jobs into the queue, after ``delay`` seconds if that is given."""
    return run(_fill(parameters))


def enqueue(parameters: dict[str, Any]) -> dict[str, Any]:
    """Enqueue in the wanted mode, measured."""
    return run(_enqueue(parameters))


async def _fill(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    await prepared(store, parameters)
    producer = Producer(store)
    spec = JobSpec(TYPE, payload(parameters), delay=parameters.get("delay"))
    jobs = int(parameters["jobs"])
    for begun in range(0, jobs, FILL_BATCH):
        await producer.enqueue_many(QUEUE, [spec] * min(FILL_BATCH, jobs - begun))
    await producer.aclose()
    return {"jobs": jobs, "seconds": 0.0, "cpu_seconds": 0.0, "version": VERSION}


async def _enqueue(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    topology = await prepared(store, parameters)
    producer = Producer(store)
    text = payload(parameters)
    spec = JobSpec(TYPE, text)
    await producer.enqueue(QUEUE, TYPE, text)  # connection and scripts
    report = await enqueued(
        parameters,
        lambda: producer.enqueue(QUEUE, TYPE, text),
        lambda count: producer.enqueue_many(QUEUE, [spec] * count),
        version=VERSION,
        settings={"client": LOOP, "calls": "Producer.enqueue, Producer.enqueue_many"},
    )
    enqueued_jobs = sum(counts.ready for counts in await store.counts(topology.refs(topology.active)))
    if enqueued_jobs != report["jobs"] + 1:
        raise RuntimeError(f"{enqueued_jobs - 1} of {report['jobs']} jobs are in the queue")
    await producer.aclose()
    return report
