"""B6: CPU of the server's main thread per job (enqueue, claim and acknowledgement), by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, median_of
from bench.rig import CONCURRENCY, Case, Rig, per_job
from bench.subject import Subject

TITLE = "Redis CPU per job"
JOBS = 50_000
BATCHES = (1, 8, 64, 256)
CALLERS = 16
LIMIT_US = 12.0
WHOLE = "enqueue and work"


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = rig.scaled(JOBS)
    cases = [Case(OURS, "batch 1, one caller", "us/job", partial(cycle, rig, jobs // 5, 1, 1))]
    cases += [
        Case(OURS, f"batch {batch}", "us/job", partial(cycle, rig, jobs, batch, max(1, min(CALLERS, 256 // batch))))
        for batch in BATCHES
    ]
    cases += [
        Case(subject.name, WHOLE, "us/job", partial(whole, rig, subject, jobs)) for subject in (rig.ours, *rig.peers)
    ]
    series = rig.interleaved(cases)
    notes = [
        f"batch 1 and 8: {CALLERS} callers, whose calls travel as pipelines.",
        f"{WHOLE}: by the fastest way there is, then one worker with {CONCURRENCY} jobs in progress; Redis's CPU "
        "over both processes, from their start to their end.",
    ]
    return rig.result("B6", TITLE, series, checks(series), notes)


def cycle(rig: Rig, jobs: int, batch: int, callers: int) -> Sample:
    """Move jobs through our store in batches."""
    rig.server.flush()
    outcome, redis_cpu = rig.run(rig.ours, "cycle", jobs=jobs, batch=batch, callers=callers)
    cost = per_job(redis_cpu, outcome.jobs)
    return Sample(
        value=cost,
        jobs=outcome.jobs,
        seconds=outcome.seconds,
        redis_cpu_us=cost,
        client_cpu_us=per_job(outcome.cpu_seconds, outcome.jobs),
    )


def whole(rig: Rig, subject: Subject, jobs: int) -> Sample:
    """Enqueue with a producer and let a worker of another process empty the queue."""
    rig.server.flush()
    count = subject.jobs(jobs)
    enqueued, enqueueing = rig.run(subject, "fill", jobs=count)
    outcome, working = rig.run(subject, "work", jobs=count, concurrency=CONCURRENCY)
    cost = per_job(enqueueing + working, count)
    return Sample(
        value=cost,
        jobs=count,
        seconds=outcome.seconds,
        redis_cpu_us=cost,
        client_cpu_us=per_job(enqueued.cpu_seconds + outcome.cpu_seconds, count),
    )


def checks(series: Sequence[Series]) -> list[Check]:
    """Batches of eight and more stay under the limit; batch one is reported."""
    found = []
    for batch in BATCHES:
        measured = median_of(series, OURS, f"batch {batch}")
        found.append(Check.of(f"batch {batch}, us/job", measured, "<=", LIMIT_US, binding=batch >= 8))
    return found
