"""Tells of jobs whose worker was lost: those that run again, and those that are dead because it was lost too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from inspect import isawaitable
from typing import Any, Literal

from headrace.app import LostJobHook
from headrace.envelope import decode_record
from headrace.job import Job
from headrace.stores.base import Store
from headrace.topology import PartitionRef
from headrace.worker.cancellation import cancel_all
from headrace.worker.failures import FailureLog
from headrace.worker.leases import Execution
from headrace.worker.metrics import Metrics
from headrace.worker.repeats import Repeats

log = logging.getLogger("headrace.worker")

CLOSE_SECONDS = 0.5


class LostJobs:
    """Takes what claims find out; the hooks run beside the handlers."""

    def __init__(self, store: Store, hooks: Sequence[LostJobHook], metrics: Metrics, failures: FailureLog) -> None:
        self._store = store
        self._hooks = hooks
        self._metrics = metrics
        self._failures = failures
        self._tasks: set[asyncio.Task[None]] = set()
        self._problems = Repeats()

    def recovered(self, runs: Sequence[Execution]) -> None:
        """Tell of the jobs of a claim whose lease another worker has lost, before they run."""
        jobs = [execution.job for execution in runs if execution.job.suspect]
        lost = [job for job in jobs if job.history and job.history[-1].status == "lease expired"]
        if lost:
            self._start(self._tell(lost, "recovered"))

    def poisoned(self, ref: PartitionRef, ids: Sequence[bytes], since: int) -> None:
        """Tell of jobs that are dead letters since ``since`` (ms), because they were lost once too often."""
        self._metrics.poisoned(ref.queue, len(ids))
        self._start(self._tell_poisoned(ref, ids, since))

    async def close(self) -> None:
        """Wait a moment for hooks that run, then end them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        await cancel_all(self._tasks)

    def _start(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(telling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_poisoned(self, ref: PartitionRef, ids: Sequence[bytes], since: int) -> None:
        try:
            found = await self._store.find_dead(ref, ids, since=since)
        except Exception as error:
            log.warning(
                "queue %s: %d job(s) are dead, worker lost; they cannot be read: %s", ref.queue, len(ids), error
            )
            return
        jobs = [
            decode_record(
                stored_id, letter.record, letter.changes, queue=ref.queue, version=ref.version, partition=ref.partition
            )
            for stored_id, letter in found.letters.items()
        ]
        for job in jobs:
            self._failures.died(job, job.last_error)
        await self._tell(jobs, "poisoned")

    async def _tell(self, jobs: Sequence[Job], outcome: Literal["recovered", "poisoned"]) -> None:
        for job in jobs:
            for hook in self._hooks:
                try:
                    returned = hook(job, outcome)
                    if isawaitable(returned):
                        await returned
                except Exception:
                    if self._problems.tells(outcome):
                        log.exception("a hook for lost jobs failed with job %s (%s)", job.id, job.type)
