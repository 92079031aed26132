"""Topology and states of partitions in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import TOMBSTONE_TTL_MS
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.memory.partition import Partition
from headrace.stores.protocols.topology import Counts, PartitionState
from headrace.topology import PartitionRef, Topology


class MemoryTopology(MemoryAccess):
    """Implements `headrace.stores.protocols.topology.TopologySteps`."""

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        with self._data.lock:
            return self._data.topologies.get(queue)

    async def write_topology(self, expected_epoch: int, topology: Topology) -> bool:
        """Store ``topology`` if the stored one has ``expected_epoch`` (0: there is none)."""
        # The stored form is what counts: a value that does not survive it is found here, too.
        stored = Topology.from_json(topology.queue, topology.to_json())
        with self._data.lock:
            current = self._data.topologies.get(topology.queue)
            if (current.epoch if current else 0) != expected_epoch:
                return False
            self._data.topologies[topology.queue] = stored
            return True

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int) -> PartitionState:
        """Prepare a partition for a topology that is about to be written."""
        with self._data.lock:
            return self._agree(ref, topology, partitions, settled=False, create=True)

    async def settle(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Make a partition agree with a topology that has been written."""
        partitions = topology.versions[ref.version].partitions
        with self._data.lock:
            return self._agree(ref, topology, partitions, settled=True, create=ref.version == topology.active)

    def _agree(
        self, ref: PartitionRef, topology: Topology, partitions: int, *, settled: bool, create: bool
    ) -> PartitionState:
        partition = self._data.partitions.get(ref)
        if partition is None:
            before = self._data.gone(ref)
            if create and before == "absent":
                partition = Partition(ref, topology.epoch, partitions, topology.settings)
                partition.asleep = True
                self._data.partitions[ref] = partition
            return before
        partition.agree(topology.epoch, partitions, topology.settings, settled=settled)
        self._hint_news(ref, partition, self._data.now())
        return partition.state

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

    async def remove(self, ref: PartitionRef) -> bool:
        """Delete a closed (or absent) partition and leave a tombstone."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is not None and partition.state != "closed":
                return False
            self._data.partitions.pop(ref, None)
            self._data.tombstones[ref] = self._data.now() + TOMBSTONE_TTL_MS
            hints = self._data.queue(ref.queue)
            hints.forget(ref)
            hints.parked.pop(ref, None)
            return True

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an active partition that holds nothing, without a tombstone."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None or partition.state != "active" or not partition.unused(self._data.now()):
                return False
            del self._data.partitions[ref]
            return True

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition."""
        with self._data.lock:
            return [self._counts(ref) for ref in refs]
