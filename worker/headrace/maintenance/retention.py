"""Drops finished jobs and dead letters that the queue's retention no longer keeps."""

from __future__ import annotations

from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.settings import Retention
from headrace.topology import PartitionRef

INTERVAL = 60.0
"""Seconds between two looks at a queue in which something happens."""

Reason = tuple[Retention | None, tuple[int, ...]]


class BoundedRetention:
    """Looks at every partition when the retention or the versions change, and once a minute while something happens.

    Where jobs finish or die, their steps keep the bounds themselves, and what is kept of finished jobs ends by itself
    where none finishes any more. What is left is a bound that was lowered, and age where few finish.
    """

    name = "retention"

    def __init__(self) -> None:
        self._done: Reason | None = None
        self._activity = -1
        self._not_before = float("-inf")

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        topology = signs.topology
        if topology is None or topology.deleting:
            return None
        if self._done != _reason(signs):
            return now
        if topology.settings.retention is None:
            return None
        if self._activity == signs.activity:
            signs.watch()
            return None
        return max(now, self._not_before)

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology, reason, activity = signs.topology, _reason(signs), signs.activity
        if topology is None:
            return

        async def trim(ref: PartitionRef) -> None:
            while any(await turn.store.trim(ref, fence=turn.fence(topology))):
                pass

        for version in topology.versions:
            await turn.each(topology.refs(version), trim)
        self._done, self._activity = reason, activity
        self._not_before = turn.now() + INTERVAL


def _reason(signs: Signs) -> Reason:
    if signs.topology is None:
        return None, ()
    return signs.topology.settings.retention, tuple(sorted(signs.topology.versions))
