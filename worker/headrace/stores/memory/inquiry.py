"""Where a job is, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_ASKED, check_batch
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.inquiry import Described, Entry, Index, Statuses
from headrace.topology import PartitionRef


class MemoryInquiry(MemoryAccess):
    """Implements `headrace.stores.protocols.inquiry.InquirySteps`."""

    async def statuses(self, ref: PartitionRef, ids: Sequence[bytes]) -> Statuses:
        """Say where jobs are."""
        check_batch(ids, MAX_ASKED)
        with self._data.lock:
            partition, now = self._data.partitions.get(ref), self._data.now()
            if partition is None:
                return Statuses(now, b"", [None] * len(ids))
            return Statuses(now, partition.finished.newest, [partition.live(stored_id) for stored_id in ids])

    async def browse(self, ref: PartitionRef, index: Index, skip: int = 0) -> list[Entry]:
        """Return the next jobs of one index, in its order."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.browse(index, skip) if partition else []

    async def describe(self, ref: PartitionRef, stored_id: bytes) -> Described | None:
        """Return a live job with its record; None if it is not live here."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.describe(stored_id) if partition else None
