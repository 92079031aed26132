"""Raises hints for partitions that need a worker or hold parked jobs: a process or a failover may lose them."""

from __future__ import annotations

from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.stores.base import Counts
from headrace.topology import PartitionRef


class LostHints:
    """Looks at every partition once per term, and again after each outage of the store and each promotion.

    Between these, claims keep the hints themselves. A hint too many costs one claim that finds nothing.
    """

    name = "lost_hints"

    def __init__(self) -> None:
        self._done: tuple[int, tuple[int, ...]] | None = None

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        return None if signs.topology is None or self._done == _reason(signs) else now

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology, reason = signs.topology, _reason(signs)
        if topology is None:
            return

        async def look(ref: PartitionRef) -> None:
            counts = await turn.count(ref)
            if needs_worker(counts):
                await turn.store.hint(ref)
            if counts.parked:
                await turn.store.hint_parked(ref, counts.now)

        for version in topology.versions:
            await turn.each(topology.refs(version), look)
        self._done = reason


def needs_worker(counts: Counts) -> bool:
    """Whether a worker has to claim from a partition, now or later: the claim plans the hints that follow."""
    return counts.live - counts.parked - counts.moving - counts.arrived > 0


def _reason(signs: Signs) -> tuple[int, tuple[int, ...]]:
    versions = signs.topology.versions if signs.topology is not None else {}
    return signs.outages, tuple(sorted(versions))
