"""B3: time from the call that enqueues a job to the start of its handler, in an idle worker of another process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, median_of
from bench.rig import CONCURRENCY, Case, Rig, percentile
from bench.subject import Subject, SubjectError

TITLE = "pick-up latency of an idle worker"
JOBS = 500
PAUSE_SECONDS = 0.02
DEADLINE = 180.0


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = min(rig.scaled(JOBS), JOBS)
    cases = [Case(OURS, f"p{count}", "ms", partial(latency, rig, rig.ours, jobs, count)) for count in (1, 64)]
    cases += [Case(peer.name, "one queue", "ms", partial(latency, rig, peer, jobs)) for peer in rig.peers]
    series = rig.interleaved(cases)
    note = (
        f"{jobs} jobs, one after the other, with pauses of {PAUSE_SECONDS * 500:.0f} to {PAUSE_SECONDS * 1500:.0f} ms."
    )
    return rig.result("B3", TITLE, series, checks(series), [note])


def latency(rig: Rig, subject: Subject, jobs: int, partitions: int = 1) -> dict[str, Sample]:
    """Start a worker, wait until it ran a first job, then enqueue one job after the other."""
    rig.server.flush()
    rig.run(subject, "fill", jobs=1, partitions=partitions)
    parameters = {"url": rig.server.url, "jobs": jobs + 1, "concurrency": CONCURRENCY, "announce": True}
    with subject.start("work", parameters) as worker:
        worker.ready()
        rig.run(subject, "enqueue", jobs=jobs, mode="drip", pause=PAUSE_SECONDS)
        outcome = worker.outcome(DEADLINE)
    rig.noted(subject, "work", outcome)
    if len(outcome.values_ms) != jobs:
        raise SubjectError(f"{subject.name} reported {len(outcome.values_ms)} of {jobs} latencies")
    return {
        name: Sample(value=percentile(outcome.values_ms, share), jobs=jobs)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare with the two limits, for one partition and for 64."""
    found = []
    for case in ("p1", "p64"):
        for part, limit in (("p50", 1.0), ("p99", 5.0)):
            measured = median_of(series, OURS, f"{case} {part}")
            found.append(Check.of(f"{case} {part}, ms", measured, "<=", limit))
    return found
