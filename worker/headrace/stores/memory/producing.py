"""Inserting jobs in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_ENQUEUE, check_batch
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.producing import Accepted, Moved, NewJob, Once
from headrace.stores.protocols.replication import Replicas
from headrace.topology import PartitionRef, Topology


class MemoryProducing(MemoryAccess):
    """Implements `headrace.stores.protocols.producing.ProducingSteps`."""

    async def enqueue(
        self,
        ref: PartitionRef,
        partitions: int,
        nonce: bytes,
        jobs: Sequence[NewJob],
        incarnation: int = 1,
        replicas: Replicas | None = None,
        once: Once | None = None,
    ) -> Accepted | Moved:
        """Insert jobs into an active partition. Nothing could take over and lack them: as good as replicated."""
        check_batch(jobs, MAX_ENQUEUE)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None:
                return Moved(self._data.gone(ref, incarnation), None)
            if partition.incarnation != incarnation:
                if partition.state == "active":
                    return Moved("resized", None)
                if partition.incarnation < incarnation:
                    return Moved("absent", None)
            now = self._data.now()
            result = partition.enqueue(partitions, nonce, jobs, now, once)
            self._hint_news(ref, partition, now)
            if replicas is not None and isinstance(result, Accepted):
                return result._replace(replicas=replicas.number)
            return result

    async def probe(self, ref: PartitionRef, topology: Topology, jobs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Mark a partition of an older version and tell which jobs or calls are known there."""
        check_batch(jobs)
        with self._data.lock:
            partition, now = self._mark(ref, topology), self._data.now()
            return [partition is not None and partition.knows(key, nonce, now) for key, nonce in jobs]
