"""Memory has no replicas, and forgets nothing."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.memory.access import MemoryAccess
from headrace.topology import PartitionRef, Topology


class MemoryReplication(MemoryAccess):
    """Implements `headrace.stores.protocols.replication.ReplicationSteps`."""

    async def replicated(self, queue: str, refs: Sequence[PartitionRef] = ()) -> bool:
        """Return True: nothing could take over."""
        return True

    async def successor(self, ref: PartitionRef) -> Topology | None:
        """Return the topology that the partition was marked with; None if it never was."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.successor if partition else None
