"""Removes older versions of queues without an operator, once they are proven empty; an operator does that itself."""

from __future__ import annotations

from headrace.errors import NotDrained, QueueDeleting, TopologyConflict, UnknownQueue, UnknownVersion
from headrace.lifecycle import complete, drain_look_ms
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.topology import PartitionRef, Topology

REST = 20.0
"""Time between looks, as a multiple of the time that the last one took, at least."""
RACE_SECONDS = 1.0
"""Until the next look where the topology is about to be read anew."""


class DrainedVersions:
    """Looks at versions that drain: soon while jobs run, seldom while what is left is due later.

    A look closes what is empty, and closed partitions are not looked at again.
    """

    name = "drained_versions"

    def __init__(self) -> None:
        self._seen: Topology | None = None
        self._look_at: float | None = None
        self._closed: set[PartitionRef] = set()

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        topology = signs.topology
        if topology is None or topology.owner or topology.deleting or not topology.older:
            self._look_at = None
            return None
        if self._look_at is None or topology != self._seen:
            self._seen, self._look_at = topology, now
        return self._look_at

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology = signs.topology
        if topology is None:
            return
        began = turn.now()
        pauses = [await self._version(turn, topology, version) for version in topology.older]
        self._look_at = turn.now() + max(min(pauses, default=0.0), (turn.now() - began) * REST)

    async def _version(self, turn: Turn, topology: Topology, version: int) -> float:
        """Complete a version if that can be done; the seconds until the next look."""
        if topology.versions[version].state != "removing":
            left = [ref for ref in topology.refs(version) if ref not in self._closed]
            counts = await turn.each(left, turn.store.close_partition)
            ended = ("closed", "tombstone")
            self._closed |= {ref for ref, count in zip(left, counts, strict=True) if count.state in ended}
            if any(count.state not in ended for count in counts):
                return drain_look_ms(counts) / 1000
        try:
            await turn.step(lambda: complete(turn.store, topology.queue, version, fence=turn.fence(topology)))
        except NotDrained as error:
            return max(RACE_SECONDS, error.wait_ms / 1000)
        except (TopologyConflict, UnknownVersion, UnknownQueue, QueueDeleting):
            pass  # somebody else was faster
        turn.reread()
        return RACE_SECONDS
