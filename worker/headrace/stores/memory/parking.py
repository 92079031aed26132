"""Parked jobs in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_SETTLE, check_batch, check_page
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.parking import ParkedLimits, TrimmedParked, Unknown
from headrace.topology import PartitionRef


class MemoryParking(MemoryAccess):
    """Implements `headrace.stores.protocols.parking.ParkingSteps`."""

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Let jobs wait by type until a worker knows it; the refused indexes."""
        check_batch(jobs)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(jobs)))
            refused = partition.park(jobs, self._data.now())
            if len(refused) < len(jobs):
                self._data.queue(ref.queue).parked[ref] = self._data.now()
            self._hint_news(ref, partition, self._data.now())
            return refused

    async def unpark(self, ref: PartitionRef, types: Sequence[str]) -> int:
        """Make parked jobs of these types ready; the number of them."""
        check_batch(types)
        with self._data.lock:
            partition = self._live(ref)
            freed = partition.unpark(types) if partition else 0
            self._unhint_parked(ref, partition)
            if partition:
                self._hint_news(ref, partition, self._data.now())
            return freed

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        """Return how many jobs wait for each type."""
        with self._data.lock:
            partition = self._live(ref)
            return partition.parked() if partition else {}

    async def parked_partitions(self, queue: str) -> dict[PartitionRef, int]:
        """Return the partitions that hold parked jobs, with the time (ms) when one was parked last."""
        with self._data.lock:
            return dict(self._data.queue(queue).parked)

    async def hint_parked(self, ref: PartitionRef, at: int) -> None:
        """Raise the hint that a partition holds parked jobs, unless there is one."""
        with self._data.lock:
            if not self._data.buried(ref.queue):
                self._data.queue(ref.queue).parked.setdefault(ref, at)

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_SETTLE) -> int:
        """Make parked jobs of this type dead letters; the number of them."""
        check_page(limit, MAX_SETTLE)
        with self._data.lock:
            partition = self._live(ref)
            dead = partition.bury_parked(type, limit, self._data.now()) if partition else 0
            self._unhint_parked(ref, partition)
            return dead

    async def trim_parked(
        self,
        ref: PartitionRef,
        type: str,
        limits: ParkedLimits,
        after: bytes = b"",
        limit: int = MAX_SETTLE,
        *,
        fence: Fence | None = None,
    ) -> TrimmedParked:
        """Make parked jobs of this type that are beyond the limits dead letters."""
        check_page(limit, MAX_SETTLE)
        with self._data.lock:
            self._obeying(ref, fence)
            partition = self._live(ref)
            trimmed = TrimmedParked(0, b"")
            if partition:
                trimmed = partition.trim_parked(type, limits, after, limit, self._data.now())
            self._unhint_parked(ref, partition)
            return trimmed
