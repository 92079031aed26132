"""Moving jobs between versions, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_ASIDE, check_aside, check_page
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.moving import Aside, Fence
from headrace.topology import PartitionRef


class MemoryMoving(MemoryAccess):
    """Implements `headrace.stores.protocols.moving.MovingSteps`."""

    async def fence(self, ref: PartitionRef, fence: Fence) -> None:
        """Let the partition obey this leader from now on, and hint at it if it has ready jobs."""
        with self._data.lock:
            if partition := self._obeying(ref, fence):
                partition.hint_ready()
                self._hint_news(ref, partition, self._data.now())

    async def set_aside(self, ref: PartitionRef, fence: Fence, to: int, limit: int) -> list[Aside]:
        """Set waiting jobs of a draining partition aside; all that are aside."""
        check_aside(limit)
        with self._data.lock:
            partition = self._obeying(ref, fence)
            if partition is None:
                return []
            aside = partition.set_aside(to, limit)
            if partition.state == "draining":
                self._unhint_parked(ref, partition)
            return aside

    async def adopt(
        self, ref: PartitionRef, partitions: int, fence: Fence, source: PartitionRef, jobs: Sequence[Aside]
    ) -> list[bool]:
        """Insert jobs that are set aside in ``source``, each once; whether each one is or was here."""
        check_aside(len(jobs))
        with self._data.lock:
            if (partition := self._obeying(ref, fence)) is None:
                return [False] * len(jobs)
            adopted = partition.adopt(partitions, source, jobs)
            now = self._data.now()
            if partition.parked():
                self._data.queue(ref.queue).parked[ref] = now
            self._hint_news(ref, partition, now)
            return adopted

    async def bury_waiting(
        self, ref: PartitionRef, reason: str, limit: int = MAX_ASIDE, *, fence: Fence | None = None
    ) -> int:
        """Make waiting jobs of a draining partition dead letters; the number of them."""
        check_aside(limit)
        with self._data.lock:
            partition = self._obeying(ref, fence)
            if partition is None:
                return 0
            dead = partition.bury_waiting(reason, limit, self._data.now())
            if partition.state == "draining":
                self._unhint_parked(ref, partition)
            return dead

    async def retarget(self, ref: PartitionRef, fence: Fence, ids: Sequence[bytes], to: int) -> None:
        """Let jobs set aside move to a newer version."""
        check_aside(len(ids))
        with self._data.lock:
            if partition := self._obeying(ref, fence):
                partition.retarget(ids, to)

    async def let_go(self, ref: PartitionRef, fence: Fence, ids: Sequence[bytes]) -> None:
        """Delete jobs set aside, which have been adopted elsewhere."""
        check_aside(len(ids))
        with self._data.lock:
            if partition := self._obeying(ref, fence):
                partition.let_go(ids)

    async def forget_arrived(self, ref: PartitionRef, fence: Fence, source: PartitionRef, ids: Sequence[bytes]) -> None:
        """Forget that jobs were adopted from ``source``."""
        check_aside(len(ids))
        with self._data.lock:
            if partition := self._obeying(ref, fence):
                partition.forget_arrived(source, ids)

    async def arrivals(self, ref: PartitionRef, limit: int = 100) -> list[tuple[bytes, PartitionRef]]:
        """Return some of the stored ids that were adopted here, and where from."""
        check_page(limit)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.arrivals(limit) if partition else []

    async def still_aside(self, ref: PartitionRef, ids: Sequence[bytes]) -> list[bool]:
        """Return whether each stored id is set aside here."""
        check_page(len(ids) or 1)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return [partition is not None and partition.is_aside(stored_id) for stored_id in ids]
