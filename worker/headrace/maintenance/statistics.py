"""Keeps the statistics of a queue fresh while something happens in it."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import UnknownQueue
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.statistics import summarise
from headrace.stores.base import Statistics

INTERVAL = 2.0
"""Seconds between measurements of a busy queue, unless they cost too much."""
REST = 20.0
"""Time between measurements, as a multiple of the time that the last one took, at least."""


Surveyed = Callable[[str, Statistics], None]


class FreshStatistics:
    """Measures at the begin of a term, while jobs come, run or end, and once more when nothing happens any more."""

    name = "statistics"

    def __init__(self, surveyed: Surveyed | None = None) -> None:
        self._surveyed = surveyed
        self._measured: tuple[int, int] | None = None
        self._not_before = float("-inf")

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        if signs.topology is None or signs.topology.deleting:
            return None
        if self._measured == (signs.activity, signs.topology.epoch):
            signs.watch()
            return None
        return max(now, self._not_before)

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        if signs.topology is None:
            return
        seen, began = (signs.activity, signs.topology.epoch), turn.now()
        try:
            found = await turn.step(lambda: summarise(turn.store, turn.queue))
            self._measured = seen
            if found is not None and self._surveyed is not None:
                self._surveyed(turn.queue, found)
        except UnknownQueue:
            turn.reread()
        self._not_before = turn.now() + max(INTERVAL, (turn.now() - began) * REST)
