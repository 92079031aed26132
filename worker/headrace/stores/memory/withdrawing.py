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
            if (partition := self._data.partitions.get(ref)) is None:
                return [""] * len(ids)
            places = partition.withdraw(ids, running=running)
            self._forget_parked(ref, partition.parked())
            self._hint_news(ref, partition, self._data.now())
            return places

    async def purge(
        self, ref: PartitionRef, index: Index, sought: Sought, passed: int, *, remove: bool = True
    ) -> Purged:
        """Look at the next jobs of one index, from its end, and remove those that match."""
        check_waiting(index)
        with self._data.lock:
            if (partition := self._data.partitions.get(ref)) is None:
                return Purged(0, 0, end=True)
            purged = partition.purge(index, sought, passed, remove=remove)
            self._forget_parked(ref, partition.parked())
            return purged

    def _forget_parked(self, ref: PartitionRef, parked: dict[str, int]) -> None:
        if not parked:
            self._data.queue(ref.queue).parked.pop(ref, None)
