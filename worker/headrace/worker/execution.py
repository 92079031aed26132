"""Runs handlers: one task per job, plain functions in threads, within the slots that the settings give."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace.app import App
from headrace.context import Context, enter
from headrace.envelope import decode_record
from headrace.handler import Handler
from headrace.ids import decode_id
from headrace.job import Job
from headrace.stores.base import Claim, Claimed, Settled, Store
from headrace.worker.calls import Places, composed
from headrace.worker.cancellation import cancel_all
from headrace.worker.deadlines import Deadlines
from headrace.worker.failures import FailureLog
from headrace.worker.leases import Batch, EndReason, Execution, LeaseTable, State
from headrace.worker.metrics import Metrics
from headrace.worker.outage import Reachability
from headrace.worker.outcomes import (
    INTERRUPTED,
    NOT_STARTED,
    PARKED,
    after_error,
    after_timeout,
    undecodable,
)
from headrace.worker.policies import Policies
from headrace.worker.processes import ProcessPool
from headrace.worker.repeats import Repeats
from headrace.worker.settings import WorkerSettings
from headrace.worker.settlements import Settlements

log = logging.getLogger("headrace.worker")

_NEVER = float("inf")
SAMPLE_SECONDS = 0.01
"""Of the runs that begin within this time, one is timed for the statistics: their mean is what counts."""


class Executor:
    """Takes claimed jobs, runs them and passes their outcomes on.

    ``running`` holds every run whose code has not ended, also those whose outcome is already recorded: a handler that
    ignores its time-out keeps its slot.
    """

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        policies: Policies,
        leases: LeaseTable,
        settlements: Settlements,
        reachability: Reachability,
        metrics: Metrics,
        failures: FailureLog,
    ) -> None:
        self._handlers: Mapping[str, Handler] = {}
        self._processes: ProcessPool | None = None
        self._store = store
        self._slots = settings.concurrency
        self._grace = settings.timeout_grace_ms / 1000
        self._policies = policies
        self._leases = leases
        self._settlements = settlements
        self._reachability = reachability
        self._metrics = metrics
        self._failures = failures
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="headrace-handler")
        self._loop = asyncio.get_running_loop()
        self.running: dict[Execution, None] = {}
        self._waiting: deque[Execution] = deque()
        self._checks: set[asyncio.Task[None]] = set()
        self._deadlines = Deadlines(self.running, self._expired)
        self._unknown_types = Repeats()
        self._stopping = False
        self._in_doubt = 0
        self.on_free: Callable[[], None] | None = None
        """Called once when a slot becomes free; whoever waits for slots sets it again."""
        self._timed: Callable[[str, float], None] | None = None
        self._sample_at = float("inf")

    def sample(self, timed: Callable[[str, float], None]) -> None:
        """Time some of the runs, and call ``timed(queue, seconds)`` at their ends."""
        self._timed, self._sample_at = timed, 0.0

    def serve(self, app: App, dependencies: Mapping[str, Any], processes: ProcessPool | None) -> None:
        """Take the handlers of an app, and the dependencies that they share by name; before the first jobs come.

        ``processes``: open, unless no handler needs one.
        """
        self._processes = processes
        self._handlers = composed(app, dependencies, Places(self._threads, processes, self._suspend, self._begin))

    @property
    def occupied(self) -> int:
        """Slots and buffer places in use."""
        return len(self.running) + len(self._waiting) + self._in_doubt

    # ---- taking jobs ------------------------------------------------------------------------------------------------

    def accept(self, batch: Batch, claim: Claim, *, places: int | None = None) -> None:
        """Start the jobs of a claim, or let them wait for slots.

        ``places`` (None: for all of them): how many find a slot or a place in the buffer; the others are handed back.
        """
        queue = self._policies.of(batch.ref.queue)
        now = time.monotonic()
        in_doubt = batch.held_until <= now
        ready: list[Execution] = []
        for claimed in claim.jobs:
            settled = Settled(claimed.key, batch.token)
            try:
                job = decode_record(
                    claimed.key[1:],
                    claimed.record,
                    claimed.changes,
                    queue=batch.ref.queue,
                    version=batch.ref.version,
                    partition=batch.ref.partition,
                )
            except Exception as error:
                self._reject(batch, claimed, settled, error)
                continue
            handler = self._handlers.get(job.type)
            if handler is None:
                execution = batch.open[claimed.key] = Execution(job, batch, settled, _NO_HANDLER, 0)
                self._unknown_type(execution)
                continue
            timeout_ms = self._policies.timeout_ms(queue, job, handler)
            execution = batch.open[claimed.key] = Execution(job, batch, settled, handler, timeout_ms)
            if handler.process:
                execution.claimed = claimed
            ready.append(execution)
        self._leases.add(batch)
        kept = 0 if self._stopping else len(ready) if places is None else places
        for execution in ready[kept:]:
            self._settlements.end(execution, NOT_STARTED)
        del ready[kept:]
        if in_doubt and ready:
            self._check(ready)
        else:
            for execution in ready:
                if len(self.running) < self._slots:
                    self._start(execution, now)
                else:
                    self._waiting.append(execution)

    def _reject(self, batch: Batch, claimed: Claimed, settled: Settled, error: Exception) -> None:
        key = claimed.key
        try:
            job_id = decode_id(key[1:])
        except ValueError:
            job_id = key[1:].hex()
        job = Job(job_id, batch.ref.queue, "", None, 0, 0, batch.ref.version, batch.ref.partition)
        execution = batch.open[key] = Execution(job, batch, settled, _NO_HANDLER, 0)
        self._settlements.end(execution, undecodable(error))

    def _unknown_type(self, execution: Execution) -> None:
        job = execution.job
        if self._unknown_types.tells(job.type):
            log.warning(
                "queue %s: no handler here for type %r; its jobs wait for a worker that has one", job.queue, job.type
            )
        self._settlements.end(execution, PARKED)

    # ---- running ----------------------------------------------------------------------------------------------------

    def _start(self, execution: Execution, now: float) -> None:
        execution.state = State.RUNNING
        execution.deadline = execution.check_at = deadline = now + execution.timeout_ms / 1000
        self.running[execution] = None
        if deadline < self._deadlines.next:
            self._deadlines.arm(deadline)
        run = self._run
        if now >= self._sample_at:
            self._sample_at, run = now + SAMPLE_SECONDS, self._run_timed
        execution.task = self._loop.create_task(run(execution, execution.handler))

    async def _run_timed(self, execution: Execution, handler: Handler) -> None:
        try:
            await self._run(execution, handler)
        finally:
            if self._timed is not None and execution.deadline != _NEVER:  # else it never came to run
                started = execution.deadline - execution.timeout_ms / 1000
                self._timed(execution.job.queue, time.monotonic() - started)

    def _suspend(self, execution: Execution) -> None:
        execution.deadline = execution.check_at = _NEVER

    def _begin(self, execution: Execution) -> None:
        execution.deadline = execution.check_at = deadline = time.monotonic() + execution.timeout_ms / 1000
        if deadline < self._deadlines.next:
            self._deadlines.arm(deadline)

    async def _run(self, execution: Execution, handler: Handler) -> None:
        enter(execution)
        try:
            await handler.call(execution, execution.job.payload)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: a handler must not end the worker
            self._ended(execution, error)
        else:
            if execution.ending == EndReason.NONE and not execution.was_told:
                self._settlements.succeeded(execution)
            else:
                self._ended(execution, None)
        finally:
            self._free(execution)

    def _ended(self, execution: Execution, error: BaseException | None) -> None:
        """Record what follows a run that did not simply succeed.

        ``error`` None: it returned after it was told to end, or saw that it is late. If it knew, its return does not
        say that its work is done.
        """
        if execution.state != State.RUNNING or execution.lost:
            return  # its outcome is recorded, or is no longer ours to tell
        job, handler = execution.job, execution.handler
        late = execution.ending == EndReason.NONE and error is None  # it saw that before the timer did
        if late or execution.ending == EndReason.TIMEOUT:
            self._timed_out(execution)
        elif execution.ending == EndReason.INTERRUPTED and (error is not None or execution.was_told):
            self._settlements.end(execution, INTERRUPTED)
        elif error is None:
            self._settlements.succeeded(execution)
        else:
            batch = execution.batch
            server_now = batch.server_now + round((time.monotonic() - batch.taken_at) * 1000)
            self._settlements.end(execution, after_error(error, job, self._policies.retry(job, handler), server_now))

    def _free(self, execution: Execution) -> None:
        self.running.pop(execution, None)
        execution.task = None
        waiting = self._waiting
        while waiting and len(self.running) < self._slots:
            following = waiting.popleft()
            if following.lost:
                continue
            now = time.monotonic()
            if following.batch.held_until <= now:
                self._check([following])
                continue
            self._start(following, now)
        self.notify_free()

    def notify_free(self) -> None:
        """Tell whoever waits for slots that there may be one."""
        if self.on_free is not None:
            notify, self.on_free = self.on_free, None
            notify()

    # ---- leases that may be gone ------------------------------------------------------------------------------------

    def _check(self, executions: list[Execution]) -> None:
        """Start jobs whose lease may have ended before they could begin, if the store still grants it."""
        self._in_doubt += len(executions)
        task = self._loop.create_task(self._renew_then_start(executions))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _renew_then_start(self, executions: list[Execution]) -> None:
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
            self._in_doubt -= len(executions)
            self.notify_free()
        self.lose([executions[index] for index in refused])
        for execution in executions:
            if execution.lost or execution.state != State.WAITING:
                continue
            if self._stopping:
                self._settlements.end(execution, NOT_STARTED)
            elif len(self.running) < self._slots:
                self._start(execution, time.monotonic())
            else:
                self._waiting.append(execution)

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
                self._tell_to_end(execution, EndReason.LOST)
        self.notify_free()
        for queue, jobs in lost.items():
            self._metrics.leases_lost(queue, len(jobs))
            log.warning(
                "queue %s: the leases of %d job(s) are lost, their handlers are told to stop (first: %s, type %s)",
                queue,
                len(jobs),
                jobs[0].job.id,
                jobs[0].job.type,
            )

    # ---- time-outs --------------------------------------------------------------------------------------------------

    def _expired(self, execution: Execution, now: float) -> None:
        execution.check_at = _NEVER
        if execution.lost or execution.state != State.RUNNING:
            return
        plain = execution.handler.in_thread
        if execution.ending == EndReason.NONE:
            self._tell_to_end(execution, EndReason.TIMEOUT)
            if not plain:
                execution.check_at = now + self._grace
                return
        if execution.ending == EndReason.TIMEOUT:
            # A thread cannot be interrupted, and this coroutine ignored it: the run has failed all the same.
            self._timed_out(execution, goes_on=True)
            if not plain and execution.task is not None:
                execution.task.cancel()  # the first one may have been dropped on its way, see `cancellation`

    def _timed_out(self, execution: Execution, *, goes_on: bool = False) -> None:
        policy = self._policies.retry(execution.job, execution.handler)
        self._failures.timed_out(execution.job, execution.timeout_ms, goes_on=goes_on)
        self._settlements.end(execution, after_timeout(execution.job, policy, execution.timeout_ms))

    def _tell_to_end(self, execution: Execution, why: EndReason) -> None:
        execution.ending = why
        execution.withdraw()
        task = execution.task
        if task is None:
            return
        task.cancel()
        coroutine = task.get_coro()
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            # A task that is cancelled before its first step never enters its coroutine.
            self._ended(execution, asyncio.CancelledError())
            self._free(execution)

    # ---- the end ----------------------------------------------------------------------------------------------------

    def hand_back_waiting(self) -> None:
        """Start nothing from now on, and hand back what waits."""
        self._stopping = True
        while self._waiting:
            execution = self._waiting.popleft()
            if not execution.lost:
                self._settlements.end(execution, NOT_STARTED)

    async def finish(self, timeout: float, stop_now: asyncio.Event) -> None:
        """Wait at most ``timeout`` seconds, or until ``stop_now``, for the running handlers to end."""
        waiting = [self._loop.create_task(self._all_ended()), self._loop.create_task(stop_now.wait())]
        await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        await cancel_all(waiting)

    async def interrupt(self, timeout: float) -> int:
        """Tell the running handlers to end, wait at most ``timeout`` seconds, hand back what they leave.

        Returns the number of handlers whose code goes on all the same.
        """
        for execution in list(self.running):
            if execution.ending == EndReason.NONE:
                self._tell_to_end(execution, EndReason.INTERRUPTED)
        await self.finish(timeout, asyncio.Event())
        for execution in self.running:
            if execution.lost or execution.state != State.RUNNING:
                continue
            if execution.ending == EndReason.TIMEOUT:
                self._timed_out(execution)
            else:
                self._settlements.end(execution, INTERRUPTED)
        return len(self.running)

    async def _all_ended(self) -> None:
        while self.running or self._checks:
            ended = self._loop.create_future()
            self.on_free = lambda ended=ended: None if ended.done() else ended.set_result(None)
            if not self.running:
                await asyncio.wait(self._checks)
                continue
            await ended

    async def close(self) -> None:
        """Stop the timers, end the processes, and let the threads end. Idempotent."""
        self._deadlines.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes is not None:
            await self._processes.close()


def _not_called(ctx: Context, payload: Any) -> None:
    raise AssertionError("a job without a handler was started")


_NO_HANDLER = Handler("", _not_called, is_async=False)
