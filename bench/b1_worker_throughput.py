"""B1: no-op async jobs per second of one worker process, concurrency 100, all jobs waiting.

From the start of the first handler to the last acknowledgement. The queue is filled before, untimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, fastest, find, ratio
from bench.rig import CONCURRENCY, Case, Rig, throughput
from bench.subject import Subject

TITLE = "worker throughput, no-op jobs"
JOBS = 100_000
PYTHON_PEERS = ("saq", "arq", "streaq", "rq", "celery")
SLOWER_PEERS_NOTE = (
    "Slow peers are given fewer jobs, so that a round takes seconds; a shorter backlog is to their advantage."
)


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = rig.scaled(JOBS)
    cases = [Case(OURS, f"p{count}", "jobs/s", partial(work, rig, rig.ours, jobs, count)) for count in (1, 8)]
    cases += [Case(peer.name, "one queue", "jobs/s", partial(work, rig, peer, jobs)) for peer in rig.peers]
    series = rig.interleaved(cases)
    notes = [f"Every subject has {CONCURRENCY} jobs in progress at most, RQ one.", SLOWER_PEERS_NOTE]
    return rig.result("B1", TITLE, series, checks(series), notes)


def work(rig: Rig, subject: Subject, jobs: int, partitions: int = 1) -> Sample:
    """Fill the queue and let one worker process empty it."""
    rig.server.flush()
    count = subject.jobs(jobs)
    rig.run(subject, "fill", jobs=count, partitions=partitions)
    outcome, redis_cpu = rig.run(subject, "work", jobs=count, concurrency=CONCURRENCY)
    return throughput(outcome, redis_cpu)


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare our one partition with each peer's one queue."""
    ours = find(series, OURS, "p1")
    best, complete = fastest(series, PYTHON_PEERS, "one queue")
    named = f"fastest of {', '.join(PYTHON_PEERS)}" + (f" ({best.subject})" if best else "")
    return [
        Check.of("headrace / bullmq", ratio(ours, find(series, "bullmq", "one queue")), ">=", 3.5),
        Check.of("headrace / asynq", ratio(ours, find(series, "asynq", "one queue")), ">=", 5.0),
        Check.of(f"headrace / {named}", ratio(ours, best), ">=", 20.0, complete=complete),
        Check.of("headrace / dramatiq", ratio(ours, find(series, "dramatiq", "one queue")), ">=", 10.0),
    ]
