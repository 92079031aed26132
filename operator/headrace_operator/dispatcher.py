"""Gives the Queues that are due to the reconciler, several at a time, each at most once at a time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, NotLeading
from headrace_operator.kubernetes.listing import Lister
from headrace_operator.metrics import OperatorMetrics, Outcome
from headrace_operator.reconciler import Reconciler
from headrace_operator.workqueue import WorkQueue

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Between tries of the first list."""
TICK_SECONDS = 0.25
"""Queues that are looked at although nothing happened come due together, and share round trips to Redis."""
SPREAD_SECONDS, LONGEST_SPREAD = 0.01, 10.0
"""Time over which Queues that are found at once are looked at first: so much for each, and at most."""

log = logging.getLogger("headrace.operator")


class Dispatcher:
    """Runs ``concurrency`` passes at a time.

    ``list_seconds``: how often all Queues are listed, so that one whose event was missed is found. ``clock``:
    monotonic seconds.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        lister: Lister,
        *,
        clock: Callable[[], float],
        concurrency: int = 8,
        list_seconds: float = 300.0,
        metrics: OperatorMetrics | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._reconciler = reconciler
        self._lister = lister
        self._clock = clock
        self._concurrency = concurrency
        self._list_seconds = list_seconds
        self._metrics = metrics or OperatorMetrics()
        self._uniform = uniform
        self._work: WorkQueue[QueueKey] = WorkQueue(clock, TICK_SECONDS)
        self._known: set[QueueKey] = set()
        self.listed_at = clock()
        """Clock of the last full list that succeeded."""
        self.listed: dict[str, str] = {}
        """Uid and resourceVersion of every Queue in it."""

    @property
    def depth(self) -> tuple[int, int]:
        """Queues that are looked after, and those that are to be looked at now."""
        return len(self._known), self._work.due

    @property
    def lateness(self) -> float:
        """Seconds by which the most overdue Queue is late."""
        return self._work.lateness

    def add(self, key: QueueKey, delay: float = 0.0) -> None:
        """Look at a Queue in ``delay`` seconds, or earlier if that is planned already."""
        self._known.add(key)
        self._work.add(key, delay)

    async def run(self) -> None:
        """Work until cancelled. It begins when all Queues were listed once: then next to nothing has to be read."""
        pause = FIRST_PAUSE
        while not await self._list():
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._concurrency):
                tasks.create_task(self._work_off())
            tasks.create_task(self._keep_listing())

    async def _keep_listing(self) -> None:
        while True:
            await asyncio.sleep(self._list_seconds)
            await self._list()

    async def _work_off(self) -> None:
        while True:
            key = await self._work.take()
            began = self._clock()
            outcome: Outcome = "failed"
            try:
                delay = await self._reconciler.reconcile(key)
                outcome = "gone" if delay is None else "settled"
            except (ApiError, ApiUnavailable, NotLeading) as error:
                log.warning("%s: %s", key, error, extra={"queue": str(key)})
                delay = self._failed(key, error)
            except Exception as error:
                # One Queue must not stop the others, whatever is wrong with it.
                log.exception("%s: a pass failed", key, extra={"queue": str(key)})
                delay = self._failed(key, error)
            finally:
                self._metrics.passed(outcome, self._clock() - began)
                self._work.done(key)
            if delay is None:
                # What came in meanwhile stays: a Queue of the same name may have been created since.
                self._known.discard(key)
            else:
                self._work.add(key, delay)

    def _failed(self, key: QueueKey, error: Exception) -> float:
        self._metrics.failed(type(error).__name__)
        return self._reconciler.failed(key)

    async def _list(self) -> bool:
        """List all Queues, and look at those of which something was missed; False if there was no answer."""
        started = self._clock()
        try:
            listed = await self._lister.list_all()
        except (ApiError, ApiUnavailable) as error:
            log.warning("the Queues could not be listed: %s", error)
            return False
        new = listed.keys() - self._known
        # All of them at once after a start would be a wave of calls that comes again with every resync.
        spread = min(LONGEST_SPREAD, len(new) * SPREAD_SECONDS)
        for key in new:
            self.add(key, self._uniform(0.0, spread))
        # What was missed: changes, and ends.
        changed = {key for key, found in listed.items() if found.changed} - new
        for key in changed | (self._known - listed.keys()):
            self.add(key)
        self.listed = {found.uid: found.version for found in listed.values()}
        self.listed_at = started
        return True
