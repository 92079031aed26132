"""The lease keeper: renews leases from a thread of its own, so that a blocked event loop loses none.

It also watches that loop: when it does not move, the handler that blocks it is named with its stack. It gives up only
on runs that go on past their time-out plus grace, and on those that such a run keeps from beginning for so long: their
leases end, and another worker takes the jobs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

from headrace.handler import Handler
from headrace.stores.base import MAX_BATCH, MAX_SETTLE, Store
from headrace.topology import PartitionRef
from headrace.worker.cancellation import cancel_all
from headrace.worker.leases import Batch, Execution, LeaseTable, State, open_executions, reports_of
from headrace.worker.outage import Backoff, Reachability
from headrace.worker.restarts import keep_going

log = logging.getLogger("headrace.worker")

BLOCKED_SECONDS = 1.0
JOIN_SECONDS = 5.0
REPORT_SECONDS = 1.0
"""What the runs of one claim report is stored at most this often."""
_LONGEST_SLEEP = 0.5
_NEVER = float("inf")


class Keeper:
    """Runs in a thread; `start` and `stop` are called from the handlers' loop.

    ``lose`` is called in the handlers' loop with the runs whose renewal was refused. ``also`` are coroutines that run
    in the keeper's loop until it stops (the health server, which must answer while handlers block theirs).
    """

    def __init__(
        self,
        store: Store,
        leases: LeaseTable,
        reachability: Reachability,
        handlers: Mapping[str, Handler],
        heartbeat_for: Callable[[int], int],
        timeout_grace: float,
        lose: Callable[[list[Execution]], None],
        also: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._store = store
        self._leases = leases
        self._reachability = reachability
        self._codes = {_code_of(handler): handler.type for handler in handlers.values()}
        self._heartbeat_for = heartbeat_for
        self._grace = timeout_grace
        self._lose = lose
        self._also = also
        self._handlers_loop = asyncio.get_running_loop()
        self._handlers_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._main, name="headrace-keeper", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._sooner: asyncio.Event | None = None
        self._started = threading.Event()
        self._tick = _LONGEST_SLEEP
        self._asked_at = self.moved_at = self.kept_at = time.monotonic()
        """``kept_at``: when the keeper last did what it should, whatever the store answered."""
        self._blocked_logged = False

    # ---- called from the handlers' loop ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; returns when it runs."""
        self._thread.start()
        self._started.wait()

    def note_lease(self, lease_ms: int) -> None:
        """Look often enough for leases of this length."""
        tick = self._heartbeat_for(lease_ms) / 2000
        if tick < self._tick:
            self._tick = tick
            if self._loop is not None and self._sooner is not None:
                self._loop.call_soon_threadsafe(self._sooner.set)

    async def stop(self) -> None:
        """Stop renewing and end the thread; it is left behind, and that is logged, if it does not end within 5 s."""
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, JOIN_SECONDS)
        if self._thread.is_alive():
            log.error("the lease keeper did not end within %g s and is left behind", JOIN_SECONDS)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException:  # nobody else would see why the thread ends
            log.exception("the lease keeper ended; leases are no longer renewed")
        finally:
            self._started.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._sooner = asyncio.Event(), asyncio.Event()
        self._started.set()
        loops = [self._loop.create_task(keep_going("the lease keeper", self._keep))]
        if self._also is not None:
            loops.append(self._loop.create_task(keep_going("what runs beside the lease keeper", self._also)))
        try:
            await self._stop.wait()
        finally:
            await cancel_all(loops)
            await self._store.close()

    async def _keep(self) -> None:
        assert self._sooner is not None  # noqa: S101 - set before this task starts
        backoff = Backoff()
        while True:
            self._watch_loop()
            pause = self._tick
            if await self._renew():
                backoff.reset()
            else:
                pause = min(pause, backoff.next())
            self.kept_at = time.monotonic()
            self._sooner.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._sooner.wait()
            except TimeoutError:
                pass

    async def _renew(self) -> bool:
        """Renew what is due and store what was reported, partition by partition.

        False if the store did not answer for one of them.
        """
        due: dict[PartitionRef, list[Batch]] = {}
        for batch in self._leases.batches():
            now = time.monotonic()
            if now >= batch.renew_at or (batch.reported and now >= batch.report_at):
                due.setdefault(batch.ref, []).append(batch)
        answered = True
        for ref, batches in due.items():
            try:
                await self._renew_batches(ref, batches)
            except Exception as error:
                answered = False
                self._reachability.failed(f"renewing leases in partition {ref.label} of queue {ref.queue}", error)
        return answered

    async def _renew_batches(self, ref: PartitionRef, batches: list[Batch]) -> None:
        now = time.monotonic()
        renewed = [batch for batch in batches if now >= batch.renew_at]
        by_lease: dict[int, list[Execution]] = {}
        in_vain: set[Batch] = set()
        stalled = self._stalled_seconds(now)
        for batch in batches:
            wanted = open_executions(batch) if now >= batch.renew_at else list(batch.reported)
            kept = [execution for execution in wanted if not self._given_up(execution, now, stalled)]
            by_lease.setdefault(batch.lease_ms, []).extend(kept)
            if any(_unbegun(execution) for execution in set(wanted).difference(kept)):
                in_vain.add(batch)
            batch.report_at = now + REPORT_SECONDS
        for lease_ms, executions in by_lease.items():
            reporting = any(execution in execution.batch.reported for execution in executions)
            most = MAX_SETTLE if reporting else MAX_BATCH
            for start in range(0, len(executions), most):
                await self._renew_some(ref, executions[start : start + most], lease_ms)
        for batch in renewed:
            if batch not in in_vain:  # else these ask for their leases before they begin
                batch.held_until = max(batch.held_until, now + batch.lease_ms / 1000)
            batch.renew_at = now + self._heartbeat_for(batch.lease_ms) / 1000

    async def _renew_some(self, ref: PartitionRef, executions: list[Execution], lease_ms: int) -> None:
        leases = [execution.settled for execution in executions]
        with reports_of(executions) as reports:
            refused = await self._store.renew(ref, leases, lease_ms, reports)
        self._reachability.answered()
        self.kept_at = time.monotonic()
        if refused:
            lost = [executions[index] for index in refused]
            self._handlers_loop.call_soon_threadsafe(self._lose, lost)

    def _given_up(self, execution: Execution, now: float, stalled: float) -> bool:
        if _unbegun(execution):
            return execution.lost or stalled > execution.timeout_ms / 1000 + self._grace
        return self._hung(execution, now)

    def _hung(self, execution: Execution, now: float) -> bool:
        return execution.lost or (execution.state == State.RUNNING and now > execution.given_up_at(self._grace))

    def _stalled_seconds(self, now: float) -> float:
        """Return for how long nothing could begin, 0 if what blocks the loop may be a run whose lease is renewed."""
        blocked = self.blocked_seconds()
        if blocked < BLOCKED_SECONDS:
            return 0.0
        for batch in self._leases.batches():
            for each in open_executions(batch):
                in_loop = each.state == State.RUNNING and not each.handler.in_thread and not _unbegun(each)
                if in_loop and not self._hung(each, now):
                    return 0.0
        return blocked

    # ---- the watch over the handlers' loop --------------------------------------------------------------------------

    def _watch_loop(self) -> None:
        now = time.monotonic()
        if self.moved_at >= self._asked_at:
            if self._blocked_logged:
                log.warning("the event loop moves again")
                self._blocked_logged = False
            self._asked_at = now
            self._handlers_loop.call_soon_threadsafe(self._moved)
        elif now - self._asked_at >= BLOCKED_SECONDS and not self._blocked_logged:
            self._blocked_logged = True
            frame = sys._current_frames().get(self._handlers_thread)
            log.error(
                "%s has blocked the event loop for %.1f s; leases are renewed meanwhile, other handlers wait. "
                "Its stack:\n%s",
                self._culprit(frame),
                now - self._asked_at,
                "".join(traceback.format_stack(frame)),
            )

    def _moved(self) -> None:
        self.moved_at = time.monotonic()

    def blocked_seconds(self) -> float:
        """Return for how long the handlers' loop has not moved; 0 if it does."""
        return 0.0 if self.moved_at >= self._asked_at else time.monotonic() - self._asked_at

    def holds_leases(self) -> bool:
        """Whether there is a run whose lease is still renewed."""
        now = time.monotonic()
        stalled, batches = self._stalled_seconds(now), self._leases.batches()
        return any(not self._given_up(each, now, stalled) for batch in batches for each in open_executions(batch))

    def _culprit(self, frame: FrameType | None) -> str:
        while frame is not None:
            if (type := self._codes.get(frame.f_code)) is not None:
                return f"the handler of {type!r}"
            frame = frame.f_back
        return "something outside the handlers"


def _unbegun(execution: Execution) -> bool:
    """Whether nothing of its handler has run, which nothing but the event loop can begin."""
    return execution.state <= State.RUNNING and execution.deadline == _NEVER and execution.task is None


def _code_of(handler: Handler) -> CodeType | None:
    call = handler.call
    while (inner := getattr(call, "__wrapped__", None)) is not None:
        call = inner
    call = getattr(call, "func", call)
    call = getattr(call, "__func__", call)
    if not hasattr(call, "__code__"):
        call = getattr(type(call), "__call__")  # noqa: B004, B009 - an object with a method of that name
    code: CodeType | None = getattr(call, "__code__", None)
    return code
