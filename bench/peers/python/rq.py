"""RQ: one SimpleWorker, which runs jobs in its own process one after the other (no fork per job), results not kept."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import redis
from rq import Queue, SimpleWorker

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

VERSION = version("rq")
CLIENT = f"redis-py {version('redis')}, hiredis {version('hiredis')}"
TASK = "bench.peers.python.rq_task.noop"
KEPT = {"result_ttl": 0}
BULK = 500


def fill(parameters: Parameters) -> Report:
    if not parameters.get("delay"):
        return enqueue({"mode": "bulk", "bulk": BULK, **parameters})
    queue = Queue(connection=redis.Redis.from_url(parameters["url"]))
    delay = timedelta(seconds=parameters["delay"])
    one_by_one = {"mode": "single", **parameters}
    return enqueued_plainly(one_by_one, lambda text: queue.enqueue_in(delay, TASK, text, **KEPT), None, version=VERSION)


def enqueue(parameters: Parameters) -> Report:
    queue = Queue(connection=redis.Redis.from_url(parameters["url"]))
    return enqueued_plainly(
        parameters,
        lambda text: queue.enqueue(TASK, text, **KEPT),
        lambda text, count: queue.enqueue_many([Queue.prepare_data(TASK, (text,), **KEPT) for _ in range(count)]),
        version=VERSION,
        settings={"client": CLIENT, "bulk call": "Queue.enqueue_many"},
    )


def schedule(parameters: Parameters) -> Report:
    queue = Queue(connection=redis.Redis.from_url(parameters["url"]))

    def one(due_ms: int, text: str) -> None:
        queue.enqueue_at(datetime.fromtimestamp(due_ms / 1000, UTC), TASK, text, **KEPT)

    return scheduled_plainly(parameters, one, version=VERSION)


def work(parameters: Parameters) -> Report:
    from bench.peers.python import rq_task

    connection = redis.Redis.from_url(parameters["url"])
    queue = Queue(connection=connection)
    worker = SimpleWorker([queue], connection=connection)
    done = threading.Event()
    meter = Meter(parameters, done.set)
    rq_task.on_start = meter.started

    def finish() -> None:
        done.wait()
        watching = Queue(connection=redis.Redis.from_url(parameters["url"]))
        emptied_plainly(meter, lambda: watching.count + watching.started_job_registry.count)
        settings = {"client": CLIENT, "worker": "SimpleWorker", "concurrency": 1, "result_ttl": "0 (no result kept)"}
        if meter.leaves:
            settings["scheduler"] = f"a process of its own, interval {worker.scheduler.interval} s (the smallest)"
            worker.stop_scheduler()
        end(meter.report(version=VERSION, settings=settings))

    # The worker wants the main thread, for its signals.
    threading.Thread(target=finish, daemon=True).start()
    worker.work(logging_level="WARNING", with_scheduler=meter.leaves)
    raise RuntimeError("the worker ended early")


if __name__ == "__main__":
    serve({"fill": fill, "enqueue": enqueue, "schedule": schedule, "work": work})
