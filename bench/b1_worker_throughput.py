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
REAL = {"1 KB payload": 5, "10 ms sleep": 10, "1 ms CPU": 20}
"""Handlers nearer to real ones, ours only, with the divisor of their number of jobs."""
SLOWER_PEERS_NOTE = "Slow peers are given fewer jobs, enough for some seconds a round; figures are rates."


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = rig.scaled(JOBS)
    cases = [Case(OURS, f"p{count}", "jobs/s", partial(work, rig, rig.ours, jobs, count)) for count in (1, 8)]
    cases += [
        Case(OURS, kind, "jobs/s", partial(work, rig, rig.ours, jobs // part, 8, kind)) for kind, part in REAL.items()
    ]
    cases += [Case(peer.name, "one queue", "jobs/s", partial(work, rig, peer, jobs)) for peer in rig.peers]
    series = rig.interleaved(cases)
    notes = [
        "Ours also with handlers nearer to real ones, on 8 partitions; the bounds are "
        f"{CONCURRENCY * 100:,} jobs/s for the sleep and 1,000 for the CPU.",
        f"Every subject has {CONCURRENCY} jobs in progress at most, RQ one.",
        SLOWER_PEERS_NOTE,
    ]
    return rig.result("B1", TITLE, series, checks(series), notes)


def work(rig: Rig, subject: Subject, jobs: int, partitions: int = 1, kind: str = "no-op") -> Sample:
    """Fill the queue and let one worker process empty it. ``kind`` is a name of `REAL`; peers run no-op jobs only."""
    rig.server.flush()
    count = subject.jobs(jobs)
    size = {"payload": 1024} if kind == "1 KB payload" else {}
    rig.run(subject, "fill", jobs=count, partitions=partitions, **size)
    outcome, redis_cpu = rig.run(subject, "work", jobs=count, concurrency=CONCURRENCY, kind=kind)
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
