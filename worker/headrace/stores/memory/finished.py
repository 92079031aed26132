"""Finished jobs in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_ASKED, check_batch, check_page
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.finished import FinishedBatch, FoundFinished, Trimmed
from headrace.stores.protocols.moving import Fence
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
        check_batch(ids, MAX_ASKED)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None:
                return FoundFinished({}, b"")
            return partition.finished.find(ids, older, newer, self._data.now())

    async def adopt_finished(self, ref: PartitionRef, batches: Sequence[FinishedBatch], incarnation: int) -> int | None:
        """Keep jobs that finished in an older version, as far as there is room; how many batches were taken."""
        check_batch(batches)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None or partition.state != "active" or partition.incarnation != incarnation:
                return None
            return partition.adopt_finished(batches, self._data.now())

    async def forget_finished(self, ref: PartitionRef, entries: Sequence[bytes]) -> int:
        """Remove batches of finished jobs, which were adopted elsewhere; how many there were."""
        check_batch(entries)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.finished.remove(entries) if partition else 0

    async def trim(self, ref: PartitionRef, *, fence: Fence | None = None) -> Trimmed:
        """Drop finished jobs and dead letters beyond what is kept."""
        with self._data.lock:
            partition = self._obeying(ref, fence)
            return partition.trim(self._data.now()) if partition else Trimmed(0, 0)
