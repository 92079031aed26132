"""B11: repartition a queue from 4 to 64 partitions by its Queue, under a steady load."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from bench.operator_rig import OperatorRig, is_ready, operator_rig
from bench.report import OURS, Check, Result, Sample, Series, find
from bench.rig import Case, Rig, say
from bench.subject import ROOT
from bench.timed_app import DONE, JOB_SECONDS
from headrace.producer import JobSpec, Producer
from headrace.stores import Store, open_store
from headrace.topology import Topology

TITLE = "repartition 4 -> 64 under load"
PEERS = ()
JOBS = 60_000
RATE = 2000
WORKERS, CONCURRENCY = 2, 800
BEFORE, AFTER = 4, 64
BATCH_SECONDS = 0.05
DEADLINE = 300.0


def run(rig: Rig) -> Result:
    """Measure and compare."""
    rate = int(rig.options.get("rate", RATE))
    jobs = rig.scaled(JOBS)
    with operator_rig() as operator:
        operator.operator.start()
        operator.wait_for(lambda: operator.total("headrace_operator_is_leader") == 1, 60, "the operator works")
        cases = [Case(OURS, "", "", partial(repartition, rig, operator, jobs, rate))]
        series = rig.interleaved(cases)
    notes = [
        f"{jobs:,} jobs at {rate:,}/s, each of {JOB_SECONDS:g} s, by {WORKERS} worker processes of {CONCURRENCY} slots "
        f"each; after a third of them the Queue asks for version 2 with {AFTER} partitions.",
        "dip: the slowest second after the change against the mean of the seconds before it.",
        "old version gone: from the promotion until version 1 has left the topology. Producers may send a call again "
        "for 5 s, so it cannot be less.",
    ]
    return rig.result("B11", TITLE, series, checks(series), notes)


def repartition(rig: Rig, operator: OperatorRig, jobs: int, rate: int) -> dict[str, Sample]:
    """One queue, from its creation until all jobs have run and version 1 is gone."""
    rig.server.flush()
    name = f"live-{time.monotonic_ns()}"
    operator.create_queues([name], {"version": 1, "partitions": BEFORE, "connection": {"url": rig.server.url}})
    operator.wait_for(lambda: is_ready(operator.queue(name)), 60, f"{name} Ready")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for number in range(WORKERS):
            stack.enter_context(worker(rig.server.url, name, folder / f"worker-{number}.log"))
        promoted, gone = asyncio.run(load(rig, operator, name, jobs, rate))
    runs = [line.decode().split() for line in cast("list[bytes]", rig.server.client.lrange(DONE, 0, -1))]
    times = Counter(job for job, _ in runs)
    before, dip = throughput_dip([int(ms) for _, ms in runs], promoted)
    operator.delete_queues()
    return {
        "lost, jobs": Sample(value=jobs - len(times), jobs=jobs),
        "doubled, jobs": Sample(value=sum(count - 1 for count in times.values()), jobs=jobs),
        "before, jobs/s": Sample(value=before, jobs=jobs),
        "dip, %": Sample(value=dip, jobs=jobs),
        "old version gone, s": Sample(value=gone, jobs=jobs),
    }


@contextmanager
def worker(url: str, queue: str, log: Path) -> Iterator[None]:
    """A worker process; it is ended in order."""
    environment = dict(os.environ) | {
        "HEADRACE_REDIS_URL": url,
        "HEADRACE_QUEUES": queue,
        "HEADRACE_CONCURRENCY": str(CONCURRENCY),
    }
    command: list[str | Path] = [Path(sys.executable).with_name("headrace"), "worker", "run", "bench.timed_app:app"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def load(rig: Rig, operator: OperatorRig, name: str, jobs: int, rate: int) -> tuple[int, float]:
    """Send all jobs at ``rate`` and bump the Queue on the way.

    Returns the milliseconds of the monotonic clock at the promotion, and the seconds from it until version 1 was gone.
    """
    store = open_store(rig.server.url)
    producer = Producer(store.clone())
    promoted = asyncio.create_task(seen(rig.server.url, name, lambda topology: topology.active == 2))
    # Watched from the beginning: the jobs are still being sent when the version goes.
    left = asyncio.create_task(seen(rig.server.url, name, lambda topology: 1 not in topology.versions))
    try:
        await at_work(store, name)
        sent, began, bumped = 0, time.monotonic(), False
        while sent < jobs:
            wanted = min(jobs, int((time.monotonic() - began + BATCH_SECONDS) * rate))
            if wanted > sent:
                await producer.enqueue_many(name, [JobSpec("timed", None, id=f"j{n}") for n in range(sent, wanted)])
                sent = wanted
            if not bumped and sent >= jobs // 3:
                bumped = True
                await asyncio.to_thread(operator.patch, name, version=2, partitions=AFTER)
                say("    asked for version 2")
            await asyncio.sleep(BATCH_SECONDS)
        at, gone = await promoted, await left
        while await asyncio.to_thread(rig.server.client.llen, DONE) < jobs:
            await asyncio.sleep(0.2)
            if time.monotonic() - began > DEADLINE:
                break  # what is lost is counted
        return at, (gone - at) / 1000
    finally:
        promoted.cancel()
        left.cancel()
        await producer.aclose()
        await store.close()


async def at_work(store: Store, name: str) -> None:
    """Wait until all workers have said that they are there: what waits for them is no load."""
    end = time.monotonic() + DEADLINE
    while len(await store.workers(name)) < WORKERS:
        if time.monotonic() > end:
            raise TimeoutError(f"the workers of {name} did not start within {DEADLINE:g} s")
        await asyncio.sleep(0.1)


async def seen(url: str, name: str, holds: Callable[[Topology], bool]) -> int:
    """Return when a topology was seen of which something holds, in milliseconds of the monotonic clock."""
    store = open_store(url)
    try:
        while True:
            topology: Topology | None = await store.read_topology(name)
            if topology is not None and holds(topology):
                return time.monotonic_ns() // 1_000_000
            await asyncio.sleep(0.02)
    finally:
        await store.close()


def throughput_dip(ends: Sequence[int], changed: int) -> tuple[float, float]:
    """Return the mean jobs per second before a change, and by how many percent the slowest second after it is below.

    ``ends`` and ``changed`` in milliseconds. The first and the last second of the run do not count: there it begins and
    ends.
    """
    first, last = min(ends) + 1000, max(ends) - 1000
    seconds = Counter((end - changed) // 1000 for end in ends if first <= end < last)
    before = [count for second, count in seconds.items() if second < 0][1:-1] or [0]
    after = [seconds[second] for second in range(max(seconds, default=0))] or [0]
    mean = sum(before) / len(before)
    return mean, 100 * (1 - min(after) / mean) if mean else 100.0


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare with the targets."""

    def value(case: str) -> float | None:
        found = find(series, OURS, case)
        return found.median if found else None

    return [
        Check.of("lost, jobs", value("lost, jobs"), "<=", 0),
        Check.of("doubled, jobs", value("doubled, jobs"), "<=", 0),
        Check.of("dip, %", value("dip, %"), "<=", 10),
        Check.of("old version gone, s", value("old version gone, s"), "<=", 5 + JOB_SECONDS),
    ]
