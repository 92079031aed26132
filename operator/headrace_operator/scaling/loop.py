"""Gives the queues that are due to the scaler, and listens for those that were woken."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from headrace.stores.base import Store
from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable
from headrace_operator.scaling.report import TOLD, ScalingReport
from headrace_operator.scaling.scaler import Scaler, ScalingMemory
from headrace_operator.scaling.target import Target
from headrace_operator.scaling.wakes import listen
from headrace_operator.workqueue import WorkQueue

RETRY_SECONDS = 5.0
TOLD_SECONDS = 5.0
"""A limit that comes and goes is told no more often than this."""

log = logging.getLogger("headrace.operator.scaling")


class ScalingLoop:
    """Runs ``concurrency`` looks at a time, each queue at most once at a time. ``clock``: monotonic seconds.

    ``told``: called with a queue whose report has changed, and in how many seconds it is to be looked at.
    """

    def __init__(
        self,
        scaler: Scaler,
        *,
        clock: Callable[[], float],
        told: Callable[[QueueKey, float], None],
        concurrency: int = 8,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._scaler = scaler
        self._told = told
        self._concurrency = concurrency
        self._uniform = uniform
        self._work: WorkQueue[QueueKey] = WorkQueue(clock)
        self._targets: dict[QueueKey, Target] = {}
        self._memories: dict[str, ScalingMemory] = {}
        self._woken: set[QueueKey] = set()
        self._listeners: dict[int, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    # ---- what passes over Queues tell and ask ------------------------------------------------------------------------

    def observed(self, key: QueueKey, target: Target | None) -> None:
        """Say what a pass over a Queue has seen; None: its workers are not ours to scale, now or any more."""
        before = self._targets.get(key)
        if target is None:
            self.forget(key)
            return
        if before is not None and before.queue.uid != target.queue.uid:
            self._memories.pop(before.queue.uid, None)
            before = None
        self._targets[key] = target
        self._listen()
        if before is None or not before.same_wishes(target):
            self._wake(key)

    def forget(self, key: QueueKey) -> None:
        """Stop scaling the workers of a Queue."""
        gone = self._targets.pop(key, None)
        self._woken.discard(key)
        if gone is not None:
            self._memories.pop(gone.queue.uid, None)
            self._listen()

    def report(self, key: QueueKey) -> ScalingReport:
        """Return what is to be told about a Queue."""
        target = self._targets.get(key)
        memory = None if target is None else self._memories.get(target.queue.uid)
        return ScalingReport() if memory is None else _report(memory)

    # ---- looks -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._listen()
                for _ in range(self._concurrency):
                    tasks.create_task(self._work_off())
        finally:
            self._tasks = None
            self._listeners.clear()

    def _wake(self, key: QueueKey) -> None:
        self._woken.add(key)
        self._work.add(key, 0.0)

    async def _work_off(self) -> None:
        while True:
            key = await self._work.take()
            again: float | None = None
            try:
                again = await self._look(key)
            except (ApiError, ApiUnavailable) as error:
                log.warning("%s: not scaled: %s", key, error)
                again = RETRY_SECONDS * self._uniform(0.75, 1.0)
            except Exception:
                # One queue must not stop the others, whatever is wrong with it.
                log.exception("%s: a look failed", key)
                again = RETRY_SECONDS * self._uniform(0.75, 1.0)
            finally:
                self._work.done(key)
            if again is not None and key in self._targets:
                self._work.add(key, again)

    async def _look(self, key: QueueKey) -> float | None:
        target = self._targets.get(key)
        if target is None:
            return None
        woken = key in self._woken
        self._woken.discard(key)
        memory = self._memories.setdefault(target.queue.uid, ScalingMemory())
        before = _report(memory)
        try:
            after, again = await self._scaler.look(target, memory, woken=woken)
        except BaseException:
            self._woken.add(key)
            raise
        if self._targets.get(key) is target:  # else a pass has seen it since
            if after is None:
                self.forget(key)  # until a pass sees its Deployment again
                self._told(key, 0.0)
                return None
            self._targets[key] = after
        if _report(memory) != before:
            self._told(key, TOLD_SECONDS)
        return again

    # ---- wakes -------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Listen on every store that some target lives in, and on no other."""
        if self._tasks is None:
            return
        stores = {id(target.store): target.store for target in self._targets.values() if target.store is not None}
        for unused in self._listeners.keys() - stores.keys():
            self._listeners.pop(unused).cancel()
        for number, store in stores.items():
            if number not in self._listeners:
                self._listeners[number] = self._tasks.create_task(self._listen_on(store))

    async def _listen_on(self, store: Store) -> None:
        def heard(queues: Collection[str] | None) -> None:
            log.debug("woken: %s", "perhaps all" if queues is None else ", ".join(queues))
            for key, target in list(self._targets.items()):
                if target.store is store and (queues is None or target.queue.queue_name in queues):
                    self._wake(key)

        await listen(store, heard, self._uniform)


def _report(memory: ScalingMemory) -> ScalingReport:
    limit = memory.decision.limited_by if memory.decision is not None else None
    load, told = memory.load, limit if limit in TOLD else None
    measured = (None, None) if load is None else (load.arrivals_per_second, load.service)
    return ScalingReport(told, memory.scaled_at, memory.writer, *measured, memory.active_at)
