"""Schedules in memory."""

from __future__ import annotations

from headrace.errors import Fenced
from headrace.schedules.mark import ScheduleMark
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.memory.data import StoredSchedules
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.schedules import Schedules


class MemorySchedules(MemoryAccess):
    """Implements `headrace.stores.protocols.schedules.ScheduleSteps`."""

    async def read_schedules(self, queue: str) -> Schedules:
        """Return what is noted of every schedule of the queue, and the time."""
        with self._data.lock:
            stored = self._data.schedules.get(queue) or StoredSchedules()
            return Schedules(self._data.now(), dict(stored.marks))

    async def note_schedule(
        self, queue: str, fence: Fence, name: str, expected: ScheduleMark | None, mark: ScheduleMark
    ) -> bool:
        """Replace what is noted of a schedule, as the queue's leader."""
        with self._data.lock:
            topology = self._data.topologies.get(queue)
            if topology is None:
                return False
            stored = self._data.schedules.setdefault(queue, StoredSchedules())
            ruling, asking = (stored.epoch, stored.nonce), (fence.epoch, fence.nonce)
            older = fence.epoch < stored.epoch or (fence.epoch == stored.epoch and ruling != asking)
            if older or fence.incarnation != topology.incarnation:
                raise Fenced(queue, "schedules", fence.epoch, stored.epoch)
            stored.epoch, stored.nonce = asking
            if stored.marks.get(name) != expected:
                return False
            stored.marks[name] = mark
            return True

    async def forget_schedule(self, queue: str, name: str, seen: ScheduleMark) -> bool:
        """Forget a schedule; False if something else is noted."""
        with self._data.lock:
            stored = self._data.schedules.get(queue) or StoredSchedules()
            if stored.marks.get(name) != seen:
                return False
            del stored.marks[name]
            return True
