"""Tells of jobs whose worker was lost: those that run again, and those that are dead because it was lost too often."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from inspect import isawaitable
from typing import Any, Literal

from headrace.app import LostJobHook
from headrace.envelope import decode_record
from headrace.job import Job
from headrace.stores.base import Lost, Store, WorkerEntry
from headrace.topology import PartitionRef
from headrace.worker.cancellation import cancel_all
from headrace.worker.failures import FailureLog
from headrace.worker.leases import Execution
from headrace.worker.metrics import Metrics
from headrace.worker.repeats import Repeats

log = logging.getLogger("headrace.worker")

CLOSE_SECONDS = 0.5
LIVES_MS = 15_000
"""A worker that was heard of within this time, three beats, counts as living."""


class LostJobs:
    """Takes what claims find out; the hooks run beside the handlers."""

    def __init__(self, store: Store, hooks: Sequence[LostJobHook], metrics: Metrics, failures: FailureLog) -> None:
        self._store = store
        self._hooks = hooks
        self._metrics = metrics
        self._failures = failures
        self._tasks: set[asyncio.Task[None]] = set()
        self._problems = Repeats()
        self._workers = Repeats()

    def recovered(self, runs: Sequence[Execution]) -> None:
        """Tell of the jobs of a claim whose lease another worker has lost, before they run."""
        jobs = [execution.job for execution in runs if execution.job.suspect]
        lost = [job for job in jobs if job.history and job.history[-1].status == "lease expired"]
        if lost:
            self._start(self._tell(lost, "recovered"))

    def taken_back(self, ref: PartitionRef, lost: Sequence[Lost], now: int) -> None:
        """Tell of jobs that a claim took back at ``now`` (ms): whose they were, and which of them are dead now."""
        self._metrics.leases_expired(ref.queue, len(lost))
        self._start(self._tell_whose(ref.queue, lost, now))
        if dead := [each.key[1:] for each in lost if each.dead]:
            self._metrics.poisoned(ref.queue, len(dead))
            self._start(self._tell_poisoned(ref, dead, now))

    async def close(self) -> None:
        """Wait a moment for hooks that run, then end them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        await cancel_all(self._tasks)

    def _start(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(telling)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_whose(self, queue: str, lost: Sequence[Lost], now: int) -> None:
        """Say in one line per worker and minute who has lost jobs, and why, as far as is known."""
        jobs = Counter(each.worker for each in lost)
        ended_ms = {each.worker: max(0, now - each.ended_at) for each in lost}
        told = [worker for worker in jobs if self._workers.tells(f"{queue} {worker}")]
        try:
            known = {entry.worker: entry for entry in await self._store.about_workers(queue, told)}
        except Exception:
            known = {}  # without an answer of the registry the rest is worth telling all the same
        for worker in told:
            entry = known.get(worker)
            log.warning(
                "queue %s: took %d job(s) back from worker %s%s: %s",
                queue,
                jobs[worker],
                worker,
                place_of(entry),
                likely_cause(entry, ended_ms[worker]),
            )

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


def place_of(entry: WorkerEntry | None) -> str:
    """Return where a worker ran, in brackets, as far as it has said."""
    return f" ({entry.beat.place})" if entry is not None and entry.beat.place else ""


def likely_cause(entry: WorkerEntry | None, ended_ms: int) -> str:
    """Return what is known of a worker whose leases ended ``ended_ms`` ago, and what probably happened."""
    ended = f"its leases ended {ended_ms / 1000:.1f} s ago"
    if entry is None:
        return f"{ended}; the registry does not know it"
    heard = f"heard of {entry.heard_ms / 1000:.1f} s ago"
    advice = f"; see `kubectl describe pod {entry.beat.pod}`" if entry.beat.pod else ""
    if entry.heard_ms < LIVES_MS and not entry.gone:
        return (
            f"{ended}, it was last {heard}: if it lives, a handler hung past its time-out, or its renewals did not "
            f"arrive; if not, it was killed or has crashed since{advice}"
        )
    return (
        f"{ended}, it was last {heard}: it was killed (for memory, or by a signal), crashed, froze, or was cut off "
        f"from Redis{advice}"
    )
