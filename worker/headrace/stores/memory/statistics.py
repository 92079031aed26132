"""Statistics in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.stores.bounds import HORIZONS
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.memory.data import StoredStats
from headrace.stores.protocols.statistics import COUNTERS, Depth, Growth, Statistics, Survey
from headrace.topology import PartitionRef


class MemoryStatistics(MemoryAccess):
    """Implements `headrace.stores.protocols.statistics.StatisticsSteps`."""

    async def survey(self, refs: Sequence[PartitionRef]) -> list[Survey]:
        """Return what statistics need of each partition."""
        with self._data.lock:
            return [self._survey(ref) for ref in refs]

    def _survey(self, ref: PartitionRef) -> Survey:
        counts, partition = self._counts(ref), self._data.partitions.get(ref)
        if partition is None:
            return Survey(counts, Growth(), (0,) * len(HORIZONS))
        due = tuple(partition.due_until(counts.now + seconds * 1000) for seconds in HORIZONS)
        return Survey(counts, partition.growth, due)

    async def read_stats(self, queue: str) -> Statistics | None:
        """Return the queue's statistics; None if there are none."""
        with self._data.lock:
            stored = self._data.stats.get(queue)
            if stored is None:
                return None
            counters = {name: stored.counters[name] for name in COUNTERS}
            return Statistics(
                max(self._data.now(), stored.measured_at),
                stored.measured_at,
                stored.epoch,
                dict(stored.depths),
                counters,
                stored.scaling,
            )

    async def write_stats(
        self, queue: str, expected_at: int, epoch: int, depths: Mapping[int, Depth], growth: Mapping[int, Growth]
    ) -> bool:
        """Store depths and what counters have grown to; False if others were stored since ``expected_at``."""
        with self._data.lock:
            if queue not in self._data.topologies:
                return False
            stored = self._data.stats.get(queue) or StoredStats()
            if stored.measured_at != expected_at:
                return False
            self._data.stats[queue] = stored
            for number, grown in growth.items():
                last = stored.seen.get(number, Growth())
                # One that went back was begun anew, with its partition: what it counted before is counted already.
                for name, before, current in zip(Growth._fields, last, grown, strict=True):
                    stored.counters[name] += max(0, current - before)
            stored.measured_at = max(self._data.now(), stored.measured_at + 1)
            stored.epoch, stored.depths, stored.seen = epoch, dict(depths), dict(growth)
            return True

    async def write_scaling(self, queue: str, record: bytes) -> bool:
        """Store what whoever scales the workers remembers; False if the queue does not exist."""
        with self._data.lock:
            if queue not in self._data.topologies:
                return False
            self._data.stats.setdefault(queue, StoredStats()).scaling = record
            return True

    async def count_work(self, queue: str, counts: Mapping[str, int]) -> bool:
        """Add to the counters of workers; False if the queue does not exist."""
        with self._data.lock:
            if queue not in self._data.topologies:
                return False
            self._data.stats.setdefault(queue, StoredStats()).counters.update(counts)
            return True
