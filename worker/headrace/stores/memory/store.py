"""MemoryStore: the Store protocol over partitions in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Literal

from headrace.settings import QueueSettings
from headrace.stores.base import (
    MAX_UNPARK,
    TOMBSTONE_TTL_MS,
    Accepted,
    Claim,
    Counts,
    DeadLetter,
    Failure,
    Moved,
    NewJob,
    PartitionState,
    Release,
    Settled,
    Unknown,
    check_batch,
    check_limit,
    check_page,
)
from headrace.stores.memory.hints import QueueHints, Waiters
from headrace.stores.memory.partition import Partition
from headrace.topology import PartitionRef, Topology


def system_clock() -> int:
    """Return the system's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Data:
    """What all clones share; every access holds ``lock``."""

    clock: Callable[[], int]
    lock: RLock = field(default_factory=RLock)
    latest: int = 0
    marker: str | None = None
    topologies: dict[str, Topology] = field(default_factory=dict)
    partitions: dict[PartitionRef, Partition] = field(default_factory=dict)
    tombstones: dict[PartitionRef, int] = field(default_factory=dict)
    hints: dict[str, QueueHints] = field(default_factory=dict)

    def now(self) -> int:
        """Return the time; it never goes back, whatever the clock does."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    def queue(self, name: str) -> QueueHints:
        return self.hints.setdefault(name, QueueHints())

    def gone(self, ref: PartitionRef) -> Literal["absent", "tombstone"]:
        """State of a partition that does not exist."""
        return "tombstone" if self.tombstones.get(ref, 0) > self.now() else "absent"


class MemoryStore:
    """A store in the memory of this process, with the behaviour of the Redis one; nothing outlives the process.

    ``clock`` returns milliseconds since the epoch and stands for the server's clock (default: the system's): nothing
    becomes due before it says so. Only the time-out of `wait_hint` is real time. May be used from several threads and
    event loops; clones share the data.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        data = _Data(clock or system_clock)
        self._data = data
        self._waiters = Waiters(data.lock, data.queue)

    @property
    def hints_may_be_lost(self) -> bool:
        """No: a hint and its cause are one step."""
        return False

    def clone(self) -> MemoryStore:
        """Return a store on the same data."""
        other = MemoryStore(self._data.clock)
        other._data, other._waiters = self._data, self._waiters
        return other

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def check(self) -> None:
        """Do nothing: memory answers."""

    # ---- topology -------------------------------------------------------------------------------------------------

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        with self._data.lock:
            return self._data.topologies.get(queue)

    async def write_topology(self, expected_epoch: int, topology: Topology) -> bool:
        """Store ``topology`` if the stored one has ``expected_epoch`` (0: there is none)."""
        # The stored form is what counts: a value that does not survive it is found here, too.
        stored = Topology.from_json(topology.queue, topology.to_json())
        with self._data.lock:
            current = self._data.topologies.get(topology.queue)
            if (current.epoch if current else 0) != expected_epoch:
                return False
            self._data.topologies[topology.queue] = stored
            return True

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int) -> PartitionState:
        """Prepare a partition for a topology that is about to be written."""
        with self._data.lock:
            return self._agree(ref, topology, partitions, settled=False, create=True)

    async def settle(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Make a partition agree with a topology that has been written."""
        partitions = topology.versions[ref.version].partitions
        with self._data.lock:
            return self._agree(ref, topology, partitions, settled=True, create=ref.version == topology.active)

    async def mark(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Let a partition of an older version drain."""
        with self._data.lock:
            partition = self._mark(ref, topology)
            return partition.state if partition else "tombstone"

    async def close_partition(self, ref: PartitionRef) -> Counts:
        """Close a draining partition without live jobs; the counts, with the state afterwards."""
        with self._data.lock:
            if ref in self._data.partitions:
                self._data.partitions[ref].close()
            return self._counts(ref)

    async def remove(self, ref: PartitionRef) -> bool:
        """Delete a closed (or absent) partition and leave a tombstone."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is not None and partition.state != "closed":
                return False
            self._data.partitions.pop(ref, None)
            self._data.tombstones[ref] = self._data.now() + TOMBSTONE_TTL_MS
            hints = self._data.queue(ref.queue)
            hints.forget(ref)
            hints.parked.pop(ref, None)
            return True

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an active partition that holds nothing, without a tombstone."""
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None or partition.state != "active" or not partition.unused(self._data.now()):
                return False
            del self._data.partitions[ref]
            return True

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition."""
        with self._data.lock:
            return [self._counts(ref) for ref in refs]

    # ---- producing ------------------------------------------------------------------------------------------------

    async def enqueue(
        self, ref: PartitionRef, partitions: int, nonce: bytes, jobs: Sequence[NewJob]
    ) -> Accepted | Moved:
        """Insert jobs into an active partition."""
        check_batch(jobs)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            if partition is None:
                return Moved(self._data.gone(ref), None)
            now = self._data.now()
            result = partition.enqueue(partitions, nonce, jobs, now)
            self._hint_news(ref, partition, now)
            return result

    async def probe(self, ref: PartitionRef, topology: Topology, jobs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Mark a partition of an older version and tell which jobs or calls are known there."""
        check_batch(jobs)
        with self._data.lock:
            partition = self._mark(ref, topology)
            return [partition is not None and partition.knows(key, nonce) for key, nonce in jobs]

    # ---- working --------------------------------------------------------------------------------------------------

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspect: bool = True,
    ) -> Claim:
        """Acknowledge, recover expired leases, promote what is due, and lease up to ``limit`` ready jobs."""
        check_limit(limit)
        check_batch(acks)
        token = _token(worker, seq)
        with self._data.lock:
            hints = self._data.queue(ref.queue)
            partition = self._live(ref)
            if partition is None:
                hints.forget(ref)
                return Claim(token, refused=list(range(len(acks))), gone=True)
            now = self._data.now()
            refused = partition.ack(acks)
            partition.recover(now)
            partition.promote_due(now)
            jobs, more, next_due = partition.claim(token, seq, limit, now + lease_ms, now, suspect=suspect)
            partition.take_news()
            hints.claimed(ref, more=more, next_due=next_due, now=now)
            alarm_ms = None if more else hints.take_alarm(worker, now)
            # Read before the leftovers are handed out: it tells this worker where to go on.
            following = None if hints.rearm else hints.first()
            self._waiters.deliver(ref.queue)
            return Claim(token, jobs, refused, False, now, following, alarm_ms)

    async def resume(self, ref: PartitionRef, worker: str, seq: int, lease_ms: int) -> Claim:
        """Return again the batch of an earlier claim whose reply was lost, its leases renewed."""
        token = _token(worker, seq)
        with self._data.lock:
            partition = self._live(ref)
            if partition is None:
                return Claim(token, gone=True)
            now = self._data.now()
            return Claim(token, partition.resume(token, now + lease_ms, now), now=now)

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled]) -> list[int]:
        """Remove finished jobs; the indexes that were not leased under their token."""
        check_batch(acks)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(acks)))
            refused = partition.ack(acks)
            self._hint_news(ref, partition, self._data.now())
            return refused

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failed runs; the refused indexes."""
        check_batch(failures)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(failures)))
            now = self._data.now()
            refused = partition.fail(failures, now)
            self._hint_news(ref, partition, now)
            return refused

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand jobs back without costing an attempt; the refused indexes."""
        check_batch(releases)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(releases)))
            now = self._data.now()
            refused = partition.release(releases, now)
            self._hint_news(ref, partition, now)
            return refused

    async def renew(self, ref: PartitionRef, leases: Sequence[Settled], lease_ms: int) -> list[int]:
        """Extend leases to now + ``lease_ms``; the refused indexes."""
        check_batch(leases)
        with self._data.lock:
            partition = self._live(ref)
            return partition.renew(leases, self._data.now() + lease_ms) if partition else list(range(len(leases)))

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
            if (partition := self._live(ref)) is None:
                return 0
            freed = partition.unpark(types)
            if not partition.parked():
                self._data.queue(ref.queue).parked.pop(ref, None)
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

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_UNPARK) -> int:
        """Make parked jobs of this type dead letters; the number of them."""
        check_page(limit)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return 0
            dead = partition.bury_parked(type, limit, self._data.now())
            if not partition.parked():
                self._data.queue(ref.queue).parked.pop(ref, None)
            return dead

    async def recover(self, ref: PartitionRef) -> int:
        """Return jobs with expired leases to ready; the number of them."""
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return 0
            now = self._data.now()
            recovered = partition.recover(now)
            self._hint_news(ref, partition, now)
            return recovered

    async def promote_due(self, ref: PartitionRef) -> int:
        """Move due jobs to ready; the number of them."""
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return 0
            now = self._data.now()
            promoted = partition.promote_due(now)
            self._hint_news(ref, partition, now)
            return promoted

    # ---- dead letters ---------------------------------------------------------------------------------------------

    async def dead_letters(
        self, ref: PartitionRef, after: DeadLetter | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return at most ``limit`` dead letters, oldest first, beginning after one that was seen."""
        check_page(limit)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.dead_letters(after, limit) if partition else []

    async def remove_dead(self, ref: PartitionRef, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        check_batch(letters)
        with self._data.lock:
            partition = self._data.partitions.get(ref)
            return partition.remove_dead(letters) if partition else 0

    # ---- waking ---------------------------------------------------------------------------------------------------

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait at most ``timeout`` seconds of real time for a hint of one of the queues."""
        return await self._waiters.wait(queues, timeout)

    async def hint(self, ref: PartitionRef) -> None:
        """Give a hint back, or raise one; it goes to the head."""
        with self._data.lock:
            self._data.queue(ref.queue).hot.setdefault(ref, 0)
            self._waiters.deliver(ref.queue)

    async def tick(self, queue: str, worker: str) -> int | None:
        """Turn what is due into hints; the ms until the next due time if this worker holds the alarm."""
        with self._data.lock:
            hints, now = self._data.queue(queue), self._data.now()
            hints.tick(now)
            self._waiters.deliver(queue)
            return hints.take_alarm(worker, now)

    async def leave(self, queue: str, worker: str) -> None:
        """Offer the alarm that a worker held to another one."""
        with self._data.lock:
            self._data.queue(queue).give_up_alarm(worker)
            self._waiters.deliver(queue)

    # ---- the server ------------------------------------------------------------------------------------------------

    async def read_marker(self) -> str | None:
        """Return the mark that says which data set this is; None if there is none yet."""
        with self._data.lock:
            return self._data.marker

    async def write_marker(self, marker: str) -> str:
        """Set the mark if there is none; return the one that counts."""
        with self._data.lock:
            self._data.marker = self._data.marker or marker
            return self._data.marker

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _agree(
        self, ref: PartitionRef, topology: Topology, partitions: int, *, settled: bool, create: bool
    ) -> PartitionState:
        partition = self._data.partitions.get(ref)
        if partition is None:
            before = self._data.gone(ref)
            if create and before == "absent":
                self._data.partitions[ref] = Partition(ref, topology.epoch, partitions, topology.settings)
            return before
        partition.agree(topology.epoch, partitions, topology.settings, settled=settled)
        self._hint_news(ref, partition, self._data.now())
        return partition.state

    def _mark(self, ref: PartitionRef, topology: Topology) -> Partition | None:
        """Return the partition, which takes no jobs from now on; None if it is a tombstone."""
        partition = self._data.partitions.get(ref)
        if partition is None:
            if self._data.gone(ref) == "tombstone":
                return None
            # Epoch 0: it has no settings yet, so those of any topology are newer.
            partition = self._data.partitions[ref] = Partition(ref, 0, 1, QueueSettings())
        partition.mark(topology, self._data.now())
        return partition

    def _live(self, ref: PartitionRef) -> Partition | None:
        """Return the partition if jobs can be in it."""
        partition = self._data.partitions.get(ref)
        return partition if partition is not None and partition.state != "closed" else None

    def _counts(self, ref: PartitionRef) -> Counts:
        partition, now = self._data.partitions.get(ref), self._data.now()
        if partition is None:
            return Counts(self._data.gone(ref), 0, 0, 0, 0, 0, 0, 0, 0, None, None, None, now)
        return partition.counts(now)

    def _hint_news(self, ref: PartitionRef, partition: Partition, now: int) -> None:
        ready, waits_until = partition.take_news()
        hints = self._data.queue(ref.queue)
        if ready:
            hints.became_ready(ref, now)
        if waits_until is not None:
            hints.waits_until(ref, waits_until)
        if ready or waits_until is not None:
            self._waiters.deliver(ref.queue)


def _token(worker: str, seq: int) -> bytes:
    return b"%b:%d" % (worker.encode(), seq)
