"""Dead letters in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_ASKED, MAX_SETTLE, check_batch, check_page
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.dead_letters import DeadLetter, FoundDead
from headrace.stores.protocols.moving import Fence
from headrace.topology import PartitionRef


class MemoryDeadLetters(MemoryAccess):
    """Implements `headrace.stores.protocols.dead_letters.DeadLetterSteps`."""

    async def dead_letters(
        self, ref: PartitionRef, after: DeadLetter | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return at most ``limit`` dead letters, oldest first, beginning after one that was seen."""
        check_page(limit)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.dead.page(after, limit) if partition else []

    async def find_dead(
        self, ref: PartitionRef, ids: Sequence[bytes], *, since: int = 0, go_on: tuple[int, int] | None = None
    ) -> FoundDead:
        """Look for the newest dead letter of each stored id, among those that died at ``since`` ms or later."""
        check_batch(ids, MAX_ASKED)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return FoundDead(partition.dead.find(ids, since) if partition else {}, None)

    async def adopt_dead(
        self, ref: PartitionRef, letters: Sequence[DeadLetter], incarnation: int = 1, *, fence: Fence | None = None
    ) -> bool:
        """Copy dead letters of an older version; False if the partition is not active."""
        check_batch(letters, MAX_SETTLE)
        with self._data.lock:
            partition = self._obeying(ref, fence)
            if partition is None or (partition.state, partition.incarnation) != ("active", incarnation):
                return False
            partition.adopt_dead(letters)
            return True

    async def remove_dead(self, ref: PartitionRef, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        check_batch(letters)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.dead.remove(letters) if partition else 0
