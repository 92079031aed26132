"""Runs handlers within the slots that the settings give: coroutines in the event loop, plain functions in threads."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, cast

from headrace.app import App
from headrace.stores.base import Claim, Store
from headrace.worker.batches import Gathering, Group
from headrace.worker.calls import Places, composed
from headrace.worker.cancellation import cancel_all
from headrace.worker.deadlines import Deadlines
from headrace.worker.doubts import Doubts
from headrace.worker.endings import Endings
from headrace.worker.failures import FailureLog
from headrace.worker.intake import Intake
from headrace.worker.leases import Batch, EndReason, Execution, LeaseTable, State
from headrace.worker.metrics import Metrics
from headrace.worker.outage import Reachability
from headrace.worker.outcomes import NOT_STARTED
from headrace.worker.policies import Policies
from headrace.worker.processes import ProcessPool
from headrace.worker.runs import Call, Runs
from headrace.worker.settings import WorkerSettings
from headrace.worker.settlements import Settlements
from headrace.worker.unawaited import unawaited

_NEVER = float("inf")
# Looked up once: as attributes of their classes they cost more than the comparison.
_RUNNING = State.RUNNING
_NO_REASON = EndReason.NONE
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
        self._intake = Intake(policies, settlements)
        self._gathering: Gathering | None = None
        self._processes: ProcessPool | None = None
        self._slots = settings.concurrency
        self._grace = settings.timeout_grace_ms / 1000
        self._leases = leases
        self._settlements = settlements
        self._endings = Endings(policies, settlements, failures)
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="headrace-handler")
        self._loop = asyncio.get_running_loop()
        self.running: dict[Execution, None] = {}
        self._waiting: deque[Execution] = deque()
        self._doubts = Doubts(store, reachability, leases, metrics, self._granted, self._tell_to_end, self.notify_free)
        self.lose = self._doubts.lose
        """Called with jobs whose leases are gone."""
        self._deadlines = Deadlines(self.running, self._expired)
        self._stopping = False
        self._barred: set[str] = set()
        self.on_taken: Callable[[Sequence[Execution]], None] | None = None
        """Called with the runs that a claim brought, before they start."""
        self.on_free: Callable[[], None] | None = None
        """Called once when a slot becomes free; whoever waits for slots sets it again."""
        self._runs = Runs(self._call, self._ended, self._hand_back_excess)
        self._buffer = settings.queue_buffer
        self._timed: Callable[[str, float], None] | None = None
        self._sampled: set[Execution] = set()
        self._sample_at = float("inf")

    def sample(self, timed: Callable[[str, float], None]) -> None:
        """Time some of the runs, and call ``timed(queue, seconds)`` at their ends."""
        self._timed, self._sample_at = timed, 0.0

    def serve(self, app: App, dependencies: Mapping[str, Any], processes: ProcessPool | None) -> None:
        """Take the handlers of an app, and the dependencies that they share by name; before the first jobs come.

        ``processes``: open, unless no handler needs one.
        """
        self._processes = processes
        places = Places(self._threads, processes, self._suspend, self._begin)
        handlers = self._intake.handlers = composed(app, dependencies, places)
        if any(handler.batch is not None for handler in handlers.values()):
            self._gathering = Gathering(handlers.values(), self._launch)

    @property
    def occupied(self) -> int:
        """Slots and buffer places in use."""
        return len(self.running) + len(self._waiting) + self._doubts.jobs

    @property
    def room(self) -> int:
        """Jobs that may be claimed beyond the free slots: they will share these, or be done in no time."""
        if self._gathering is not None:
            return self._gathering.room(self._slots - self.occupied)
        return max(0, self.swift - self._slots - self._buffer)

    @property
    def swift(self) -> int:
        """Jobs that may be here because their runs end in no time; 0 where such would be handed back at once."""
        return 0 if self._gathering is not None or self._runs.slow else self._runs.swift

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing that is here will by itself."""
        return self.occupied == 0 and not self._gathering

    def by_queue(self) -> Counter[str]:
        """Return how many slots and buffer places each queue uses."""
        return Counter(execution.job.queue for each in (self.running, self._waiting) for execution in each)

    # ---- taking jobs ------------------------------------------------------------------------------------------------

    def accept(self, batch: Batch, claim: Claim, *, places: int | None = None) -> None:
        """Start the jobs of a claim, or let them wait for slots.

        ``places`` (None: for all of them): how many find a slot or a place in the buffer; the others are handed back.
        """
        now = time.monotonic()
        in_doubt = batch.held_until <= now
        ready = self._intake.take(batch, claim)
        self._leases.add(batch)
        if self.on_taken is not None:
            self.on_taken(ready)
        barred = self._stopping or batch.ref.queue in self._barred
        kept = 0 if barred else len(ready) if places is None else places
        self._hand_back(ready[kept:], [])
        del ready[kept:]
        if in_doubt and ready:
            self._doubts.check(ready)
        else:
            self._place(ready)

    def _place(self, executions: list[Execution]) -> None:
        """Start runs, or let them wait for a slot, or for others of their batch."""
        gathering = self._gathering
        for execution in executions:
            if gathering is not None and execution.handler.batch is not None:
                gathering.add(execution)
            elif len(self.running) < self._slots:
                self._start(execution)
            else:
                self._waiting.append(execution)
        if self._runs.slow:
            self._hand_back_excess()

    def _granted(self, batch: Batch, executions: list[Execution]) -> None:
        """Start jobs that were in doubt and are not lost."""
        if self._stopping or batch.ref.queue in self._barred:
            for execution in executions:
                self._settlements.end(execution, NOT_STARTED)
        else:
            self._place(executions)

    def _launch(self, executions: Sequence[Execution]) -> None:
        """Start a batch of those whose lease is held, or let it wait for a slot."""
        now = time.monotonic()
        doubtful: dict[Batch, list[Execution]] = {}
        held = []
        for execution in executions:
            if execution.lost:
                continue
            if execution.batch.held_until <= now:
                doubtful.setdefault(execution.batch, []).append(execution)
            else:
                held.append(execution)
        for each in doubtful.values():
            self._doubts.check(each)
        if not held:
            return
        group = Group(held)
        if len(self.running) < self._slots:
            self._start(group)
        else:
            self._waiting.append(group)

    # ---- running ----------------------------------------------------------------------------------------------------

    def _start(self, execution: Execution) -> None:
        """Give a run its slot. It begins after those that were started before, and so does its time: see `_call`."""
        execution.state = _RUNNING
        self.running[execution] = None
        if type(execution) is Group:
            execution.started()
        self._runs.add(execution)

    def _call(self, execution: Execution) -> Call | None:
        """Return the coroutine of a run that begins now, None if it was told to end, or its lease may have ended."""
        if execution not in self.running:
            return None
        now = time.monotonic()
        held_until = execution.held_until if type(execution) is Group else execution.batch.held_until
        if held_until <= now:
            self._take_back(execution)
            return None
        self._arm(execution, now)
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_SECONDS
            self._sampled.add(execution)
        if type(execution) is Group:
            return cast(Call, execution.handler.call(execution, [run.job.payload for run in execution.runs]))
        return cast(Call, execution.handler.call(execution, execution.job.payload))

    def _take_back(self, execution: Execution) -> None:
        """Ask the store for the leases of a run that others have held up for too long, before it begins."""
        for member in execution.members:
            member.state = State.WAITING
        if type(execution) is Group:
            self._launch(execution.members)
        else:
            self._doubts.check([execution])
        Executor._free(self, execution)  # by name: that is no end to be measured

    def _suspend(self, execution: Execution) -> None:
        execution.time_out_at(_NEVER)

    def _begin(self, execution: Execution) -> None:
        self._arm(execution, time.monotonic())

    def _arm(self, execution: Execution, now: float) -> None:
        deadline = now + execution.timeout_ms / 1000
        execution.time_out_at(deadline)
        if deadline < self._deadlines.next:
            self._deadlines.arm(deadline)

    def _ended(self, execution: Execution, returned: Any, error: BaseException | None) -> None:
        """Record what a run returned or raised."""
        try:
            if execution in self._sampled:
                self._sampled.discard(execution)
                self._time(execution)
            if returned is not None and (forgotten := unawaited(returned)) is not None:
                error = forgotten
            if type(execution) is Group:
                self._batch_ended(execution, returned, error)
            elif error is not None:
                self._endings.ended(execution, error, [(execution, error)])
            else:
                if returned is not None:
                    execution.returned = returned
                if execution.ending == _NO_REASON and not execution.was_told:
                    self._settlements.succeeded(execution)
                else:
                    self._endings.ended(execution, None, [(execution, None)])
        except BaseException as wrong:  # SystemExit of a retry function too: the job is not to be lost by it
            self._endings.undecided(execution, wrong)
        finally:
            self._free(execution)

    def _batch_ended(self, group: Group, returned: Any, error: BaseException | None) -> None:
        try:
            items = group.items(returned) if error is None else group.all_with(error)
        except TypeError as wrong:
            error, items = wrong, group.all_with(wrong)
        if error is not None:
            self._endings.ended(group, error, items)
        elif group.ending == _NO_REASON and not group.was_told:
            self._endings.concluded(items)
        else:
            self._endings.ended(group, None, items)
        group.state = State.ENDED

    def _time(self, execution: Execution) -> None:
        if self._timed is not None and execution.deadline != _NEVER:  # else it never came to run
            seconds = time.monotonic() - execution.deadline + execution.timeout_ms / 1000
            self._timed(execution.job.queue, seconds / len(execution.members))

    def _free(self, execution: Execution) -> None:
        self.running.pop(execution, None)
        execution.task = None
        waiting = self._waiting
        while waiting and len(self.running) < self._slots:
            following = waiting.popleft()
            if type(following) is Group:
                self._launch(following.members)
                continue
            if following.lost:
                continue
            if following.batch.held_until <= time.monotonic():
                self._doubts.check([following])
                continue
            self._start(following)
        self.notify_free()

    def notify_free(self) -> None:
        """Tell whoever waits for slots that there may be one."""
        if self.on_free is not None:
            notify, self.on_free = self.on_free, None
            notify()

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
        if not plain and (given_up_at := execution.given_up_at(self._grace)) > now:
            execution.check_at = given_up_at
            return
        if execution.ending == EndReason.TIMEOUT:
            # A thread cannot be interrupted, and this coroutine ignored it: the run has failed all the same.
            self._endings.timed_out(execution, goes_on=True)
            if not plain and execution.task is not None:
                execution.task.cancel()  # the first one may have been dropped on its way, see `cancellation`

    def _tell_to_end(self, execution: Execution, why: EndReason) -> None:
        execution.ending = why
        execution.withdraw()
        if execution.task is not None:
            execution.task.cancel()
        else:
            self._endings.not_begun(execution)
            self._free(execution)

    # ---- the end ----------------------------------------------------------------------------------------------------

    def wind_down(self) -> None:
        """Start nothing from now on, and hand back what has not begun."""
        self._stopping = True
        self.hand_back()

    def _hand_back_excess(self) -> None:
        """Hand back what was claimed beyond the buffer, lest it wait for slow runs while other workers are idle."""
        if self._gathering is None:  # else what waits shares slots
            excess = [self._waiting.pop() for _ in range(len(self._waiting) - self._buffer)]
            self._hand_back(reversed(excess), [])

    def hand_back(self, queue: str | None = None) -> None:
        """Hand back what has not begun of one queue, or of all, also where it has its slot."""
        waiting = [each for each in self._waiting if queue in (None, each.job.queue)]
        for execution in waiting:
            self._waiting.remove(execution)
        for execution in [each for each in self.running if each.task is None and queue in (None, each.job.queue)]:
            self._endings.not_begun(execution)
            self._free(execution)
        self._hand_back(waiting, self._gathering.take_all(queue) if self._gathering is not None else [])
        self.notify_free()

    def _hand_back(self, waiting: Iterable[Execution], gathered: Iterable[Execution]) -> None:
        for execution in chain(gathered, *(each.members for each in waiting)):
            if not execution.lost:
                self._settlements.end(execution, NOT_STARTED)

    def bar(self, queue: str) -> None:
        """Start nothing of one queue from now on, hand back what waits of it, and tell what runs of it to end."""
        self._barred.add(queue)
        self.hand_back(queue)
        for execution in list(self.running):
            if execution.job.queue == queue and execution.ending == EndReason.NONE:
                self._tell_to_end(execution, EndReason.INTERRUPTED)

    def admit(self, queue: str) -> None:
        """Start jobs of a queue again."""
        self._barred.discard(queue)

    def runs(self, queue: str) -> bool:
        """Whether code of a handler runs for the queue."""
        return any(execution.job.queue == queue for execution in self.running)

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
                self._endings.timed_out(execution)
            else:
                self._endings.interrupted(execution)
        return len(self.running)

    async def _all_ended(self) -> None:
        while self.running or self._doubts.checks:
            ended = self._loop.create_future()
            self.on_free = lambda ended=ended: None if ended.done() else ended.set_result(None)
            if not self.running:
                await asyncio.wait(self._doubts.checks)
                continue
            await ended

    async def close(self) -> None:
        """Stop the timers, end the processes, and let the threads end. Idempotent."""
        self._deadlines.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes is not None:
            await self._processes.close()
