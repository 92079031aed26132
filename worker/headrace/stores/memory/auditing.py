"""Audits in memory."""

from __future__ import annotations

from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.auditing import Leftover, PartitionAudit, Pause
from headrace.topology import PartitionRef, Topology


class MemoryAuditing(MemoryAccess):
    """Implements `headrace.stores.protocols.auditing.AuditSteps`."""

    async def audit_partition(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        """Look through one partition, and mend it if so asked, in a single step."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None:
                tombstone = self._data.tombstones.get(ref)
                incarnation = tombstone.incarnation if tombstone else 1
                return PartitionAudit(self._data.gone(ref), incarnation, 0, [], True, 1)
            now, records = self._data.now(), partition.records
            left = partition.audit(now, repair=repair)
            if partition.unhinted and not self._data.queue(ref.queue).knows(ref):
                left.append(Leftover("no hint", "due", ref.label.encode(), repair))
                if repair:
                    self._data.queue(ref.queue).became_ready(ref, now)
            self._hint_news(ref, partition, now)
            return PartitionAudit(partition.state, partition.incarnation, records, left, True, 1)

    async def audit_keys(self, queue: str, *, repair: bool, pause: Pause, other_queues: bool = True) -> list[Leftover]:
        """Return nothing: in memory nobody else writes."""
        return []

    async def stored_partitions(self, queue: str, pause: Pause) -> tuple[set[PartitionRef], list[str]]:
        """Return the partitions that exist; there are no other keys in memory."""
        with self._data.lock:
            return {ref for ref in (*self._data.partitions, *self._data.tombstones) if ref.queue == queue}, []

    async def stored_queues(self, pause: Pause) -> tuple[set[str], list[str]]:
        """Return the queues that have partitions; there are no other keys in memory."""
        with self._data.lock:
            return {ref.queue for ref in (*self._data.partitions, *self._data.tombstones)}, []

    async def hinted_labels(self, queue: str) -> list[bytes]:
        """Return the labels of the partitions that hints of any kind name."""
        with self._data.lock:
            hints = self._data.queue(queue)
            return sorted(ref.label.encode() for ref in {*hints.hot, *hints.due, *hints.parked})

    async def forget_hints(self, topology: Topology, label: bytes) -> bool:
        """Remove the hints of a partition that the topology does not list."""
        with self._data.lock:
            stored = self._data.topologies.get(topology.queue)
            if stored is None or stored.to_json() != topology.to_json():
                return False
            version, _, partition = label.decode().partition(":")
            ref = PartitionRef(topology.queue, int(version), int(partition))
            hints = self._data.queue(topology.queue)
            known = hints.knows(ref) or ref in hints.parked
            hints.forget(ref)
            hints.parked.pop(ref, None)
            return known
