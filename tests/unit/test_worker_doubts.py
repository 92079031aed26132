"""What a worker says of leases that are gone: lost ones, and those of jobs that somebody has cancelled."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from headrace import Producer
from headrace.handler import Handler
from headrace.job import Job
from headrace.lifecycle import promote
from headrace.stores.base import Settled, Store
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from headrace.withdrawal import cancel_jobs
from headrace.worker.doubts import Doubts
from headrace.worker.leases import Batch, EndReason, Execution, LeaseTable
from headrace.worker.metrics import Metrics, NoMetrics
from headrace.worker.outage import Reachability

AT = PartitionRef("emails", 1, 0)


class Counted(NoMetrics):
    def __init__(self) -> None:
        self.lost = 0

    def leases_lost(self, queue: str, jobs: int) -> None:
        self.lost += jobs


class Box:
    ref = AT


async def runs_of(store: Store, number: int, held_for: float) -> list[Execution]:
    """Leased jobs, as a worker holds them."""
    await promote(store, "emails", 1, 1)
    for n in range(number):
        await Producer(store).enqueue("emails", "send", id=f"job-{n}")
    outbox: Any = Box()
    claim = await store.claim(AT, "w", 1, number, 60_000)
    batch = Batch(outbox, claim.token, 60_000, 20_000, 0, time.monotonic())
    batch.held_until = time.monotonic() + held_for
    handler = Handler("send", lambda ctx, payload: None, is_async=False)
    for job in claim.jobs:
        named = Job(job.key[1:].decode(), "emails", "send", None, 0, 0, 1, 0)
        batch.open[job.key] = Execution(named, batch, Settled(job.key, claim.token), handler, 1000)
    return list(batch.open.values())


def doubts(store: Store, metrics: Metrics) -> tuple[Doubts, list[EndReason]]:
    told: list[EndReason] = []
    return (
        Doubts(
            store,
            Reachability(),
            LeaseTable(),
            metrics,
            lambda batch, runs: None,
            lambda run, reason: told.append(reason),
            lambda: None,
        ),
        told,
    )


async def settle(found: Doubts) -> None:
    while found.checks:
        await asyncio.wait(found.checks)


async def test_J4_a_job_that_was_cancelled_is_told_apart_from_a_lost_lease(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headrace.worker")
    store, metrics = MemoryStore(), Counted()
    runs = await runs_of(store, 2, held_for=60)
    await cancel_jobs(store, "emails", ["job-0"])
    found, _ = doubts(store, metrics)
    found.lose(runs)
    await settle(found)
    assert all(run.lost and run.withdrawn for run in runs)
    assert "1 job(s) that ran are there no more: cancelled, or removed with the queue" in caplog.text
    assert "(first: job-0, type send)" in caplog.text
    assert "the leases of 1 job(s) are lost, their handlers are told to stop (first: job-1, type send)" in caplog.text
    assert metrics.lost == 2


async def test_a_lease_that_has_run_out_is_lost_whatever_became_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headrace.worker")
    store, metrics = MemoryStore(), Counted()
    runs = await runs_of(store, 1, held_for=-1)
    await cancel_jobs(store, "emails", ["job-0"])  # as if another worker had taken it over and ended it
    found, _ = doubts(store, metrics)
    found.lose(runs)
    assert not found.checks
    assert "the leases of 1 job(s) are lost" in caplog.text
    assert metrics.lost == 1


async def test_without_an_answer_a_lease_counts_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(MemoryStore):
        async def statuses(self, ref: PartitionRef, ids: Any) -> Any:
            raise OSError("no answer")

    store, metrics = Silent(), Counted()
    runs = await runs_of(store, 1, held_for=60)
    found, _ = doubts(store, metrics)
    found.lose(runs)
    await settle(found)
    assert metrics.lost == 1
    assert "the leases of 1 job(s) are lost" in caplog.text
