"""B13: the operator with a thousand Queues of three versions each: starts, memory, idle cost, apply to Ready."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from functools import partial

from bench.operator_rig import OperatorRig, is_ready, operator_rig
from bench.report import OURS, Check, Result, Sample, Series, find
from bench.rig import Case, Rig, percentile, say
from headrace.lifecycle import promote
from headrace.producer import JobSpec, Producer
from headrace.stores import open_store

TITLE = "the operator with many Queues"
PEERS = ()
QUEUES = 1000
VERSIONS, PARTITIONS = 3, 4
IDLE_SECONDS = 60.0
CALM_SECONDS, SETTLING_SECONDS = 5.0, 180.0
APPLIES = 100
DEADLINE = 1200.0
MIB = 1 << 20


def run(rig: Rig) -> Result:
    """Measure and compare. ``--jobs`` is the number of Queues."""
    count = min(rig.scaled(QUEUES), QUEUES)
    idle = float(rig.options.get("seconds", IDLE_SECONDS))
    names = [f"queue-{number:04}" for number in range(count)]
    rig.server.flush()
    asyncio.run(seed(rig.server.url, names))
    with operator_rig() as operator:
        created = create(operator, rig.server.url, count)
        prepare(operator, rig.server.url, names)
        cases = [Case(OURS, "start", "s", partial(start, operator, count))]
        cases.append(Case(OURS, "idle", "", partial(idling, operator, idle)))
        cases.append(Case(OURS, "apply to Ready", "s", partial(applying, operator, names)))
        series = rig.interleaved(cases)
    series.insert(0, Series.of(OURS, "all created at once", "s", [created]))
    notes = [
        f"{count:,} Queues of {VERSIONS} versions x {PARTITIONS} partitions, two of which drain for a week; each with "
        "a worker Deployment of no Pods.",
        "all created at once: as many Queues of one version, without workers, until every one is Ready; once.",
        f"start: of an operator that finds everything as it should be, until it has looked at all. idle: {idle:g} s.",
        "One API server, etcd, controller manager, Redis and operator share the cores of this machine.",
    ]
    return rig.result("B13", TITLE, series, checks(series), notes)


async def seed(url: str, names: Sequence[str]) -> None:
    """Make every queue in Redis, with a job due in a week in each of the older versions."""
    store = open_store(url)
    producer = Producer(store.clone())
    try:
        for name in names:
            for version in range(1, VERSIONS + 1):
                await promote(store, name, version, PARTITIONS)
                if version < VERSIONS:
                    await producer.enqueue_many(name, [JobSpec("later", None, delay=7 * 86_400)])
    finally:
        await producer.aclose()
        await store.close()


def create(operator: OperatorRig, url: str, count: int) -> Sample:
    """Create all Queues at once under an operator that has nothing else to do, and wait until every one is Ready."""
    operator.operator.start()
    operator.wait_for(lambda: operator.total("headrace_operator_is_leader") == 1, DEADLINE, "the operator works")
    began = time.monotonic()
    spec = {"version": 1, "partitions": PARTITIONS, "connection": {"url": url}}
    operator.create_queues([f"plain-{number:04}" for number in range(count)], spec)
    operator.wait_for(lambda: operator.ready() == count, DEADLINE, "all Queues Ready")
    seconds = time.monotonic() - began
    operator.delete_queues()
    return Sample(value=seconds, jobs=count)


def prepare(operator: OperatorRig, url: str, names: list[str]) -> None:
    """Create the Queues that stay, and wait until every one is Ready."""
    spec = {
        "version": VERSIONS,
        "partitions": PARTITIONS,
        "connection": {"url": url},
        "workers": {"image": "worker", "app": "bench:app"},
        "scaling": {"mode": "Manual", "replicas": 0},
    }
    operator.create_queues(names, spec)
    say(f"    {len(names)} Queues are there")
    operator.wait_for(lambda: operator.ready() == len(names), DEADLINE, "all Queues Ready")


def start(operator: OperatorRig, count: int) -> Sample:
    """Start the operator anew, until it has looked at every Queue."""
    operator.operator.stop()
    operator.operator.start()

    def looked_at_all() -> bool:
        passes = operator.total("headrace_operator_reconcile_duration_seconds_count", ("outcome", "settled"))
        return operator.total("headrace_operator_queues") == count and passes >= count

    return Sample(value=operator.wait_for(looked_at_all, DEADLINE, "all Queues looked at"), jobs=count)


def idling(operator: OperatorRig, seconds: float) -> dict[str, Sample]:
    """Let it alone: memory, share of a core, writes to the API server."""
    settled(operator)
    cpu, writes, began = operator.cpu_seconds(), operator.writes(), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {
        "CPU, % of a core": Sample(value=100 * (operator.cpu_seconds() - cpu) / passed, jobs=1),
        "API writes/s": Sample(value=(operator.writes() - writes) / passed, jobs=1),
        "memory, MiB": Sample(value=operator.memory_bytes() / MIB, jobs=1),
    }


def settled(operator: OperatorRig) -> None:
    """Wait until what the start has set off has ended: nothing is written for a while."""
    writes, since = operator.writes(), time.monotonic()
    end = since + SETTLING_SECONDS
    while time.monotonic() - since < CALM_SECONDS and time.monotonic() < end:
        time.sleep(0.5)
        if (now := operator.writes()) != writes:
            writes, since = now, time.monotonic()


def applying(operator: OperatorRig, names: list[str]) -> dict[str, Sample]:
    """Change one Queue after the other, each until it is Ready again."""
    chosen = random.Random(13).sample(names, min(APPLIES, len(names)))
    seconds = []
    for name in chosen:
        lease = operator.queue(name)["spec"].get("leaseSeconds", 30)
        operator.patch(name, leaseSeconds=lease + 1)
        began = time.monotonic()
        operator.wait_for(lambda name=name: is_ready(operator.queue(name)), 60, f"{name} Ready")  # type: ignore[misc]
        seconds.append(time.monotonic() - began)
    return {
        "p50": Sample(value=percentile(seconds, 0.5), jobs=len(chosen)),
        "p99": Sample(value=percentile(seconds, 0.99), jobs=len(chosen)),
    }


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare with the targets."""

    def value(case: str) -> float | None:
        found = find(series, OURS, case)
        return found.median if found else None

    return [
        Check.of("all created at once, s", value("all created at once"), "<=", 120),
        Check.of("start, s", value("start"), "<=", 60),
        Check.of("idle memory, MiB", value("idle memory, MiB"), "<=", 200),
        Check.of("idle CPU, % of a core", value("idle CPU, % of a core"), "<=", 5),
        Check.of("idle API writes/s", value("idle API writes/s"), "<=", 1),
        Check.of("apply to Ready p99, s", value("apply to Ready p99"), "<=", 2),
    ]
