"""B2: jobs enqueued per second by one process: in bulk (500 a call), one by one, and by 50 concurrent callers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, find, ratio
from bench.rig import Case, Rig, throughput
from bench.subject import Subject

TITLE = "enqueue"
BULK = 500
CALLERS = 50
JOBS = {"bulk": 100_000, "concurrent": 50_000, "single": 10_000}


def run(rig: Rig) -> Result:
    """Measure and compare."""
    cases = []
    for mode in JOBS:
        for partitions in (1, 8):
            name = mode if partitions == 1 else f"{mode} p{partitions}"
            cases.append(Case(OURS, name, "jobs/s", partial(enqueue, rig, rig.ours, mode, partitions)))
        cases += [Case(peer.name, mode, "jobs/s", partial(enqueue, rig, peer, mode)) for peer in rig.peers]
    series = rig.interleaved(cases)
    notes = [
        f"bulk: {BULK} jobs a call; a peer without a bulk call has no such line. concurrent: {CALLERS} callers at a "
        "time in one process. single: one caller that awaits each reply.",
        "Without p8 our queue has one partition, as the queues of the peers have.",
    ]
    return rig.result("B2", TITLE, series, checks(series), notes)


def enqueue(rig: Rig, subject: Subject, mode: str, partitions: int = 1) -> Sample:
    """Enqueue on an empty server. Raises Unsupported if the subject has no such call."""
    rig.server.flush()
    jobs = subject.jobs(min(rig.scaled(JOBS[mode]), JOBS[mode]))
    outcome, redis_cpu = rig.run(
        subject, "enqueue", jobs=jobs, mode=mode, bulk=BULK, callers=CALLERS, partitions=partitions
    )
    return throughput(outcome, redis_cpu)


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare our one partition with each peer's one queue."""

    def against(peer: str, mode: str) -> float | None:
        return ratio(find(series, OURS, mode), find(series, peer, mode))

    return [
        Check.of("bulk: headrace / bullmq addBulk", against("bullmq", "bulk"), ">=", 3.5),
        Check.of("concurrent: headrace / asynq", against("asynq", "concurrent"), ">=", 1.0),
        Check.of("single: headrace / asynq", against("asynq", "single"), ">=", 1.0, binding=False),
    ]
