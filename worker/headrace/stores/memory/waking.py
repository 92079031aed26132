"""Handing out hints in memory; what they are is in `headrace.stores.memory.hints`."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.registry import Beat
from headrace.stores.protocols.waking import Tick
from headrace.topology import PartitionRef


class MemoryWaking(MemoryAccess):
    """Implements `headrace.stores.protocols.waking.WakingSteps`."""

    @property
    def hints_may_be_lost(self) -> bool:
        """No: a hint and its cause are one step."""
        return False

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait at most ``timeout`` seconds of real time for a hint of one of the queues."""
        return await self._waiters.wait(queues, timeout)

    async def hint(self, ref: PartitionRef) -> None:
        """Give a hint back, or raise one; it goes to the head."""
        with self._data.lock:
            if self._data.buried(ref.queue):
                return
            self._data.queue(ref.queue).hot.setdefault(ref, 0)
            self._waiters.deliver(ref.queue)

    async def tick(self, queue: str, worker: str, beat: Beat | None = None) -> Tick:
        """Turn what is due into hints, and record that the worker lives."""
        with self._data.lock:
            hints, now = self._data.queue(queue), self._data.now()
            hints.tick(now)
            self._waiters.deliver(queue)
            till = self._data.roster(queue).beat(worker, beat, now)
            return Tick(hints.take_alarm(worker, now), till - now if till else None, till)

    async def leave(self, queue: str, worker: str) -> None:
        """Offer the alarm that a worker held to another one."""
        with self._data.lock:
            self._data.queue(queue).give_up_alarm(worker)
            self._data.roster(queue).leave(worker, self._data.now())
            self._waiters.deliver(queue)
