"""Celery: one worker process with a pool of 100 threads, results ignored, no events, no clustering chatter."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from importlib.metadata import version

import redis
from celery import Celery

from bench.peers.python.meter import (
    Meter,
    Parameters,
    Report,
    emptied_plainly,
    end,
    enqueued_plainly,
    scheduled_plainly,
    serve,
)

VERSION = version("celery")
CLIENT = f"redis-py {version('redis')}, kombu {version('kombu')}"
PREFETCH = 10
TIMER_PRECISION = 0.01


def app_of(parameters: Parameters) -> Celery:
    app = Celery("bench", broker=parameters["url"])
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_pool_limit=50,
    )
    return app


def fill(parameters: Parameters) -> Report:
    return enqueue({"mode": "single", **parameters})


def enqueue(parameters: Parameters) -> Report:
    app = app_of(parameters)

    @app.task(name="noop")
    def noop(text: str) -> None: ...

    delay = parameters.get("delay")
    with app.producer_pool.acquire(block=True) as producer:
        # One producer for the calls of one thread spares them the pool; threads take their own.
        given = {} if parameters["mode"] == "concurrent" else {"producer": producer}
        return enqueued_plainly(
            parameters,
            lambda text: noop.apply_async((text,), countdown=delay, **given),
            None,
            version=VERSION,
            settings={"client": CLIENT},
        )


def schedule(parameters: Parameters) -> Report:
    app = app_of(parameters)

    @app.task(name="noop")
    def noop(text: str) -> None: ...

    with app.producer_pool.acquire(block=True) as producer:

        def one(due_ms: int, text: str) -> None:
            noop.apply_async((text,), eta=datetime.fromtimestamp(due_ms / 1000, UTC), producer=producer)

        return scheduled_plainly(parameters, one, version=VERSION)


def work(parameters: Parameters) -> Report:
    app = app_of(parameters)
    done = threading.Event()
    meter = Meter(parameters, done.set)

    @app.task(name="noop")
    def noop(text: str) -> None:
        meter.started(text)

    # Acknowledged late, as every other subject does it; Celery's default loses the job of a process that dies.
    app.conf.task_acks_late = True
    scheduling = {}
    if meter.leaves:
        # Scheduled tasks wait in the worker; it looks for due ones at least so often, by default once a second.
        app.conf.worker_timer_precision = TIMER_PRECISION
        scheduling = {"timer_precision": f"{TIMER_PRECISION} s"}
    concurrency = parameters["concurrency"]
    worker = app.Worker(
        pool="threads", concurrency=concurrency, loglevel="ERROR", without_gossip=True, without_mingle=True,
        without_heartbeat=True, quiet=True,
    )  # fmt: skip

    def finish() -> None:
        done.wait()
        client = redis.Redis.from_url(parameters["url"])
        emptied_plainly(meter, lambda: client.llen("celery") + client.hlen("unacked"))
        report = meter.report(
            version=VERSION,
            settings={
                "client": CLIENT, "pool": "threads", "concurrency": concurrency, "prefetch_multiplier": PREFETCH,
                "acks_late": True, "ignore_result": True, "gossip, mingle, heartbeat, events": "off",
                **scheduling,
            },
        )  # fmt: skip
        end(report)

    # The worker wants the main thread, for its signals.
    threading.Thread(target=finish, daemon=True).start()
    worker.start()
    raise RuntimeError("the worker ended early")


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
