"""Queues without workers, in memory."""

from __future__ import annotations

from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.sleeping import Glance, Nap, Wakes
from headrace.topology import PartitionRef


class MemorySleeping(MemoryAccess):
    """Implements `headrace.stores.protocols.sleeping.SleepingSteps`."""

    async def sleep(self, ref: PartitionRef, horizon_ms: int) -> Nap:
        """SLEEP: put a partition to sleep, unless it holds a job that needs a worker."""
        with self._data.lock:
            partition, now = self._live(ref), self._data.now()
            if partition is None:
                return Nap(True, None, now)
            return Nap(partition.sleep(now, horizon_ms), partition.next_waiting(), now)

    async def glance(self, queue: str) -> Glance:
        """Look at a queue's hints."""
        with self._data.lock:
            hints = self._data.queue(queue)
            return Glance(bool(hints.hot), min(hints.due.values(), default=None), self._data.now())

    async def last_wake(self) -> bytes:
        """Return the cursor of now."""
        return self._data.wakes.cursor()

    async def wait_wakes(self, after: bytes, timeout: float) -> Wakes:
        """Wait at most ``timeout`` seconds of real time for queues that were woken since the cursor ``after``."""
        return await self._data.wakes.wait(after, timeout)
