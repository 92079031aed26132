"""B8: store lifecycle: enqueue, promote, lease, renew, complete, one job at a time; memory, Redis p1, Redis p8.

Beside them `bench.ours.plain`, a store in which every command is a round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.ours.steps import LIFECYCLE
from bench.report import OURS, Check, Result, Sample, Series, find
from bench.rig import Case, Rig, per_job

TITLE = "store lifecycle"
PEERS = ()
JOBS = 2000
STORES = {"memory": ("memory", 1), "redis p1": ("redis", 1), "redis p8": ("redis", 8), "plain": ("plain", 1)}


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = min(rig.scaled(JOBS), JOBS)
    cases = [Case(OURS, name, "us", partial(lifecycle, rig, jobs, *store)) for name, store in STORES.items()]
    series = rig.interleaved(cases)
    notes = [
        "One step after the other, each awaited; the millisecond until the job is due is not counted.",
        "plain: a store on plain commands, each a round trip, that is not safe against crashes.",
    ]
    return rig.result("B8", TITLE, series, checks(series), notes)


def lifecycle(rig: Rig, jobs: int, store: str, partitions: int) -> dict[str, Sample]:
    """Take jobs through every step; one sample for each step, and one for the whole."""
    rig.server.flush()
    outcome, redis_cpu = rig.run(rig.ours, "lifecycle", jobs=jobs, store=store, partitions=partitions)
    steps = {step: ms * 1000 for step, ms in zip(LIFECYCLE, outcome.values_ms, strict=True)}
    samples = {step: Sample(value=us, jobs=jobs) for step, us in steps.items()}
    samples["whole"] = Sample(
        value=sum(steps.values()),
        jobs=jobs,
        redis_cpu_us=per_job(redis_cpu, jobs) if store != "memory" else None,
        client_cpu_us=per_job(outcome.cpu_seconds, jobs),
    )
    return samples


def checks(series: Sequence[Series]) -> list[Check]:
    """Eight partitions cost at most a fifth more than one."""
    one, eight = find(series, OURS, "redis p1 whole"), find(series, OURS, "redis p8 whole")
    value = eight.median / one.median if one and eight else None
    return [Check.of("time of a life, p8 / p1", value, "<=", 1.2)]
