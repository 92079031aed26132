"""B9: worker throughput on the library's stores: memory, Redis p1, Redis p8."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.b1_worker_throughput import work
from bench.report import OURS, Check, Result, Sample, Series, find, ratio
from bench.rig import CONCURRENCY, Case, Rig, throughput

TITLE = "worker throughput by store"
PEERS = ()
JOBS = 100_000


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = rig.scaled(JOBS)
    cases = [Case(OURS, "memory", "jobs/s", partial(in_memory, rig, jobs))]
    cases += [Case(OURS, f"redis p{count}", "jobs/s", partial(work, rig, rig.ours, jobs, count)) for count in (1, 8)]
    series = rig.interleaved(cases)
    return rig.result("B9", TITLE, series, checks(series), ["As B1, ours only."])


def in_memory(rig: Rig, jobs: int) -> Sample:
    """Fill a store in the worker's own process and empty it."""
    outcome, _ = rig.run(rig.ours, "work", jobs=jobs, concurrency=CONCURRENCY, store="memory")
    return throughput(outcome, None)


def checks(series: Sequence[Series]) -> list[Check]:
    """Eight partitions are not slower than one."""
    value = ratio(find(series, OURS, "redis p8"), find(series, OURS, "redis p1"))
    return [Check.of("throughput, p8 / p1", value, ">=", 1.0)]
