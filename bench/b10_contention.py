"""B10: total throughput of 1, 2, 4 and 8 worker processes on one queue, and bursts of a producer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, find
from bench.rig import CONCURRENCY, Case, Rig, per_job
from bench.server import unfinished
from bench.subject import SubjectError

TITLE = "contention and bursts"
PEERS = ()
JOBS = 100_000
BURST = 10_000
PARTITIONS = 8
PROCESSES = (1, 2, 4, 8)
BATCHES = (1, 64)
POLL_SECONDS = 0.005
DEADLINE = 300.0


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs, burst = rig.scaled(JOBS), min(rig.scaled(BURST), BURST)
    cases = [Case(OURS, f"workers {count}", "jobs/s", partial(contention, rig, jobs, count)) for count in PROCESSES]
    cases += [Case(OURS, f"burst, batch {batch}", "jobs/s", partial(bursts, rig, burst, batch)) for batch in BATCHES]
    series = rig.interleaved(cases)
    notes = [
        f"{PARTITIONS} partitions; from the first handler of any process until nothing is left.",
        f"burst: {burst:,} jobs from one producer to one idle worker; batch 1 is one caller that awaits each reply.",
        "All processes and the server share the cores of this machine.",
    ]
    return rig.result("B10", TITLE, series, checks(series), notes)


def contention(rig: Rig, jobs: int, processes: int) -> Sample:
    """Fill the queue, let all processes begin together, and wait until it is empty."""
    rig.server.flush()
    rig.run(rig.ours, "fill", jobs=jobs, partitions=PARTITIONS)
    parameters = {"url": rig.server.url, "concurrency": CONCURRENCY}
    with ExitStack() as stack:
        workers = [stack.enter_context(rig.ours.start("attend", parameters)) for _ in range(processes)]
        for worker in workers:
            worker.ready()
        before = rig.server.main_thread_cpu()
        for worker in workers:
            worker.go_on()
        last = emptied(rig)
        redis_cpu = rig.server.main_thread_cpu() - before
        for worker in workers:
            worker.go_on()
        outcomes = [worker.outcome() for worker in workers]
    rig.noted(rig.ours, "attend", outcomes[0])
    ran = sum(outcome.jobs for outcome in outcomes)
    if ran != jobs:
        raise SubjectError(f"{ran} runs of {jobs} jobs")
    seconds = last - min(outcome.first for outcome in outcomes if outcome.jobs)
    return Sample(
        value=jobs / seconds,
        jobs=jobs,
        seconds=seconds,
        redis_cpu_us=per_job(redis_cpu, jobs),
        client_cpu_us=per_job(sum(outcome.cpu_seconds for outcome in outcomes), jobs),
    )


def bursts(rig: Rig, jobs: int, batch: int) -> Sample:
    """Let one producer enqueue a burst to an idle worker, and wait until it is done."""
    rig.server.flush()
    parameters = {
        "url": rig.server.url,
        "concurrency": CONCURRENCY,
        "partitions": PARTITIONS,
        "at_once": True,
    }
    with rig.ours.start("attend", parameters) as worker:
        worker.ready()
        mode = "single" if batch == 1 else "bulk"
        produced, redis_cpu = rig.run(rig.ours, "enqueue", jobs=jobs, mode=mode, bulk=batch)
        last = emptied(rig)
        worker.go_on()
        outcome = worker.outcome()
    if outcome.jobs != jobs:
        raise SubjectError(f"{outcome.jobs} runs of {jobs} jobs")
    seconds = last - outcome.first
    return Sample(
        value=jobs / seconds,
        jobs=jobs,
        seconds=seconds,
        redis_cpu_us=per_job(redis_cpu, jobs),
        client_cpu_us=per_job(outcome.cpu_seconds + produced.cpu_seconds, jobs),
    )


def emptied(rig: Rig) -> float:
    """Wait until the queue holds no job; return the time on the monotonic clock."""
    deadline = time.monotonic() + DEADLINE
    while unfinished(rig.server.client):
        if time.monotonic() > deadline:
            raise SubjectError(f"jobs are left after {DEADLINE:.0f} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic()


def checks(series: Sequence[Series]) -> list[Check]:
    """More processes lose at most a tenth of what the best smaller number does together."""
    found = []
    best = find(series, OURS, "workers 1")
    for count in PROCESSES[1:]:
        measured = find(series, OURS, f"workers {count}")
        value = measured.median / best.median if measured and best else None
        found.append(Check.of(f"total of {count} workers / best of fewer", value, ">=", 0.9))
        if measured and best and measured.median > best.median:
            best = measured
    return found
