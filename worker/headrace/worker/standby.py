"""Claims nothing while it is told so: a worker that is about to be removed ends what it runs and takes nothing new.

Whoever removes workers says so first, for a time; if it dies, the worker claims again when that time is over.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.stores.base import Store, Tick
from headrace.worker.claims import Claims
from headrace.worker.execution import Executor

log = logging.getLogger("headrace.worker")


class StandBy:
    """Follows what the ticks of each queue tell."""

    def __init__(self, store: Store, claims: Claims, executor: Executor) -> None:
        self._store = store
        self._claims = claims
        self._executor = executor
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tills: dict[str, int] = {}

    def till(self, queue: str) -> int:
        """Return until when nothing is claimed, as it was told; 0 if something is."""
        return self._tills.get(queue, 0)

    async def told(self, queue: str, tick: Tick) -> None:
        """Take note of a tick's answer: for how long to claim nothing, or to go on. Raises what the store raises."""
        timer, stop_ms = self._timers.pop(queue, None), tick.stop_ms
        self._tills[queue] = tick.stop_till
        if timer is not None:
            timer.cancel()
        if stop_ms is None:
            if timer is not None:
                self._go_on(queue)
            return
        loop = asyncio.get_running_loop()
        self._timers[queue] = loop.call_later(stop_ms / 1000, self._over, queue)
        if timer is None:
            hinted = self._claims.pause(queue, "told to")
            self._executor.hand_back(queue)
            log.info("queue %s: told to claim nothing for %.0f s, ending what runs", queue, stop_ms / 1000)
            for ref in hinted:  # others may have them
                await self._store.hint(ref)

    def close(self) -> None:
        """Stop the timers."""
        for timer in self._timers.values():
            timer.cancel()

    def _over(self, queue: str) -> None:
        del self._timers[queue], self._tills[queue]
        self._go_on(queue)

    def _go_on(self, queue: str) -> None:
        self._claims.resume(queue, "told to")
        log.info("queue %s: claiming again", queue)
