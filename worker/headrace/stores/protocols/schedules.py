"""How far the schedules of a queue have been dealt with, by its leader."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.schedules.mark import ScheduleMark
from headrace.stores.protocols.moving import Fence


class Schedules(NamedTuple):
    """``now``: server time in ms; ``marks``: by the name of the schedule.

    ``unreadable``: schedules of which a foreign hand has left what is no mark. How far they are cannot be said until
    `headrace audit --repair` has removed it.
    """

    now: int
    marks: dict[str, ScheduleMark]
    unreadable: frozenset[str] = frozenset()


class ScheduleSteps(Protocol):
    """Steps on the schedules of a queue. They are declared in code; what is stored is how far each one is."""

    async def read_schedules(self, queue: str) -> Schedules:
        """Return what is noted of every schedule of the queue, and the time."""
        ...

    async def note_schedule(
        self, queue: str, fence: Fence, name: str, expected: ScheduleMark | None, mark: ScheduleMark
    ) -> bool:
        """Replace what is noted of a schedule, as the queue's leader; ``expected``: what it replaces, None: nothing.

        False, and nothing changed, if something else is noted, or the queue does not exist. The highest epoch that has
        noted anything is obeyed from then on: an older leader, and one of another incarnation of the queue, raises
        Fenced.
        """
        ...

    async def forget_schedule(self, queue: str, name: str, seen: ScheduleMark) -> bool:
        """Forget a schedule; False, and nothing changed, if something else than ``seen`` is noted.

        By a person, so without a fence. One that is still declared begins anew when its leader next looks.
        """
        ...
