"""Leases in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_FUSED, MAX_SETTLE, check_acks, check_batch, check_limit
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.finished import Success
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.working import Claim, Failure, Release, Report, Settled, token_of
from headrace.topology import PartitionRef


class MemoryWorking(MemoryAccess):
    """Implements `headrace.stores.protocols.working.WorkingSteps`."""

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspects: int = 1,
        alone: bool = False,
        successes: Sequence[Success] = (),
        fence: Fence | None = None,
    ) -> Claim:
        """Acknowledge, recover expired leases, promote what is due, and lease up to ``limit`` ready jobs."""
        check_limit(limit)
        check_acks(acks, successes, MAX_FUSED)
        token = token_of(worker, seq)
        with self._data.lock:
            hints = self._data.queue(ref.queue)
            partition = self._live(ref)
            if partition is None:
                hints.forget(ref)
                return Claim(token, refused=list(range(len(acks))), gone=True)
            now = self._data.now()
            refused = partition.ack(acks, successes, now)
            lost = partition.recover(now)
            partition.promote_due(now)
            jobs, more, next_due, room, fenced, fencing_token = partition.claim(
                token, worker, seq, limit, now + lease_ms, now, suspects=suspects, alone=alone, fence=fence
            )
            partition.take_news()
            hints.claimed(ref, more=more, next_due=next_due, now=now)
            alarm_ms = None if more else hints.take_alarm(worker, now)
            # Read before the leftovers are handed out: it tells this worker where to go on.
            following = None if hints.rearm else hints.first()
            self._waiters.deliver(ref.queue)
            return Claim(token, jobs, refused, False, now, following, alarm_ms, room, fenced, fencing_token, lost)

    async def resume(self, ref: PartitionRef, worker: str, seq: int, lease_ms: int) -> Claim:
        """Return again the batch of an earlier claim whose reply was lost, its leases renewed."""
        token = token_of(worker, seq)
        with self._data.lock:
            partition = self._live(ref)
            if partition is None:
                return Claim(token, gone=True)
            now = self._data.now()
            jobs, fencing_token = partition.resume(token, now + lease_ms, now)
            return Claim(token, jobs, now=now, fencing_token=fencing_token)

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled], successes: Sequence[Success] = ()) -> list[int]:
        """Remove finished jobs; the indexes that were not leased under their token."""
        check_acks(acks, successes)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(acks)))
            refused = partition.ack(acks, successes, self._data.now())
            self._hint_news(ref, partition, self._data.now())
            return refused

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failed runs; the refused indexes."""
        check_batch(failures, MAX_SETTLE)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(failures)))
            now = self._data.now()
            refused = partition.fail(failures, now)
            self._hint_news(ref, partition, now)
            return refused

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand jobs back without costing an attempt; the refused indexes."""
        check_batch(releases, MAX_SETTLE)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(releases)))
            now = self._data.now()
            refused = partition.release(releases, now)
            self._hint_news(ref, partition, now)
            return refused

    async def renew(
        self, ref: PartitionRef, leases: Sequence[Settled], lease_ms: int, reports: Sequence[Report] = ()
    ) -> list[int]:
        """Extend leases to now + ``lease_ms``, and keep what their runs report; the refused indexes."""
        check_batch(leases)
        check_batch(reports, MAX_SETTLE)
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return list(range(len(leases)))
            return partition.renew(leases, lease_ms, reports, self._data.now())

    async def recover(self, ref: PartitionRef) -> int:
        """Return jobs with expired leases to ready; the number of them."""
        with self._data.lock:
            if (partition := self._live(ref)) is None:
                return 0
            now = self._data.now()
            recovered = len(partition.recover(now))
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
