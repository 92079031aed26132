"""What every concern of the store in memory needs: the shared data, live partitions, giving hints."""

from __future__ import annotations

from collections.abc import Callable

from headrace.settings import QueueSettings, partition_limits
from headrace.stores.memory.data import Data, system_clock
from headrace.stores.memory.hints import Waiters
from headrace.stores.memory.partition import Partition
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.topology import Counts
from headrace.topology import PartitionRef, Topology


class MemoryAccess:
    """Base of the concerns of `headrace.stores.memory.MemoryStore`. Its methods are called under the data's lock."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        data = Data(clock or system_clock)
        self._data = data
        self._waiters = Waiters(data.lock, data.queue)

    def _live(self, ref: PartitionRef) -> Partition | None:
        """Return the partition if jobs can be in it."""
        partition = self._data.partitions.get(ref)
        return partition if partition is not None and partition.state != "closed" else None

    def _mark(self, ref: PartitionRef, topology: Topology) -> Partition | None:
        """Return the partition, which takes no jobs from now on; None if it is a tombstone."""
        partition = self._known(ref, topology.incarnation)
        if partition is None:
            if self._data.gone(ref, topology.incarnation) == "tombstone":
                return None
            # Epoch 0: it has no settings yet, so those of any topology are newer.
            self._data.tombstones.pop(ref, None)
            partition = Partition(ref, 0, 1, partition_limits(QueueSettings(), 1), topology.incarnation)
            self._data.partitions[ref] = partition
        if partition.incarnation == topology.incarnation:
            partition.mark(topology, self._data.now())
        return partition

    def _obeying(self, ref: PartitionRef, fence: Fence | None) -> Partition | None:
        """Return the partition, which obeys this leader, if there is one, from now on; None if it does not exist."""
        partition = self._data.partitions.get(ref)
        if partition is not None and fence is not None:
            partition.obey(fence)
        return partition

    def _counts(self, ref: PartitionRef) -> Counts:
        """Return the sizes of a partition and the facts of its drain."""
        partition, now = self._data.partitions.get(ref), self._data.now()
        if partition is None:
            gone = self._data.gone(ref)
            of = self._data.tombstones[ref].incarnation if gone == "tombstone" else 1
            return Counts(gone, 0, 0, 0, 0, 0, 0, 0, 0, None, None, None, now, incarnation=of)
        return partition.counts(now)

    def _known(self, ref: PartitionRef, incarnation: int) -> Partition | None:
        """Return the partition, unless an earlier incarnation of the queue has left it."""
        partition = self._data.partitions.get(ref)
        return partition if partition is not None and partition.incarnation >= incarnation else None

    def _remove(self, ref: PartitionRef, incarnation: int, *, whatever: bool) -> bool:
        """Leave a tombstone instead of a closed partition, or of one in ``whatever`` state."""
        partition = self._known(ref, incarnation)
        if partition is None and self._data.gone(ref, incarnation + 1) == "tombstone":
            return False
        if partition is not None and (
            partition.incarnation > incarnation or (partition.state != "closed" and not whatever)
        ):
            return False
        self._data.partitions.pop(ref, None)
        self._data.entomb(ref, incarnation)
        hints = self._data.queue(ref.queue)
        hints.forget(ref)
        hints.parked.pop(ref, None)
        return True

    def _hint_news(self, ref: PartitionRef, partition: Partition, now: int) -> None:
        ready, waits_until, woke = partition.take_news()
        hints = self._data.queue(ref.queue)
        if ready:
            hints.became_ready(ref, now)
        if waits_until is not None:
            hints.waits_until(ref, waits_until)
        if ready or waits_until is not None:
            self._waiters.deliver(ref.queue)
        if woke:
            self._data.wakes.add(ref.queue)

    def _unhint_parked(self, ref: PartitionRef, partition: Partition | None) -> None:
        """Forget the hint that a partition holds parked jobs, unless it does."""
        if partition is None or not partition.parked():
            self._data.queue(ref.queue).parked.pop(ref, None)
