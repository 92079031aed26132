"""Finishes what others began with the topology and did not end: promotions, new settings, deletions."""

from __future__ import annotations

from headrace.agreement import make_agree
from headrace.deletion import delete_queue
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.topology import Topology

DELETION_SECONDS = 60.0
"""Time that whoever deletes a queue has for it before the leader helps."""


class UnfinishedChanges:
    """Makes every partition agree with the topology, once for each topology that is read."""

    name = "unfinished_changes"

    def __init__(self) -> None:
        self._done: Topology | None = None
        self._replaced: Topology | None = None  # by what is done, until that is read
        self._condemned_at: float | None = None

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`: at once when the topology is new to this leader."""
        topology = signs.topology
        if topology == self._done:
            self._replaced = None
        if topology is None or topology in (self._done, self._replaced):
            return None
        if not topology.deleting:
            self._condemned_at = None
            return now
        if self._condemned_at is None:
            self._condemned_at = now
        return self._condemned_at + DELETION_SECONDS

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology = signs.topology
        if topology is None:
            return
        if topology.deleting:
            await turn.step(lambda: delete_queue(turn.store, turn.queue))
            turn.reread()
            self._done = topology
        else:
            self._done = await make_agree(turn.store, topology, turn.each)
            if self._done != topology:
                self._replaced = topology
                turn.reread()
