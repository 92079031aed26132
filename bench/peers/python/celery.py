"""Celery: one worker process with a pool of 100 threads, results ignored, no events, no clustering chatter."""

from __future__ import annotations

import threading
from importlib.metadata import version

import redis
from celery import Celery

from bench.peers.python.meter import Meter, Parameters, Report, emptied_plainly, end, enqueued_plainly, serve

VERSION = version("celery")
CLIENT = f"redis-py {version('redis')}, kombu {version('kombu')}"
PREFETCH = 10


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


def work(parameters: Parameters) -> Report:
    app = app_of(parameters)
    done = threading.Event()
    meter = Meter(parameters, done.set)

    @app.task(name="noop")
    def noop(text: str) -> None:
        meter.started(text)

    # Acknowledged late, as every other subject does it; Celery's default loses the job of a process that dies.
    app.conf.task_acks_late = True
    concurrency = parameters["concurrency"]
    worker = app.Worker(
        pool="threads", concurrency=concurrency, loglevel="ERROR", without_gossip=True, without_mingle=True,
        without_heartbeat=True, quiet=True,
    )  # fmt: skip

    def finish() -> None:
        done.wait()
        client = redis.Redis.from_url(parameters["url"])
        emptied_plainly(lambda: client.llen("celery") + client.hlen("unacked"))
        report = meter.report(
            version=VERSION,
            settings={
                "client": CLIENT, "pool": "threads", "concurrency": concurrency, "prefetch_multiplier": PREFETCH,
                "acks_late": True, "ignore_result": True, "gossip, mingle, heartbeat, events": "off",
            },
        )  # fmt: skip
        end(report)

    # The worker wants the main thread, for its signals.
    threading.Thread(target=finish, daemon=True).start()
    worker.start()
    raise RuntimeError("the worker ended early")


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "work": work})
