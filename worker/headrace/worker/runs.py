"""Runs the coroutines of handlers: one after the other in one task, as long as each ends without waiting.

A task for each job costs more than all else that happens to a job that only computes, so a run gets a task of its own
only when it first waits for something: it keeps the task that it began in, and the runs behind it get their own. Each
run has a context of its own (`contextvars`) from the beginning to the end, and `asyncio.current_task` is the task that
it can be cancelled through.

How long such runs take says how many more of them may be claimed than there are slots, see `Runs.swift`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from time import monotonic
from types import coroutine as generator_based
from typing import Any

from headrace.context import enter
from headrace.worker.leases import Execution

log = logging.getLogger("headrace.worker")

STEP_SECONDS = 0.005
"""Runs that do not wait go on for so long before anything else in the event loop gets its turn."""
SWIFT_JOBS = 256
"""Jobs that may be here at most because they are expected to be done within ``STEP_SECONDS``."""
SLOW_SECONDS = 1.0
"""After a run that waited, or took long, none is expected to be swift for this time."""

Call = Coroutine[Any, Any, Any]


class Runs:
    """``call`` makes the coroutine of a run, None if it is not to begin; ``ended`` is told what it returned or raised.

    ``slowed`` is called when runs turn out not to be swift: what was claimed in that hope should not wait for them.
    One event loop.
    """

    def __init__(
        self,
        call: Callable[[Execution], Call | None],
        ended: Callable[[Execution, Any, BaseException | None], None],
        slowed: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._call = call
        self._ended = ended
        self._slowed = slowed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._next: deque[Execution] = deque()
        self._served = False
        self._slow_until = float("-inf")
        self.swift = 0
        """How many jobs are done within ``STEP_SECONDS`` at the pace of late, at most ``SWIFT_JOBS``; 0: runs wait."""

    @property
    def slow(self) -> bool:
        """Whether what was claimed in the hope that runs are swift should not wait for those that are here."""
        return self.swift * 8 < SWIFT_JOBS

    def add(self, execution: Execution) -> None:
        """Let a run begin soon, after those that were added before."""
        self._next.append(execution)
        if not self._served:
            self._served = True
            self._begin(self._next)

    def _begin(self, executions: deque[Execution]) -> None:
        # In the context of the worker: this may be called by a handler that ends.
        self._context.run(self._loop.create_task, self._serve(executions))

    async def _serve(self, executions: deque[Execution]) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that only tasks run
        clock = self._clock
        began, done = clock(), 0
        for_all = executions is self._next
        try:
            while executions:
                execution = executions.popleft()
                context = self._context.copy()
                try:
                    waiting, result = context.run(self._first_step, execution)
                except (
                    BaseException
                ) as error:  # SystemExit and KeyboardInterrupt too: a handler must not end the worker
                    self._tell(self._ended, execution, None, error)
                else:
                    if waiting is not None:
                        execution.task = task
                        if for_all:
                            for_all = False
                            self._leave_to_others()
                        try:
                            result = await _other_steps(waiting, result, context)
                        except BaseException as error:
                            self._tell(self._ended, execution, None, error)
                        else:
                            self._tell(self._ended, execution, result, None)
                        return
                    if result is not _NOT_BEGUN:
                        self._tell(self._ended, execution, result, None)
                done += 1
                # A run that cancelled its own task must not be the end of the next one.
                if clock() - began > STEP_SECONDS or task.cancelling():
                    break
        finally:
            if for_all:
                self._pause(clock(), began, done)

    def _tell(self, whom: Callable[..., None], *what: Any) -> None:
        try:
            whom(*what)
        except BaseException:  # the runs behind this one are still to begin
            log.exception("a run, or its end, could not be taken in")

    def _first_step(self, execution: Execution) -> tuple[Call | None, Any]:
        """Return a run's coroutine and what it waits for, or None and what it returned."""
        enter(execution)
        call = self._call(execution)
        if call is None:
            return None, _NOT_BEGUN
        try:
            return call, call.send(None)
        except StopIteration as ended:
            return None, ended.value

    def _leave_to_others(self) -> None:
        """Give each run that has not begun a task of its own: this one waits."""
        self._slow_until = self._clock() + SLOW_SECONDS
        self.swift = 0
        self._tell(self._slowed)
        while self._next:
            self._begin(deque((self._next.popleft(),)))
        self._served = False

    def _pause(self, now: float, began: float, done: int) -> None:
        if now >= self._slow_until:
            self.swift = min(SWIFT_JOBS, int(STEP_SECONDS * done / max(now - began, 1e-6)))
        if self._next and self.slow:
            self._tell(self._slowed)
        self._served = bool(self._next)
        if self._served:
            self._begin(self._next)


_NOT_BEGUN = object()


@generator_based
def _other_steps(call: Call, waits_for: Any, context: contextvars.Context) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that waits, in its context; the task that awaits this is the one that it runs in."""
    while True:
        thrown: BaseException | None = None
        try:
            given = yield waits_for
        except GeneratorExit:
            context.run(call.close)
            raise
        except BaseException as error:
            thrown = error
        try:
            waits_for = context.run(call.send, given) if thrown is None else context.run(call.throw, thrown)
        except StopIteration as ended:
            return ended.value
