"""Schedules on Redis: a hash per queue."""

from __future__ import annotations

from headrace.errors import Fenced
from headrace.schedules.mark import ScheduleMark
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.schedules import Schedules
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.scripts import script


class RedisSchedules(RedisAccess):
    """Implements `headrace.stores.protocols.schedules.ScheduleSteps`."""

    async def read_schedules(self, queue: str) -> Schedules:
        """Return what is noted of every schedule of the queue, and the time."""
        keys = self._keys.of_queue_script("read_schedules", queue)
        now, *flat = await self._client.run(script("read_schedules"), keys, ())
        parts = iter(flat)
        marks: dict[str, ScheduleMark] = {}
        unreadable = []
        for name, mark in zip(parts, parts, strict=True):
            try:
                marks[name.decode()] = mark_of(mark)
            except ValueError:
                unreadable.append(name.decode(errors="replace"))
        return Schedules(now, marks, frozenset(unreadable))

    async def note_schedule(
        self, queue: str, fence: Fence, name: str, expected: ScheduleMark | None, mark: ScheduleMark
    ) -> bool:
        """Replace what is noted of a schedule, as the queue's leader."""
        keys = self._keys.of_queue_script("note_schedule", queue)
        args = (*fence, name, "" if expected is None else _written(expected), _written(mark))
        reply = await self._client.run(script("note_schedule"), keys, args)
        if reply[0] == b"fenced":
            raise Fenced(queue, "schedules", fence.epoch, reply[1])
        return bool(reply[0] == b"ok")

    async def forget_schedule(self, queue: str, name: str, seen: ScheduleMark) -> bool:
        """Forget a schedule; False if something else is noted."""
        keys = self._keys.of_queue_script("forget_schedule", queue)
        return bool(await self._client.run(script("forget_schedule"), keys, (name, _written(seen))))


def _written(mark: ScheduleMark) -> str:
    return f"{mark.at} {mark.rule}"


def mark_of(mark: bytes) -> ScheduleMark:
    """Return a mark as it is stored. Raises ValueError for anything else."""
    at, _, rule = mark.decode().partition(" ")
    return ScheduleMark(int(at), rule)
