"""Topology and states of partitions in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.memory.access import MemoryAccess
from headrace.stores.memory.partition import Partition
from headrace.stores.protocols.topology import Agreed, Counts, PartitionState
from headrace.topology import Grave, PartitionRef, Topology


class MemoryTopology(MemoryAccess):
    """Implements `headrace.stores.protocols.topology.TopologySteps`."""

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        with self._data.lock:
            return self._data.topologies.get(queue)

    async def write_topology(self, read: Topology | Grave | None, topology: Topology) -> bool:
        """Store ``topology`` if what was ``read`` (None: nothing) is still stored."""
        # The stored form is what counts: a value that does not survive it is found here, too.
        stored = Topology.from_json(topology.queue, topology.to_json())
        with self._data.lock:
            current = self._data.topologies.get(topology.queue) or self._data.grave(topology.queue)
            text = current.to_json() if current else ""
            if text == stored.to_json():
                return True
            if text != (read.to_json() if read else ""):
                return False
            self._data.graves.pop(topology.queue, None)
            self._data.topologies[topology.queue] = stored
            return True

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int, *, create: bool = True) -> Agreed:
        """Prepare a partition of a version that is about to become one of the topology's."""
        with self._data.lock:
            return self._agree(ref, topology, partitions, settled=False, create=create)

    async def settle(self, ref: PartitionRef, topology: Topology) -> Agreed:
        """Make a partition agree with a topology that has been written."""
        partitions = topology.versions[ref.version].partitions
        with self._data.lock:
            return self._agree(ref, topology, partitions, settled=True, create=ref.version == topology.active)

    def _agree(self, ref: PartitionRef, topology: Topology, partitions: int, *, settled: bool, create: bool) -> Agreed:
        partition, limits = self._known(ref, topology.incarnation), topology.limits(ref.version, partitions)
        if partition is None:
            before = self._data.gone(ref, topology.incarnation)
            if create and before == "absent":
                self._data.tombstones.pop(ref, None)
                partition = Partition(ref, topology.epoch, partitions, limits, topology.incarnation)
                partition.of, partition.asleep = topology.stamp, True
                self._data.partitions[ref] = partition
            return Agreed(before)
        if partition.incarnation > topology.incarnation:
            return Agreed(partition.state)
        ahead = partition.agree(topology, partitions, limits, settled=settled)
        self._hint_news(ref, partition, self._data.now())
        return Agreed(partition.state, ahead)

    async def mark(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Let a partition of an older version drain."""
        with self._data.lock:
            partition = self._mark(ref, topology)
            return partition.state if partition else "tombstone"

    async def close_partition(self, ref: PartitionRef) -> Counts:
        """Close a draining partition without live jobs; the counts, with the state afterwards."""
        with self._data.lock:
            if ref in self._data.partitions:
                self._data.partitions[ref].close()
            return self._counts(ref)

    async def remove(self, ref: PartitionRef, incarnation: int = 1) -> bool:
        """Delete a closed (or absent) partition and leave a tombstone."""
        with self._data.lock:
            return self._remove(ref, incarnation, whatever=False)

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an active partition that holds nothing, without a tombstone."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None or partition.state != "active" or not partition.unused(self._data.now()):
                return False
            del self._data.partitions[ref]
            if partition.incarnation > 1:  # what the deleted queue of the name has left is there again
                self._data.entomb(ref, partition.incarnation - 1)
            return True

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition."""
        with self._data.lock:
            return [self._counts(ref) for ref in refs]
