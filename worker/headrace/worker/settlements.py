"""Outcomes on their way to the store: pooled per partition, sent in batches, kept until the store has confirmed them.

An acknowledgement waits at most 2 ms for others, or goes along with the next claim of its partition. Whatever the
store does not answer is sent again, for minutes if need be; its lease is renewed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from headrace.errors import not_applied
from headrace.stores.base import MAX_BATCH, MAX_FUSED, MAX_SETTLE, Failure, Release, Store, Success, Unknown
from headrace.topology import PartitionRef
from headrace.worker.cancellation import cancel_all
from headrace.worker.failures import FailureLog
from headrace.worker.leases import Execution, LeaseTable, State, reports_of
from headrace.worker.metrics import Metrics, Outcome
from headrace.worker.outage import Backoff, Reachability
from headrace.worker.outcomes import Failed, HandedBack, Parked
from headrace.worker.results import Results

log = logging.getLogger("headrace.worker")

POOL_SECONDS = 0.002
_ENDED = State.ENDED
"""Looked up once: as an attribute of its class it costs as much as the rest of taking an outcome in."""
T = TypeVar("T", Failure, Release, Unknown)


class Outbox:
    """What one partition has to be told."""

    __slots__ = ("__weakref__", "acks", "dirty", "failures", "parks", "ref", "releases", "sending")

    def __init__(self, ref: PartitionRef) -> None:
        self.ref = ref
        self.acks: list[Execution] = []
        self.failures: list[tuple[Execution, Failure, Outcome]] = []
        self.releases: list[tuple[Execution, Release, Outcome]] = []
        self.parks: list[tuple[Execution, Unknown, Outcome]] = []
        self.dirty = False
        self.sending = False

    @property
    def pending(self) -> int:
        """Number of outcomes that wait to be sent."""
        return len(self.acks) + len(self.failures) + len(self.releases) + len(self.parks)

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return self.pending == 0


class Settlements:
    """All outboxes, and the tasks that send them; an outcome waits ``pool_seconds`` for others."""

    def __init__(
        self,
        store: Store,
        leases: LeaseTable,
        reachability: Reachability,
        metrics: Metrics,
        failures: FailureLog,
        results: Results,
        pool_seconds: float = POOL_SECONDS,
    ) -> None:
        self._store = store
        self._leases = leases
        self._reachability = reachability
        self._metrics = metrics
        self._failures = failures
        self._results = results
        # Kept by its batches and senders: partitions come and go with every version of a queue.
        self._outboxes: WeakValueDictionary[PartitionRef, Outbox] = WeakValueDictionary()
        self._dirty: list[Outbox] = []
        self._timer: asyncio.TimerHandle | None = None
        self._senders: set[asyncio.Task[None]] = set()
        self._pool_seconds = pool_seconds
        self.on_confirmed: Callable[[], None] | None = None
        """Called after outcomes have been confirmed: fewer jobs are in flight."""

    def outbox(self, ref: PartitionRef) -> Outbox:
        """Return the outbox of a partition."""
        found = self._outboxes.get(ref)
        if found is None:
            found = self._outboxes[ref] = Outbox(ref)
        return found

    # ---- taking outcomes in ----------------------------------------------------------------------------------------

    def succeeded(self, execution: Execution) -> None:
        """Acknowledge a finished job."""
        execution.state = _ENDED
        outbox = execution.batch.outbox
        outbox.acks.append(execution)
        if not outbox.dirty:
            self._touch(outbox)

    def end(self, execution: Execution, decision: Failed | HandedBack | Parked) -> None:
        """Record a failed run, hand a job back, or park it."""
        execution.state = State.ENDED
        outbox = execution.batch.outbox
        key, token = execution.settled
        if isinstance(decision, Failed):
            failure = Failure(key, token, decision.delay_ms, decision.error, decision.status)
            outbox.failures.append((execution, failure, decision.outcome))
        elif isinstance(decision, Parked):
            outbox.parks.append((execution, Unknown(key, token, execution.job.type), decision.outcome))
        else:
            release = Release(key, token, decision.delay_ms, decision.note)
            outbox.releases.append((execution, release, decision.outcome))
        if not outbox.dirty:
            self._touch(outbox)

    def take_acks(self, outbox: Outbox, most: int = MAX_FUSED) -> tuple[list[Execution], list[Success]]:
        """Take acknowledgements to send them along with a claim; then `confirm_acks` or `return_acks`.

        With them comes what the store is told of these jobs, nothing if the queue keeps no finished jobs.
        """
        successes: list[Success] = []
        if outbox.acks and self._results.keeps(outbox.ref.queue):
            successes = self._results.successes(outbox.acks[:most])
            most = len(successes)
        if len(outbox.acks) <= most:
            taken, outbox.acks = outbox.acks, []
        else:
            taken, outbox.acks = outbox.acks[:most], outbox.acks[most:]
        return taken, successes

    def confirm_acks(self, outbox: Outbox, acks: list[Execution], refused: Sequence[int]) -> None:
        """Close acknowledged jobs; ``refused`` are indexes into ``acks``."""
        if acks:
            lost = self._close(acks, refused)
            if len(acks) > len(refused):
                succeeded = [each for index, each in enumerate(acks) if index not in refused] if refused else acks
                self._metrics.settled(outbox.ref.queue, "succeeded", succeeded)
            self._report_lost(outbox.ref.queue, lost)

    def return_acks(self, outbox: Outbox, acks: list[Execution], error: BaseException) -> None:
        """Put acknowledgements back after a call that gave no answer."""
        _mark_resent(acks, error)
        outbox.acks[:0] = acks
        if outbox.acks and not outbox.dirty:
            self._touch(outbox)

    # ---- sending ---------------------------------------------------------------------------------------------------

    def _touch(self, outbox: Outbox) -> None:
        outbox.dirty = True
        self._dirty.append(outbox)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pool_seconds, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self.flush()

    def flush(self) -> None:
        """Send what waits of all partitions: a call that is made at the same time goes in the same round trip."""
        dirty, self._dirty = self._dirty, []
        for outbox in dirty:
            outbox.dirty = False
            if not outbox.sending and not outbox.empty:
                outbox.sending = True
                sender = asyncio.get_running_loop().create_task(self._send(outbox))
                self._senders.add(sender)
                sender.add_done_callback(self._senders.discard)

    async def _send(self, outbox: Outbox) -> None:
        backoff = Backoff()
        try:
            while not outbox.empty:
                try:
                    await self._send_once(outbox)
                except Exception as error:
                    self._reachability.failed(f"sending results to partition {outbox.ref.label}", error)
                    self._metrics.store_unavailable()
                    await asyncio.sleep(backoff.next())
                else:
                    self._reachability.answered()
                    backoff.reset()
        finally:
            outbox.sending = False

    async def _send_once(self, outbox: Outbox) -> None:
        if outbox.acks:
            acks, successes = self.take_acks(outbox, MAX_BATCH)
            try:
                refused = await self._store.ack(outbox.ref, [execution.settled for execution in acks], successes)
            except BaseException as error:
                _mark_resent(acks, error)
                outbox.acks[:0] = acks
                raise
            self.confirm_acks(outbox, acks, refused)
        if outbox.failures:
            await self._send_list(outbox, outbox.failures, self._store.fail)
        if outbox.releases:
            await self._send_list(outbox, outbox.releases, self._store.release)
        if outbox.parks:
            await self._send_list(outbox, outbox.parks, self._store.park)

    async def _send_list(
        self,
        outbox: Outbox,
        pending: list[tuple[Execution, T, Outcome]],
        send: Callable[[PartitionRef, Sequence[T]], Awaitable[list[int]]],
    ) -> None:
        batch = pending[:MAX_SETTLE]
        del pending[: len(batch)]
        executions = [execution for execution, _, _ in batch]
        try:
            await self._send_reports(outbox.ref, executions)
            refused = await send(outbox.ref, [element for _, element, _ in batch])
        except BaseException as error:
            _mark_resent(executions, error)
            pending[:0] = batch
            raise
        lost = self._close(executions, refused)
        outcomes: dict[Outcome, list[Execution]] = {}
        for index, (execution, element, outcome) in enumerate(batch):
            if index not in refused:
                outcomes.setdefault(outcome, []).append(execution)
                if isinstance(element, Failure):
                    tell = self._failures.died if element.delay_ms is None else self._failures.failed
                    tell(execution.job, element.error)
        for outcome, runs in outcomes.items():
            self._metrics.settled(outbox.ref.queue, outcome, runs)
        self._report_lost(outbox.ref.queue, lost)

    async def _send_reports(self, ref: PartitionRef, executions: Sequence[Execution]) -> None:
        """Store what runs that did not succeed have reported, for their next runs and whoever looks at the jobs."""
        reporting = [execution for execution in executions if execution in execution.batch.reported]
        if reporting:
            with reports_of(reporting) as reports:
                leases = [execution.settled for execution in reporting]
                await self._store.renew(ref, leases, reporting[0].batch.lease_ms, reports)

    def _close(self, executions: list[Execution], refused: Sequence[int]) -> list[Execution]:
        """Forget jobs whose outcome is definitive; return those whose lease turns out to be lost only now."""
        lost = []
        for index in refused:
            execution = executions[index]
            if not execution.resent and not execution.lost:
                execution.lost = True
                lost.append(execution)
        drop, over = self._leases.drop, State.OVER
        for execution in executions:
            execution.state = over
            drop(execution)
        if self.on_confirmed is not None:
            self.on_confirmed()
        return lost

    def _report_lost(self, queue: str, lost: list[Execution]) -> None:
        if lost:
            self._metrics.leases_lost(queue, len(lost))
            self._metrics.acks_refused(queue, len(lost))
            log.warning(
                "queue %s: the result of %d finished job(s) was refused: the lease had ended, or the job was cancelled "
                "(first: %s, type %s)",
                queue,
                len(lost),
                lost[0].job.id,
                lost[0].job.type,
            )

    # ---- the end ---------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Send everything from now on without waiting for more."""
        self._pool_seconds = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    async def drain(self, timeout: float) -> int:
        """Wait at most ``timeout`` seconds until all is confirmed; return the number of outcomes that are not."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        self.hurry()
        while self._leases.held and self._senders and (left := ends - loop.time()) > 0:
            await asyncio.wait(self._senders, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            self.hurry()
        await cancel_all(self._senders)
        return sum(box.pending for box in self._outboxes.values())


def _mark_resent(executions: list[Execution], error: BaseException) -> None:
    """A call without an answer may have been applied; one that the store refused was not."""
    if not not_applied(error):
        for execution in executions:
            execution.resent = True
