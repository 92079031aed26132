"""Outboxes come and go with the partitions, and the end of a worker waits for senders only."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from headrace import Context, StoreUnavailable
from headrace.errors import StoreRefused
from headrace.handler import Handler
from headrace.job import Job
from headrace.stores.base import Settled, Success
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from headrace.worker.failures import FailureLog
from headrace.worker.leases import Batch, Execution, LeaseTable
from headrace.worker.metrics import NoMetrics
from headrace.worker.outage import Reachability
from headrace.worker.policies import Policies
from headrace.worker.results import Results
from headrace.worker.settings import WorkerSettings
from headrace.worker.settlements import Settlements


class Confirming(MemoryStore):
    """Confirms every acknowledgement, when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled], successes: Sequence[Success] = ()) -> list[int]:
        await self.may.wait()
        return []


class Losses(NoMetrics):
    """Notes how many leases were lost, call by call."""

    def __init__(self) -> None:
        self.lost: list[int] = []

    def leases_lost(self, queue: str, jobs: int) -> None:
        self.lost.append(jobs)


class Scene:
    def __init__(self) -> None:
        self.store, self.leases, self.metrics = Confirming(), LeaseTable(), Losses()
        self.settlements = Settlements(
            self.store, self.leases, Reachability(), self.metrics, FailureLog(), Results(Policies(WorkerSettings()))
        )

    def leased(self, partition: int) -> Execution:
        """A leased job of a partition, its run not yet ended."""
        ref = PartitionRef("emails", 1, partition)
        batch = Batch(self.settlements.outbox(ref), b"w:1", 60_000, 20_000, 0, 0.0)
        job = Job("a", ref.queue, "send", None, 0, 0, ref.version, ref.partition)
        execution = Execution(job, batch, Settled(b"1a", b"w:1"), HANDLER, 1000)
        batch.open[execution.settled.key] = execution
        self.leases.add(batch)
        return execution


def _send(ctx: Context, payload: Any) -> None: ...


HANDLER = Handler("send", _send, is_async=False)


async def test_outboxes_of_partitions_without_jobs_are_not_kept() -> None:
    scene = Scene()
    for partition in range(1000):
        scene.settlements.outbox(PartitionRef("emails", 1, partition))
    execution = scene.leased(0)
    gc.collect()
    assert len(scene.settlements._outboxes) == 1
    assert scene.settlements.outbox(execution.batch.ref) is execution.batch.outbox
    scene.settlements.succeeded(execution)
    scene.store.may.set()
    assert await scene.settlements.drain(20) == 0
    del execution
    gc.collect()
    assert len(scene.settlements._outboxes) == 0


async def test_the_end_waits_for_what_is_sent_and_not_for_jobs_without_a_result() -> None:
    scene = Scene()
    ended, abandoned = scene.leased(0), scene.leased(1)
    scene.settlements.succeeded(ended)
    async with asyncio.timeout(20):
        draining = asyncio.create_task(scene.settlements.drain(3600))
        await asyncio.sleep(0)
        scene.store.may.set()
        assert await draining == 0
    assert scene.leases.held == 1
    assert abandoned.batch.open


async def test_results_without_an_answer_are_counted_at_the_end() -> None:
    scene = Scene()
    executions = [scene.leased(partition) for partition in range(3)]
    for execution in executions:
        scene.settlements.succeeded(execution)
    assert await scene.settlements.drain(0.05) == 3


@pytest.mark.parametrize(("error", "lost"), [(StoreRefused("loading"), [1]), (StoreUnavailable("no answer"), [])])
async def test_M20_a_result_that_is_refused_after_a_call_that_was_not_applied_is_a_lost_lease(
    error: StoreUnavailable, lost: list[int]
) -> None:
    """After one that may have been applied it is not: the first try may have ended the job."""
    scene = Scene()
    answers: list[StoreUnavailable | None] = [error, None]

    async def ack(ref: PartitionRef, acks: Sequence[Settled], successes: Sequence[Success] = ()) -> list[int]:
        if (answer := answers.pop(0)) is not None:
            raise answer
        return [0]

    scene.store.ack = ack  # type: ignore[method-assign]
    scene.settlements.succeeded(scene.leased(0))
    assert await scene.settlements.drain(20) == 0
    assert scene.metrics.lost == lost
