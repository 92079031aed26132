"""Runs the duties of a leader when they are due, each on its own: one that fails or takes long stops no other."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from headrace.election.fence import Token
from headrace.errors import DataDamaged, Fenced, StoreUnavailable
from headrace.maintenance.duty import Duty, DutyMetrics
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import NotLeading, Turn
from headrace.stores.base import Store

log = logging.getLogger("headrace.maintenance")

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0


class Housekeeping:
    """The duties of one queue. ``duties`` makes them anew for each term; ``reread`` lets the topology be read soon.

    One event loop. ``clock`` in seconds; ``pause`` waits so many; both for tests.
    """

    def __init__(
        self,
        queue: str,
        store: Store,
        signs: Signs,
        duties: Callable[[], Sequence[Duty]],
        metrics: DutyMetrics,
        reread: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._store = store
        self._signs = signs
        self._duties = duties
        self._metrics = metrics
        self._reread = reread
        self._clock = clock
        self._pause = pause
        self._uniform = uniform

    async def run(self, token: Callable[[], Token | None], fenced: Callable[[int, int], None]) -> None:
        """Do what is due until cancelled.

        ``token`` gives what to show to the fence now, None: do nothing. ``fenced`` is told the epoch of a step that was
        refused, and the newer one that it met.
        """
        turn = Turn(self._queue, self._store, token, self._reread, self._clock, self._pause)
        async with asyncio.TaskGroup() as group:
            for duty in self._duties():
                group.create_task(self._serve(duty, turn, fenced), name=f"duty {duty.name}")
            await asyncio.Event().wait()

    async def _serve(self, duty: Duty, turn: Turn, fenced: Callable[[int, int], None]) -> None:
        changed = self._signs.listen()
        failures, not_before = 0, float("-inf")
        try:
            while True:
                changed.clear()
                now = self._clock()
                due = duty.due(self._signs, now)
                wait = None if due is None else max(due, not_before) - now
                if wait is None or wait > 0:
                    await self._until(changed, wait)
                    continue
                began = now
                try:
                    await duty.run(turn, self._signs)
                except NotLeading:
                    # Whoever ends the term has been told, or will be: the right may come back with another lock.
                    not_before = self._clock() + FIRST_RETRY
                    continue
                except Exception as error:
                    if isinstance(error, Fenced):
                        fenced(error.epoch, error.newer)
                    failures += 1
                    not_before = self._clock() + self._retry_after(failures)
                    self._tell(duty, error)
                    self._metrics.duty_ran(self._queue, duty.name, self._clock() - began, failed=True)
                    continue
                failures = 0
                self._metrics.duty_ran(self._queue, duty.name, self._clock() - began, failed=False)
        finally:
            self._signs.forget(changed)

    async def _until(self, changed: asyncio.Event, seconds: float | None) -> None:
        """Wait until something changes, at most so long."""
        waiting = asyncio.ensure_future(changed.wait())
        pausing = None if seconds is None else asyncio.ensure_future(self._pause(seconds))
        parts = {part for part in (waiting, pausing) if part is not None}
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()

    def _retry_after(self, failures: int) -> float:
        ceiling = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 10))
        return self._uniform(ceiling / 2, ceiling)

    def _tell(self, duty: Duty, error: Exception) -> None:
        what = f"queue {self._queue}: the leader's duty {duty.name}"
        if isinstance(error, StoreUnavailable):
            log.debug("%s is put off: %s", what, error)  # the worker tells of an outage, once
        elif isinstance(error, DataDamaged):
            log.error("%s failed and is tried again: %s", what, error)
        elif isinstance(error, Fenced):
            log.warning("%s is put off: %s", what, error)
        else:
            log.error("%s failed and is tried again", what, exc_info=error)
