"""Gives the Queues that are due to the reconciler, several at a time, each at most once at a time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable

from headrace_operator.api.names import QueueKey
from headrace_operator.kube import ApiError, ApiUnavailable, Kube, NotLeading, queues
from headrace_operator.reconciler import Reconciler
from headrace_operator.workqueue import WorkQueue

SPREAD_SECONDS, LONGEST_SPREAD = 0.01, 10.0
"""Time over which Queues that are found at once are looked at first: so much for each, and at most."""

log = logging.getLogger("headrace.operator")


class Dispatcher:
    """Runs ``concurrency`` passes at a time. ``namespaces``: those that are watched, empty for all.

    ``list_seconds``: how often all Queues are listed, so that one whose event was missed is found. ``clock``:
    monotonic seconds.
    """

    def __init__(
        self,
        kube: Kube,
        reconciler: Reconciler,
        *,
        clock: Callable[[], float],
        namespaces: Iterable[str] = (),
        concurrency: int = 8,
        list_seconds: float = 300.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._kube = kube
        self._reconciler = reconciler
        self._clock = clock
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._concurrency = concurrency
        self._list_seconds = list_seconds
        self._uniform = uniform
        self._work: WorkQueue[QueueKey] = WorkQueue(clock)
        self._known: set[QueueKey] = set()
        self.listed_at = clock()
        """Clock of the last full list that succeeded."""

    @property
    def lateness(self) -> float:
        """Seconds by which the most overdue Queue is late."""
        return self._work.lateness

    def add(self, key: QueueKey, delay: float = 0.0) -> None:
        """Look at a Queue in ``delay`` seconds, or earlier if that is planned already."""
        self._known.add(key)
        self._work.add(key, delay)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._concurrency):
                tasks.create_task(self._work_off())
            tasks.create_task(self._list())

    async def _work_off(self) -> None:
        while True:
            key = await self._work.take()
            try:
                delay = await self._reconciler.reconcile(key)
            except (ApiError, ApiUnavailable, NotLeading) as error:
                log.warning("%s: %s", key, error)
                delay = self._reconciler.failed(key)
            except Exception:
                # One Queue must not stop the others, whatever is wrong with it.
                log.exception("%s: a pass failed", key)
                delay = self._reconciler.failed(key)
            finally:
                self._work.done(key)
            if delay is None:
                # What came in meanwhile stays: a Queue of the same name may have been created since.
                self._known.discard(key)
            else:
                self._work.add(key, delay)

    async def _list(self) -> None:
        while True:
            try:
                new = [key async for key in self._listed() if key not in self._known]
                # All of them at once after a start would be a wave of calls that comes again with every resync.
                spread = min(LONGEST_SPREAD, len(new) * SPREAD_SECONDS)
                for key in new:
                    self.add(key, self._uniform(0.0, spread))
                self.listed_at = self._clock()
            except (ApiError, ApiUnavailable) as error:
                log.warning("the Queues could not be listed: %s", error)
            await asyncio.sleep(self._list_seconds)

    async def _listed(self) -> AsyncIterator[QueueKey]:
        for namespace in self._namespaces:
            async for body in self._kube.items(queues(namespace)):
                yield QueueKey(body["metadata"]["namespace"], body["metadata"]["name"])
