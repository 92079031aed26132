"""What the log says of workers that have lost jobs: who, where, how long silent, and the likely cause."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from headrace.errors import StoreUnavailable
from headrace.ids import encode_id
from headrace.stores.base import Beat, Lost, WorkerEntry
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from headrace.worker.failures import FailureLog
from headrace.worker.lost_jobs import LostJobs, likely_cause, place_of
from headrace.worker.metrics import NoMetrics

REF = PartitionRef("emails", 1, 0)
NOW = 1_000_000
BEAT = Beat("host-1", 17, "emails-abc", "node-1", 16, 3)


class Registry(MemoryStore):
    """Answers what the test gives."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[WorkerEntry] = []
        self.error: Exception | None = None

    async def about_workers(self, queue: str, workers: Sequence[str]) -> list[WorkerEntry]:
        if self.error is not None:
            raise self.error
        return [entry for entry in self.entries if entry.worker in workers]


class Counts(NoMetrics):
    expired = 0

    def leases_expired(self, queue: str, jobs: int) -> None:
        self.expired += jobs


def lost(number: int, worker: str = "w-1", ended_ms: int = 200) -> Lost:
    return Lost(b"1" + encode_id(f"job-{number}"), f"{worker}:7".encode(), NOW - ended_ms, dead=False)


async def take_back(jobs: LostJobs, *taken: Lost) -> None:
    jobs.taken_back(REF, taken, NOW)
    await asyncio.gather(*jobs._tasks)


async def test_QK6_a_lost_lease_is_told_with_worker_pod_node_silence_and_likely_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry, counts = Registry(), Counts()
    registry.entries = [WorkerEntry("w-1", 34_200, BEAT, None, gone=True)]
    jobs = LostJobs(registry, (), counts, FailureLog())
    await take_back(jobs, lost(1), lost(2), lost(3, "w-2"))
    assert (
        "queue emails: took 2 job(s) back from worker w-1 (Pod emails-abc, node node-1, process 17): its leases ended "
        "0.2 s ago, it was last heard of 34.2 s ago: it was killed (for memory, or by a signal), crashed, froze, or "
        "was cut off from Redis; see `kubectl describe pod emails-abc`"
    ) in caplog.text
    assert (
        "took 1 job(s) back from worker w-2: its leases ended 0.2 s ago; the registry does not know it" in caplog.text
    )
    assert counts.expired == 3


async def test_QK6_QF6_the_loss_of_one_worker_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    jobs = LostJobs(Registry(), (), NoMetrics(), FailureLog())
    for number in range(10):
        await take_back(jobs, lost(number))
    assert caplog.text.count("took 1 job(s) back from worker w-1") == 1


async def test_QK6_a_loss_is_told_without_the_registry(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    registry.error = StoreUnavailable("away")
    await take_back(LostJobs(registry, (), NoMetrics(), FailureLog()), lost(1))
    assert "took 1 job(s) back from worker w-1: its leases ended 0.2 s ago; the registry" in caplog.text


def test_QK6_a_worker_that_may_live_is_told_apart() -> None:
    entry = WorkerEntry("w-1", 1_500, Beat("host-1", 17))
    assert place_of(entry) == " (host host-1, process 17)"
    assert likely_cause(entry, 3_000) == (
        "its leases ended 3.0 s ago, it was last heard of 1.5 s ago: if it lives, a handler hung past its time-out, or "
        "its renewals did not arrive; if not, it was killed or has crashed since"
    )
    assert "was killed" in likely_cause(entry._replace(gone=True), 3_000)
    assert place_of(WorkerEntry("w-1", 0, Beat())) == place_of(None) == ""
