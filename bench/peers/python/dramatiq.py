"""Dramatiq: one worker process with 100 threads, the default middleware."""

from __future__ import annotations

import logging
import threading
import time
from importlib.metadata import version

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from bench.peers.python.meter import (
    Meter,
    Parameters,
    Report,
    emptied_plainly,
    enqueued_plainly,
    scheduled_plainly,
    serve,
)

VERSION = version("dramatiq")
CLIENT = f"redis-py {version('redis')}, hiredis {version('hiredis')}"
CONNECTIONS = 256
TIMEOUT_MS = {"busy": 100, "idle": 10}
"""How long a thread without work waits before it looks again; 1 s as installed. Short where it decides a latency."""


def broker_of(parameters: Parameters) -> RedisBroker:
    # A connection for every thread that acknowledges: the client's own limit is 100 in all, and a thread without one
    # waits 5 s.
    client = redis.Redis.from_url(parameters["url"], max_connections=CONNECTIONS)
    broker = RedisBroker(client=client)
    dramatiq.set_broker(broker)
    return broker


def fill(parameters: Parameters) -> Report:
    return enqueue({"mode": "single", **parameters})


def enqueue(parameters: Parameters) -> Report:
    broker_of(parameters)

    @dramatiq.actor
    def noop(text: str) -> None: ...

    delay = int(parameters["delay"] * 1000) if parameters.get("delay") else None
    return enqueued_plainly(
        parameters,
        lambda text: noop.send_with_options(args=(text,), delay=delay),
        None,
        version=VERSION,
        settings={"client": CLIENT},
    )


def schedule(parameters: Parameters) -> Report:
    broker_of(parameters)

    @dramatiq.actor
    def noop(text: str) -> None: ...

    def one(due_ms: int, text: str) -> None:
        noop.send_with_options(args=(text,), delay=due_ms - time.time_ns() // 10**6)

    return scheduled_plainly(parameters, one, version=VERSION)


def work(parameters: Parameters) -> Report:
    logging.disable(logging.INFO)
    broker = broker_of(parameters)
    done = threading.Event()
    meter = Meter(parameters, done.set)

    @dramatiq.actor
    def noop(text: str) -> None:
        meter.started(text)

    timeout = TIMEOUT_MS["idle" if parameters.get("announce") else "busy"]
    worker = dramatiq.Worker(broker, worker_threads=parameters["concurrency"], worker_timeout=timeout)
    worker.start()
    done.wait()
    client = redis.Redis.from_url(parameters["url"])
    # The hash holds every message until it is acknowledged.
    emptied_plainly(meter, lambda: client.hlen("dramatiq:default.msgs"))
    settings = {
        "client": CLIENT, "processes": 1, "threads": parameters["concurrency"], "connections": CONNECTIONS,
        "worker_timeout": f"{timeout} ms",
    }  # fmt: skip
    if meter.leaves:
        settings["delay_queue_prefetch"] = worker.delay_prefetch
    report = meter.report(version=VERSION, settings=settings)
    worker.stop(timeout=5_000)
    return report


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
