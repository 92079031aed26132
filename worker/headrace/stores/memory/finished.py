"""Finished jobs in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import check_batch, check_page
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.finished import FinishedBatch, FoundFinished, Trimmed
from headrace.topology import PartitionRef


class MemoryFinished(MemoryAccess):
    """Implements `headrace.stores.protocols.finished.FinishedSteps`."""

    async def finished(
        self, ref: PartitionRef, after: bytes = b"", limit: int = 100, *, newest_first: bool = True
    ) -> list[FinishedBatch]:
        """Return whole batches of finished jobs, beginning after the entry that was seen last."""
        check_page(limit)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None:
                return []
            return partition.finished.page(after, limit, self._data.now(), newest_first=newest_first)

    async def find_finished(
        self, ref: PartitionRef, ids: Sequence[bytes], *, older: bytes = b"", newer: bytes = b""
    ) -> FoundFinished:
        """Look for stored ids among finished jobs, newest first."""
        check_batch(ids)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None:
                return FoundFinished({}, b"")
            return partition.finished.find(ids, older, newer, self._data.now())

    async def trim(self, ref: PartitionRef) -> Trimmed:
        """Drop finished jobs and dead letters beyond what is kept."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.trim(self._data.now()) if partition else Trimmed(0, 0)
