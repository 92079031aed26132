"""Waiting for jobs: looks again and again, soon at first, at most once a second, sooner again when something changed.

A look costs a step per partition and 200 jobs that have not ended. Looks that take long come less often.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing

from headrace.errors import AccessDenied, InvalidInput, RetentionOff, StoreUnavailable, WaitTimeout
from headrace.inquiry import Inquiry
from headrace.job_status import JobStatus, State
from headrace.stores.base import Store
from headrace.topology import check_queue_name

FIRST_SECONDS, LONGEST_SECONDS, SLOWEST_SECONDS, GROWTH = 0.02, 1.0, 5.0, 1.6
DEFAULT_TIMEOUT = 60.0
WAITABLE = ("scheduled", "ready", "leased", "retry_wait", "parked", "dead", "succeeded")


class Pace:
    """Pauses between looks, until a time-out. Seconds; ``timeout`` None: for ever."""

    def __init__(
        self,
        timeout: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if timeout is not None and not timeout >= 0:
            raise InvalidInput("timeout", f"is {timeout}", "give seconds, 0 or more, or None to wait for ever")
        self._clock = clock
        self._sleep = sleep
        self._uniform = uniform
        self._ends = None if timeout is None else clock() + timeout
        self._pause = FIRST_SECONDS
        self._looked_at = clock()

    def looking(self) -> None:
        """Take note that a look begins."""
        self._looked_at = self._clock()

    async def pause(self, *, changed: bool) -> bool:
        """Wait before the next look; False, at once, if the time is over."""
        if changed:
            self._pause = max(FIRST_SECONDS, self._pause / 4)
        took = self._clock() - self._looked_at
        seconds = max(self._uniform(0.75, 1.25) * self._pause, min(took * 9, SLOWEST_SECONDS))
        self._pause = min(LONGEST_SECONDS, self._pause * GROWTH)
        if self._ends is not None:
            left = self._ends - self._clock()
            if left <= 0:
                return False
            seconds = min(seconds, left)
        await self._sleep(seconds)
        return True


class Waiter:
    """Waits for jobs of one queue. ``check``: raises if nobody may wait any more (the connection is closed)."""

    def __init__(self, store: Store, queue: str, check: Callable[[], None]) -> None:
        self._store = store
        self._queue = check_queue_name(queue)
        self._check = check

    async def changes(self, ids: Iterable[str], pace: Pace) -> AsyncGenerator[JobStatus, None]:
        """Yield the status of each job at once and whenever it is another one, until all have ended.

        States that a job passes through between two looks are not seen. Raises RetentionOff and WaitTimeout.
        """
        inquiry = Inquiry(self._store, self._queue)
        if not (await inquiry.topology()).settings.keeps_finished:
            raise RetentionOff(self._queue)
        wanted = list(dict.fromkeys(ids))
        known: dict[str, JobStatus] = {}
        problem: StoreUnavailable | None = None
        while open := [id for id in wanted if id not in known or not known[id].ended]:
            self._check()
            pace.looking()
            changed = False
            try:
                found = await inquiry.look(open)
                problem = None
            except AccessDenied:
                raise
            except StoreUnavailable as error:
                found, problem = {}, error
            for id, status in found.items():
                before = known.get(id)
                if before is None or before.state != status.state:
                    changed = True
                    known[id] = status
                    yield status
            if all(status.ended for status in known.values()) and len(known) == len(wanted):
                return
            if not await pace.pause(changed=changed):
                raise WaitTimeout(self._queue, known) from problem

    async def until(self, ids: Sequence[str], status: State | None, pace: Pace) -> dict[str, JobStatus]:
        """Wait until each job has ended or, with ``status``, was seen in that state; the last status seen of each."""
        if status is not None and status not in WAITABLE:
            raise InvalidInput("status", f"is {status!r}", f"give one of {', '.join(WAITABLE)}, or None for the end")
        found: dict[str, JobStatus] = {}
        left = set(ids)
        if left:
            async with aclosing(self.changes(ids, pace)) as changes:
                async for each in changes:
                    found[each.id] = each
                    if each.ended or each.state == status:
                        left.discard(each.id)
                    if not left:
                        break
        return {id: found[id] for id in dict.fromkeys(ids)}

    async def until_empty(self, pace: Pace) -> None:
        """Wait until no job of the queue is live. Raises WaitTimeout."""
        inquiry = Inquiry(self._store, self._queue)
        before = -1
        problem: StoreUnavailable | None = None
        while True:
            self._check()
            pace.looking()
            try:
                topology = await inquiry.topology()
                refs = [ref for version in topology.versions for ref in topology.refs(version)]
                live = sum(counts.live for counts in await self._store.counts(refs))
                problem = None
            except AccessDenied:
                raise
            except StoreUnavailable as error:
                live, problem = before, error
            if live == 0:
                return
            if not await pace.pause(changed=live != before):
                raise WaitTimeout(self._queue, {}, live=live) from problem
            before = live
