"""B4: how late delayed jobs start, with a million more scheduled, at a thousand due per second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, median_of
from bench.rig import CONCURRENCY, Case, Rig, per_job, percentile
from bench.subject import Subject, SubjectError
from bench.undisturbed import disturbances, undisturbed

TITLE = "lateness of delayed jobs"
SCHEDULED = 1_000_000
DUE_PER_SECOND = 1000
SECONDS = 10.0
FAR_SECONDS = 86_400
AHEAD_SECONDS = 5.0
GRACE_SECONDS = 60.0
"""How long after the last due time the last job may start; who takes longer is reported as missing."""
SHARES = {"dramatiq": 0.02, "saq": 0.02, "streaq": 0.03, "arq": 0.02, "rq": 0.02, "celery": 0.02}
"""Smaller than elsewhere: jobs that are scheduled one call at a time would take longer than all else."""


def run(rig: Rig) -> Result:
    """Measure and compare. ``--jobs`` sets how many more are scheduled.

    Options: ``due`` per second (default 1000), ``seconds`` for which jobs become due (default 10), and those of
    `bench.undisturbed`.
    """
    scheduled = rig.scaled(SCHEDULED)
    due, seconds = int(rig.options.get("due", DUE_PER_SECOND)), float(rig.options.get("seconds", SECONDS))
    measure = partial(lateness, rig, scheduled=scheduled, jobs=round(due * seconds), seconds=seconds)
    peers = [replace(peer, share=SHARES.get(peer.name, peer.share)) for peer in rig.peers]
    cases = [Case(OURS, f"p{count}", "ms", partial(measure, rig.ours, partitions=count)) for count in (1, 8)]
    cases += [Case(peer.name, "one queue", "ms", partial(measure, peer)) for peer in peers]
    told = disturbances(rig)
    series = rig.interleaved(cases)
    measured = {one.subject for one in series}
    shares = ", ".join(f"{peer.name} {peer.share:g}" for peer in peers if peer.name in measured and peer.share < 1)
    notes = [
        f"{scheduled:,} jobs scheduled a day ahead; {due:,} due per second for {seconds:g} s.",
        "From the ms in which a job is due to the start of its handler, in one worker of another process. Who rounds "
        "due times starts jobs before them: a negative lateness, of which the minimum is shown.",
        *told,
    ]
    if shares:
        notes.append(f"Of both the jobs ahead and those due per second, slow peers have a share: {shares}.")
    return rig.result("B4", TITLE, series, checks(series), notes)


def lateness(
    rig: Rig, subject: Subject, *, scheduled: int, jobs: int, seconds: float, partitions: int = 1
) -> dict[str, Sample]:
    """Schedule the far jobs, start a worker, wait until it ran a first job, then schedule the near ones.

    A subject gets its share of ``scheduled`` far jobs and of ``jobs`` near ones.
    """
    rig.server.flush()
    rig.run(subject, "fill", jobs=subject.jobs(scheduled), partitions=partitions, delay=FAR_SECONDS)
    rig.run(subject, "fill", jobs=1, partitions=partitions)
    jobs = subject.jobs(jobs)
    parameters = {
        "url": rig.server.url,
        "jobs": jobs + 1,
        "concurrency": CONCURRENCY,
        "announce": True,
        "leave": True,
    }
    with subject.start("work", parameters) as worker:
        worker.ready()
        with undisturbed(rig, worker):
            before = rig.server.main_thread_cpu()
            rig.run(subject, "schedule", jobs=jobs, after=AHEAD_SECONDS, span=seconds)
            outcome = worker.outcome(AHEAD_SECONDS + seconds + GRACE_SECONDS)
            redis_cpu = rig.server.main_thread_cpu() - before
    rig.noted(subject, "work", outcome)
    if len(outcome.values_ms) != jobs:
        raise SubjectError(f"{subject.name} reported {len(outcome.values_ms)} of {jobs} times")
    facts = {
        "jobs": jobs,
        "redis_cpu_us": per_job(redis_cpu, jobs),
        "client_cpu_us": per_job(outcome.cpu_seconds, jobs),
    }
    parts = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    if min(outcome.values_ms) < 0:
        parts = {"min": 0.0, **parts}
    return {
        name: Sample.model_validate({"value": percentile(outcome.values_ms, share), **facts})
        for name, share in parts.items()
    }


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare our 99th percentile with the limit."""
    found = []
    for case in ("p1", "p8"):
        measured = median_of(series, OURS, f"{case} p99")
        found.append(Check.of(f"{case} p99, ms", measured, "<=", 10.0))
    return found
