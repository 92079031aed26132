"""Taking jobs out of a queue that nobody wants any more, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.inquiry import Index
from headrace.stores.protocols.withdrawing import Purged, Sought, Withdrawn, check_waiting, check_withdraw
from headrace.topology import PartitionRef


class MemoryWithdrawing(MemoryAccess):
    """Implements `headrace.stores.protocols.withdrawing.WithdrawingSteps`."""

    async def withdraw(self, ref: PartitionRef, ids: Sequence[bytes], *, running: bool) -> list[Withdrawn]:
        """Remove live jobs by their stored ids, wherever they wait; where each one was."""
        check_withdraw(ids)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            places: list[Withdrawn] = [""] * len(ids)
            if partition:
                places = partition.withdraw(ids, running=running)
            self._unhint_parked(ref, partition)
            if partition:
                self._hint_news(ref, partition, self._data.now())
            return places

    async def purge(
        self, ref: PartitionRef, index: Index, sought: Sought, passed: int, *, remove: bool = True
    ) -> Purged:
        """Look at the next jobs of one index, from its end, and remove those that match."""
        check_waiting(index)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            purged = Purged(0, 0, end=True)
            if partition:
                purged = partition.purge(index, sought, passed, remove=remove)
            self._unhint_parked(ref, partition)
            return purged
