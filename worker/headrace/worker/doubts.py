"""Leases that may be gone: jobs that could not begin in time are asked for again, and lost ones are told to end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from headrace.stores.base import MAX_ASKED, Store
from headrace.topology import PartitionRef
from headrace.worker.leases import Batch, EndReason, Execution, LeaseTable, State
from headrace.worker.metrics import Metrics
from headrace.worker.outage import Reachability

log = logging.getLogger("headrace.worker")


class Doubts:
    """``granted(batch, executions)`` takes the jobs that the store still grants, ``tell_to_end`` ends a running one.

    ``changed`` is called when jobs are no longer in doubt, or lost. One event loop.
    """

    def __init__(
        self,
        store: Store,
        reachability: Reachability,
        leases: LeaseTable,
        metrics: Metrics,
        granted: Callable[[Batch, list[Execution]], None],
        tell_to_end: Callable[[Execution, EndReason], None],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._reachability = reachability
        self._leases = leases
        self._metrics = metrics
        self._granted = granted
        self._tell_to_end = tell_to_end
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self.jobs = 0
        """How many are in doubt."""
        self.checks: set[asyncio.Task[None]] = set()

    def check(self, executions: list[Execution]) -> None:
        """Pass on those jobs of a claim that the store still grants: they could not begin while their leases held."""
        self.jobs += len(executions)
        self._start(self._renew(executions))

    async def _renew(self, executions: list[Execution]) -> None:
        try:
            batch = executions[0].batch
            asked = time.monotonic()
            try:
                refused = await self._store.renew(batch.ref, [each.settled for each in executions], batch.lease_ms)
            except Exception as error:
                self._reachability.failed("checking leases", error)
                self.lose(executions)  # not started, so nothing is lost but time: the lease ends by itself
                return
            batch.held_until = max(batch.held_until, asked + batch.lease_ms / 1000)
        finally:
            self.jobs -= len(executions)
            self._changed()
        self.lose([executions[index] for index in refused])
        self._granted(batch, [each for each in executions if not each.lost and each.state == State.WAITING])

    def lose(self, executions: list[Execution]) -> None:
        """Take note that the leases of these jobs are gone: stop their handlers, drop their results, count them once.

        Runs that have ended are left alone: the answer to their outcome decides.
        """
        lost: dict[str, list[Execution]] = {}
        for execution in executions:
            if execution.lost or execution.state not in (State.WAITING, State.RUNNING):
                continue
            execution.lost = True
            execution.withdraw()
            self._leases.drop(execution)
            lost.setdefault(execution.job.queue, []).append(execution)
            if execution.state == State.RUNNING:
                whole = getattr(execution, "group", execution)
                if all(member.lost for member in whole.members):
                    whole.lost = True
                    self._tell_to_end(whole, EndReason.LOST)
        self._changed()
        now = time.monotonic()
        for queue, jobs in lost.items():
            self._metrics.leases_lost(queue, len(jobs))
            early = [job for job in jobs if job.batch.held_until > now]
            if early:
                self._start(self._tell_early(queue, early))
            self._tell_lost(queue, [job for job in jobs if job.batch.held_until <= now])

    async def _tell_early(self, queue: str, runs: list[Execution]) -> None:
        """Tell of leases that ended before their time: nobody takes such a job over, but somebody may cancel it."""
        gone: dict[Execution, None] = {}
        try:
            for ref, some in _by_partition(runs):
                found = await self._store.statuses(ref, [each.settled.key[1:] for each in some])
                gone |= {each: None for each, live in zip(some, found.live, strict=True) if live is None}
        except Exception as error:
            self._reachability.failed("looking for jobs whose leases ended", error)
        self._tell_lost(queue, [each for each in runs if each not in gone])
        if gone:
            first = next(iter(gone)).job
            log.info(
                "queue %s: %d job(s) that ran are there no more: cancelled, or removed with the queue; their handlers "
                "are told to stop (first: %s, type %s)",
                queue,
                len(gone),
                first.id,
                first.type,
            )

    def _tell_lost(self, queue: str, runs: list[Execution]) -> None:
        if runs:
            log.warning(
                "queue %s: the leases of %d job(s) are lost, their handlers are told to stop (first: %s, type %s)",
                queue,
                len(runs),
                runs[0].job.id,
                runs[0].job.type,
            )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self.checks.add(task)
        task.add_done_callback(self.checks.discard)


def _by_partition(runs: list[Execution]) -> Iterator[tuple[PartitionRef, list[Execution]]]:
    """Yield runs by partition, in groups that one call may ask for."""
    groups: dict[PartitionRef, list[Execution]] = {}
    for each in runs:
        groups.setdefault(each.batch.ref, []).append(each)
    for ref, group in groups.items():
        for start in range(0, len(group), MAX_ASKED):
            yield ref, group[start : start + MAX_ASKED]
