"""B4: how late delayed jobs start, with a million more scheduled, at a thousand due per second."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, median_of
from bench.rig import CONCURRENCY, Case, Rig, per_job, percentile

TITLE = "lateness of delayed jobs"
PEERS = ()
SCHEDULED = 1_000_000
DUE_PER_SECOND = 1000
SECONDS = 10.0
FAR_SECONDS = 86_400
AHEAD_SECONDS = 5.0


def run(rig: Rig) -> Result:
    """Measure. ``--jobs`` sets how many more are scheduled."""
    scheduled = rig.scaled(SCHEDULED)
    cases = [Case(OURS, f"p{count}", "ms", partial(lateness, rig, scheduled, count)) for count in (1, 8)]
    series = rig.interleaved(cases)
    note = f"{scheduled:,} jobs scheduled a day ahead; {DUE_PER_SECOND} due per second for {SECONDS:.0f} s."
    return rig.result("B4", TITLE, series, checks(series), [note, "Against run_at, by the clock of the machine."])


def lateness(rig: Rig, scheduled: int, partitions: int) -> dict[str, Sample]:
    """Schedule far jobs and near ones, and let a worker run the near ones."""
    rig.server.flush()
    rig.run(rig.ours, "fill", jobs=scheduled, partitions=partitions, delay=FAR_SECONDS)
    jobs = round(DUE_PER_SECOND * SECONDS)
    parameters = {"url": rig.server.url, "jobs": jobs, "concurrency": CONCURRENCY}
    with rig.ours.start("lateness", parameters) as worker:
        worker.ready()
        before = rig.server.main_thread_cpu()
        rig.run(rig.ours, "schedule", jobs=jobs, after=AHEAD_SECONDS, span=SECONDS)
        outcome = worker.outcome()
        redis_cpu = rig.server.main_thread_cpu() - before
    rig.noted(rig.ours, "lateness", outcome)
    facts = {
        "jobs": jobs,
        "redis_cpu_us": per_job(redis_cpu, jobs),
        "client_cpu_us": per_job(outcome.cpu_seconds, jobs),
    }
    return {
        name: Sample.model_validate({"value": percentile(outcome.values_ms, share), **facts})
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare the 99th percentile with the limit."""
    found = []
    for case in ("p1", "p8"):
        measured = median_of(series, OURS, f"{case} p99")
        found.append(Check.of(f"{case} p99, ms", measured, "<=", 10.0))
    return found
