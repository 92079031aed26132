"""Deleting a queue in memory."""

from __future__ import annotations

from headrace.stores.bounds import GRAVE_TTL_MS
from headrace.stores.memory.access import MemoryAccess
from headrace.topology import Grave, PartitionRef, Topology


class MemoryDeletion(MemoryAccess):
    """Implements `headrace.stores.protocols.deletion.DeletionSteps`."""

    async def delete_partition(self, ref: PartitionRef, incarnation: int) -> bool:
        """Delete a partition whatever it holds, and leave a tombstone."""
        with self._data.lock:
            return self._remove(ref, incarnation, whatever=True)

    async def bury_queue(self, topology: Topology) -> bool:
        """Delete a topology with the queue's hints and statistics, and leave its grave."""
        with self._data.lock:
            stored = self._data.topologies.get(topology.queue)
            if stored is None or stored.to_json() != topology.to_json():
                return False
            del self._data.topologies[topology.queue]
            self._data.hints.pop(topology.queue, None)
            self._data.stats.pop(topology.queue, None)
            self._data.rosters.pop(topology.queue, None)
            self._data.schedules.pop(topology.queue, None)
            self._data.graves[topology.queue] = (self._data.now() + GRAVE_TTL_MS, topology.grave)
            return True

    async def unlist_queue(self, queue: str) -> None:
        """Do nothing: the list is that of the topologies."""

    async def read_grave(self, queue: str) -> Grave | None:
        """Return what is left of a deleted queue."""
        with self._data.lock:
            return self._data.grave(queue)
