"""B8: store lifecycle: enqueue, promote, lease, renew, complete, one job at a time; memory, Redis p1, Redis p8.

Beside them, as a peer, `bench.ours.plain`: a store in which every command is a round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bench.ours.steps import LIFECYCLE
from bench.report import OURS, Check, Result, Sample, Series, find, ratio
from bench.rig import Case, Rig, per_job
from bench.subject import Subject

TITLE = "store lifecycle"
PEERS = ()
JOBS = 400
"""Of one store and round. Most of a job's 4 ms is the wait until it is due: five rounds of all stores take a minute."""
STORES = {"memory": ("memory", 1), "redis p1": ("redis", 1), "redis p8": ("redis", 8)}
PLAIN = "plain commands"


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = rig.scaled(JOBS)
    cases = [Case(OURS, name, "us", partial(lifecycle, rig, rig.ours, jobs, *store)) for name, store in STORES.items()]
    if not rig.alone:
        plain = replace(rig.ours, name=PLAIN)
        cases.append(Case(PLAIN, "redis", "us", partial(lifecycle, rig, plain, jobs, "plain", 1)))
    series = rig.interleaved(cases)
    notes = [
        "One step after the other, each awaited; of each step the median over the jobs of a round. The time until a "
        "job is due is not counted.",
        f"{PLAIN}: a store without scripts, each command a round trip, that is not safe against crashes.",
    ]
    return rig.result("B8", TITLE, series, checks(series), notes)


def lifecycle(rig: Rig, subject: Subject, jobs: int, store: str, partitions: int) -> dict[str, Sample]:
    """Take jobs through every step; one sample for each step, and one for the whole."""
    rig.server.flush()
    outcome, redis_cpu = rig.run(subject, "lifecycle", jobs=jobs, store=store, partitions=partitions)
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
    """Eight partitions cost at most a fifth more than one, in a whole life and in each step of it."""
    found = []
    for step in ("whole", *LIFECYCLE):
        value = ratio(find(series, OURS, f"redis p8 {step}"), find(series, OURS, f"redis p1 {step}"))
        found.append(Check.of(f"{step}, p8 / p1", value, "<=", 1.2))
    return found
