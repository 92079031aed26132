"""One of several operators works at a time: the one that holds the Lease.

The election is the library's, with one lock, the Lease, and a fence of this process alone: what an operator changes in
Redis is guarded by compare-and-set there, and what it writes to the API server by asking before each write whether the
Lease is still valid.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from headrace.election import FAST, STANDARD, Callbacks, Elector, RankedLock, Reason, Term, Timings
from headrace.election.backends.lease import LeaseLock
from headrace.election.memory_fence import FenceState, Listeners, MemoryFence
from headrace.election.thread import ElectorThread
from headrace_operator.api.names import MANAGED_BY_LABEL, OPERATOR

Profile = Literal["off", "standard", "fast"]
TIMINGS: dict[Profile, Timings] = {"standard": STANDARD, "fast": FAST}

log = logging.getLogger("headrace.operator")


class Leadership:
    """Runs ``work`` whenever this process leads, and cancels it when it does not any more.

    ``lease``: name and namespace of the Lease, made if it is missing. Profile ``off``: this process always leads, and
    has to be the only one.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], *, profile: Profile, lease: tuple[str, str | None]) -> None:
        self._work = work
        self._profile = profile
        self._lease = lease
        self._thread: ElectorThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def may_write(self) -> bool:
        """Whether this process leads now, as far as any clock can tell. Any thread may ask."""
        return self._profile == "off" or (self._thread is not None and self._thread.is_leader())

    def check(self) -> None:
        """Raise RuntimeError unless the election goes on, and work that was cancelled has ended."""
        if self._thread is not None and not self._thread.healthy():
            raise RuntimeError("the election has ended, or the work of a term that is over goes on")

    async def run(self) -> None:
        """Campaign and work until cancelled; the Lease is free a moment after the work has ended."""
        if self._profile == "off":
            await self._work()
            return
        self._loop = asyncio.get_running_loop()
        self._thread = ElectorThread(self._elector)
        self._thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            # Shielded: who cancels twice still wants the Lease to be free.
            await asyncio.shield(asyncio.ensure_future(self._thread.stop()))

    def _elector(self) -> Elector:
        name, namespace = self._lease
        lock = LeaseLock(name, namespace, labels={MANAGED_BY_LABEL: OPERATOR})
        fence = MemoryFence(FenceState(lambda: time.monotonic_ns() // 1_000_000), Listeners())
        timings = TIMINGS[self._profile]
        return Elector([RankedLock("lease", 1, lock)], fence, _Hooks(self._work), timings, application=self._loop)


class _Hooks(Callbacks):
    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    async def on_started(self, term: Term) -> None:
        log.info("leads now, as %s", term.identity)
        await self._work()

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        log.info("leads no more: %s", reason)

    def on_new_leader(self, identity: str) -> None:
        log.info("the leader is %s", identity)
