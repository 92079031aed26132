"""The claim loop: free slots and hints in, leased jobs out.

A claim reserves slots for what it may bring. When its answer is lost they serve other partitions, and what it took all
the same gets the slots that are free when that is known; the rest is handed back. Until then, or until its leases must
have ended, it counts against ``max_in_flight``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from headrace.errors import DataDamaged
from headrace.stores.base import Claim, Fence, Lost, Store
from headrace.topology import PartitionRef
from headrace.worker.cancellation import cancel_all
from headrace.worker.execution import Executor
from headrace.worker.hints import QueueHints, Rotation
from headrace.worker.leases import Batch, LeaseTable
from headrace.worker.metrics import Metrics
from headrace.worker.outage import Backoff, Reachability
from headrace.worker.policies import Policies
from headrace.worker.seclusion import Seclusion, group_size
from headrace.worker.settings import WorkerSettings
from headrace.worker.settlements import Outbox, Settlements

log = logging.getLogger("headrace.worker")

CLAIMS_AT_ONCE = 2
"""Two, so that the store works on one while the jobs of the other run."""
APART_SECONDS = 0.001
"""While runs are swift, two claims begin at least this far apart: sent together, they would be answered together, and
store and worker would wait for each other."""
SPLIT_ABOVE = 32
"""Free slots above this are shared between two claims, where none is on its way."""
GATHER_SECONDS = 0.002
"""Claims for a few freed slots are at least this far apart, so that a busy worker asks for many jobs at once."""


@dataclass(slots=True)
class Doubt:
    """A claim without an answer: it may have leased so many ``jobs``, ``suspects`` among them."""

    jobs: int
    suspects: int


class Claims:
    """Claims jobs for the free slots, one partition per call, in the order of the hints."""

    def __init__(
        self,
        worker: str,
        store: Store,
        settings: WorkerSettings,
        policies: Policies,
        executor: Executor,
        leases: LeaseTable,
        settlements: Settlements,
        reachability: Reachability,
        metrics: Metrics,
        *,
        on_lease: Callable[[int], None],
        on_alarm: Callable[[str, int], None],
        on_gone: Callable[[str], None],
        on_lost: Callable[[PartitionRef, Sequence[Lost], int], None],
        on_fenced: Callable[[PartitionRef, Fence | None], None],
        epoch_of: Callable[[str], Callable[[], int | None]],
        fence_of: Callable[[str], Fence | None],
    ) -> None:
        self._worker = worker
        self._store = store
        self._settings = settings
        self._policies = policies
        self._executor = executor
        self._leases = leases
        self._settlements = settlements
        self._reachability = reachability
        self._metrics = metrics
        self._on_lease = on_lease
        self._on_alarm = on_alarm
        self._on_gone = on_gone
        self._on_lost = on_lost
        self._on_fenced = on_fenced
        self._epoch_of = epoch_of
        self._fence_of = fence_of
        self._seq: Iterator[int] = count(1)
        self._reserved = 0
        self._doubtful = 0
        self._places = settings.concurrency + settings.queue_buffer
        self._group = group_size(settings.concurrency)
        self._suspects_asked = 0
        self._seclusion = Seclusion()
        self._in_doubt: Counter[PartitionRef] = Counter()
        self._backoff = Backoff()
        self._damaged: dict[PartitionRef, Backoff] = {}
        """Partitions in which somebody else has written, with the pauses between two tries."""
        self._not_before = float("-inf")
        self._calls: set[asyncio.Task[None]] = set()
        self._open_calls = 0
        self._asked: dict[int, float] = {}
        self._claimed_at = float("-inf")
        self._wake: asyncio.Future[None] | None = None
        self._wanted = 1
        self._stopping = False
        self._roomy = asyncio.Event()
        self.rotation = Rotation(settings.weights_of_queues)
        self.clock_ahead: float | None = None
        """Seconds by which this machine's clock is ahead of the store's. Nothing depends on it; people want to know."""
        self.cycled_at = time.monotonic()
        """When the loop last did what it should: claimed, or found all slots taken, or waited for a wake-up."""

    def unanswered_seconds(self) -> float:
        """Return for how long the oldest claim that has no answer yet, nor an error, has been on its way."""
        now = time.monotonic()
        return now - min(list(self._asked.values()), default=now)

    # ---- slots -------------------------------------------------------------------------------------------------------

    def capacity(self) -> int:
        """Jobs that may be claimed now."""
        if self._seclusion or self._leases.alone:
            return 0  # a job must run alone, or does
        places = self._places - self._executor.occupied + self._executor.room
        return min(places, self._settings.in_flight_limit - self._leases.held - self._doubtful) - self._reserved

    async def wait_for_capacity(self) -> None:
        """Wait until there is a free slot."""
        while self.capacity() <= 0:
            self._roomy.clear()
            await self._roomy.wait()

    def hint(self, ref: PartitionRef) -> None:
        """Note a partition that is worth a claim."""
        self.rotation.queues[ref.queue].add(ref)
        self._notify()

    def pause(self, queue: str, reason: str) -> list[PartitionRef]:
        """Claim nothing from a queue; the partitions that were hinted at, for others."""
        self._seclusion.drop(queue)
        return self.rotation.queues[queue].pause(reason)

    def resume(self, queue: str, reason: str) -> None:
        """Claim from a queue again, unless it is paused for another reason too."""
        self.rotation.queues[queue].resume(reason)

    @property
    def paused(self) -> bool:
        """Whether this worker is to claim from no queue now."""
        return all(hints.paused for hints in self.rotation.queues.values())

    def _reserve(self, hints: QueueHints, jobs: int) -> None:
        self._reserved += jobs
        hints.reserved += jobs

    # ---- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim until `stop`."""
        while not self._stopping:
            if self._seclusion:
                await self._make_room()
                continue
            free = self.capacity()
            if free > 0:
                self._roomy.set()
            if free <= 0 or self._open_calls >= CLAIMS_AT_ONCE or not self.rotation:
                self.cycled_at = time.monotonic()
                await self._sleep(None, wanted=1)
                continue
            if (pause := self._not_before - time.monotonic()) > 0:
                await self._sleep(pause, wanted=1)
                continue
            pause = self._claimed_at + GATHER_SECONDS - time.monotonic()
            enough = min(self._settings.claim_limit, max(1, self._settings.concurrency // 4))
            if free < enough and pause > 0:
                await self._sleep(pause, wanted=enough)
                continue
            swift = self._executor.swift
            if swift and self._open_calls and (pause := self._claimed_at + APART_SECONDS - time.monotonic()) > 0:
                await self._sleep(pause, wanted=1)
                continue
            wanted = min(free, self._share(free, swift), self._settings.claim_limit)
            turn = self.rotation.take(wanted, self._places, self._executor.by_queue)
            if turn is None:
                await self._sleep(None, wanted=1)
                continue
            if turn.ref in self._in_doubt:
                # No claim follows that would say whether the queue is dry, and nobody waits for hints before that.
                turn.hints.settle()
                continue
            if swift and turn.plenty and not turn.hints.refs:
                turn.hints.add(turn.ref)  # for the claim beside this one; it comes back empty at the end of a backlog
            self._begin(turn.ref, turn.limit)

    def _share(self, free: int, swift: int) -> int:
        """Return how many jobs one of two claims takes at most, of the ``free`` slots or of all that may be here."""
        if swift:
            return (max(self._places, swift) + 1) // 2
        return (free + 1) // 2 if free > SPLIT_ABOVE and not self._open_calls else free

    async def _make_room(self) -> None:
        """Claim nothing until nothing runs; then take the job that must run alone, if nobody else has."""
        self.cycled_at = now = time.monotonic()
        step = self._seclusion.next(idle=self._executor.idle, now=now)
        if self._open_calls or self._leases.alone:
            await self._sleep(None, wanted=0)
            return
        if (pause := max(step.wait, self._not_before - now)) > 0:
            await self._sleep(pause, wanted=0)
            return
        self._seclusion.stepped(now)
        self._begin(step.ref, self._settings.claim_limit if step.alone else 0, alone=step.alone)

    def _begin(self, ref: PartitionRef, limit: int, *, alone: bool = False) -> None:
        hints = self.rotation.queues[ref.queue]
        if self._damaged and ref in self._damaged:
            limit = min(limit, 1)  # a script that stumbles half-way has taken no more from the lists
        self._claimed_at = time.monotonic()
        self._reserve(hints, limit)
        hints.calls += 1
        self._open_calls += 1
        call = asyncio.get_running_loop().create_task(self._claim(hints, ref, limit, alone=alone))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def stop(self, timeout: float) -> None:
        """Claim no more; wait at most ``timeout`` seconds for the claims on their way, whose jobs are handed back."""
        self._stopping = True
        self._notify()
        if self._calls:
            await asyncio.wait(self._calls, timeout=timeout)
        await cancel_all(self._calls)

    async def _sleep(self, timeout: float | None, wanted: int) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        self._wanted = wanted
        self._executor.on_free = self._slot_freed
        timer = None if timeout is None else loop.call_later(timeout, self._notify)
        try:
            await self._wake
        finally:
            self._wake = None
            self._executor.on_free = None
            if timer is not None:
                timer.cancel()

    def _slot_freed(self) -> None:
        if self.capacity() >= self._wanted:
            self._notify()
        else:
            self._executor.on_free = self._slot_freed

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # ---- one claim ---------------------------------------------------------------------------------------------------

    async def _claim(self, hints: QueueHints, ref: PartitionRef, limit: int, *, alone: bool) -> None:
        seq = next(self._seq)
        lease_ms = self._policies.lease_ms(ref.queue)
        self._on_lease(lease_ms)
        outbox = self._settlements.outbox(ref)
        acks, successes = self._settlements.take_acks(outbox)
        self._settlements.flush()
        taken_at = self._asked[seq] = time.monotonic()
        # Few suspects at a time, so that few must run alone if the process ends.
        suspects = max(0, min(limit, self._group - self._leases.suspects - self._suspects_asked))
        self._suspects_asked += suspects
        fence = self._fence_of(ref.queue)
        try:
            claim = await self._store.claim(
                ref,
                self._worker,
                seq,
                limit,
                lease_ms,
                [execution.settled for execution in acks],
                suspects=suspects,
                alone=alone,
                successes=successes,
                fence=fence,
            )
        except BaseException as error:
            del self._asked[seq]
            self._settlements.return_acks(outbox, acks, error)
            if not isinstance(error, Exception):
                raise
            self._reachability.failed(f"claiming from partition {ref.label} of queue {ref.queue}", error)
            pauses = None
            if isinstance(error, DataDamaged):  # that is the trouble of this partition alone
                pauses = self._damaged.setdefault(ref, Backoff())
            else:
                self._metrics.store_unavailable()
                self._not_before = time.monotonic() + self._backoff.next()
            self._seclusion.answered(ref, asked=False, taken=False)
            await self._resume(hints, ref, seq, Doubt(limit, suspects), lease_ms, pauses, alone=alone)
            return
        del self._asked[seq]
        if self._damaged:
            self._damaged.pop(ref, None)
        self._reachability.answered()
        if claim.now:
            answered_at = time.monotonic()
            self.clock_ahead = time.time() - (answered_at - taken_at) / 2 - claim.now / 1000
        self._backoff.reset()
        self._not_before = float("-inf")
        self._settlements.confirm_acks(outbox, acks, range(len(acks)) if claim.gone else claim.refused)
        self._deliver(outbox, claim, lease_ms, taken_at)
        self._suspects_asked -= suspects
        self._seclusion.answered(ref, asked=claim.make_room, taken=alone and self._leases.alone > 0, alone=alone)
        plenty = 0 < len(claim.jobs) == limit
        if claim.next_hint is not None:
            hints.add(claim.next_hint)
        if plenty and (claim.next_hint is None or self._executor.swift):
            hints.add(ref, plenty=True)
        if claim.lost:
            self._on_lost(ref, claim.lost, claim.now)
        if claim.gone:
            self._on_gone(ref.queue)
        if claim.fenced:
            self._on_fenced(ref, fence)
        if claim.alarm_ms is not None:
            self._on_alarm(ref.queue, claim.alarm_ms)
        self.cycled_at = time.monotonic()
        self._reserve(hints, -limit)
        self._close_call(hints)

    def _deliver(self, outbox: Outbox, claim: Claim, lease_ms: int, taken_at: float, places: int | None = None) -> None:
        if claim.jobs:
            if self._leases.alone or self.rotation.queues[outbox.ref.queue].paused:
                places = 0  # asked for before it was known that a job must run alone, or that none is to be taken
            renew_after_ms = self._settings.heartbeat_for(lease_ms)
            epoch = self._epoch_of(outbox.ref.queue)
            batch = Batch(
                outbox, claim.token, lease_ms, renew_after_ms, claim.now, taken_at, epoch, claim.fencing_token
            )
            self._executor.accept(batch, claim, places=places)
            self._metrics.claimed(outbox.ref.queue, batch.open.values())

    def _close_call(self, hints: QueueHints) -> None:
        self._open_calls -= 1
        hints.calls -= 1
        hints.settle()
        self._notify()

    async def _resume(
        self,
        hints: QueueHints,
        ref: PartitionRef,
        seq: int,
        doubt: Doubt,
        lease_ms: int,
        pauses: Backoff | None,
        *,
        alone: bool,
    ) -> None:
        """Find out what a claim without an answer took, before anything else is claimed from this partition.

        Other partitions go on meanwhile. ``pauses``: the claim met damage; this partition waits so long for the next
        try, and nothing is in doubt during that time.
        """
        self._in_doubt[ref] += 1
        self._reserve(hints, -doubt.jobs)
        self._doubtful += doubt.jobs
        self._close_call(hints)
        loop = asyncio.get_running_loop()
        leases_end = loop.call_later(lease_ms / 1000, self._settle_doubt, doubt)
        retries = pauses or Backoff()
        # The store has answered a claim that met damage, and may have leased before: that is asked at once.
        pause = 0.0 if pauses else retries.next()
        try:
            while True:
                await asyncio.sleep(pause)
                taken_at = time.monotonic()
                try:
                    claim = await self._store.resume(ref, self._worker, seq, lease_ms)
                except Exception as error:
                    self._reachability.failed(f"resuming a claim from partition {ref.label} of {ref.queue}", error)
                    if not isinstance(error, DataDamaged):
                        self._metrics.store_unavailable()
                    elif pauses:
                        # The claim has stumbled over that too, before it leased anything: it reads first what RESUME
                        # reads, and the lease hash is the last that it writes.
                        self._settle_doubt(doubt)
                    pause = retries.next()
                    continue
                break
        finally:
            leases_end.cancel()
            self._settle_doubt(doubt)
        self._reachability.answered()
        # What it was to run alone it cannot, if others have begun meanwhile.
        places = 0 if alone and not self._executor.idle else max(0, self.capacity())
        self._deliver(self._settlements.outbox(ref), claim, lease_ms, taken_at, places=places)
        if pauses and not pause:  # by a timer, so that the end of the worker does not wait for it
            loop.call_later(pauses.next(), self._claim_again, hints, ref)
        else:
            self._claim_again(hints, ref)

    def _claim_again(self, hints: QueueHints, ref: PartitionRef) -> None:
        self._in_doubt[ref] -= 1
        if not self._in_doubt[ref]:
            del self._in_doubt[ref]
        hints.add(ref)
        self._notify()

    def _settle_doubt(self, doubt: Doubt) -> None:
        """Count its jobs no longer: it is known what they are, or their leases must have ended. Idempotent."""
        self._doubtful -= doubt.jobs
        self._suspects_asked -= doubt.suspects
        doubt.jobs = doubt.suspects = 0
        self._notify()
