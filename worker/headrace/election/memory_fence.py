"""A fence in this process: for queues in memory, and the model that the scripts are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from headrace.election.fence import Accepted, Answer, Claim, FenceView, Held, Stale, Token


@dataclass(slots=True)
class FenceState:
    """The fields of the fence; ``clock`` gives the milliseconds of its store. See ``lua/claim.lua`` for the rules."""

    clock: Callable[[], int]
    epoch: int = 0
    nonce: str = ""
    holder: str = ""
    backend: str = ""
    rank: int = 0
    term: int = 0
    expires: int = 0
    since: int = 0
    high: dict[str, int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock, repr=False)

    def claim(self, claim: Claim, ttl: int) -> Answer:
        """As ``lua/claim.lua``; ``ttl`` in milliseconds."""
        now = self.clock()
        if self.nonce == claim.nonce:
            self.expires = now + ttl
            return Accepted(self.epoch)
        if claim.term <= self.high.get(claim.backend, 0):
            return Stale(self.high[claim.backend])
        if now < self.expires and self.holder != claim.holder:
            newer = self.backend == claim.backend and claim.term > self.term
            if claim.rank < self.rank or (claim.rank == self.rank and not newer):
                return Held(self.rank, (self.expires - now) / 1000)
        self.epoch = max(self.epoch, claim.above) + 1
        self.nonce, self.holder, self.backend = claim.nonce, claim.holder, claim.backend
        self.rank, self.term, self.since, self.expires = claim.rank, claim.term, now, now + ttl
        self.high[claim.backend] = claim.term
        return Accepted(self.epoch)

    def admits(self, token: Token) -> bool:
        """Whether a leader script with this token would write."""
        return self.nonce != "" and (token.epoch, token.nonce) == (self.epoch, self.nonce)

    def beat(self, token: Token, ttl: int) -> bool:
        """As ``lua/beat.lua``."""
        if not self.admits(token):
            return False
        self.expires = self.clock() + ttl
        return True

    def release(self, nonce: str) -> None:
        """As ``lua/release.lua``."""
        if nonce and nonce == self.nonce:
            self.expires, self.nonce = 0, ""

    def view(self) -> FenceView:
        """As ``lua/read.lua``."""
        now = self.clock()
        left = max(0, self.expires - now) / 1000
        return FenceView(self.epoch, self.holder, self.backend, self.rank, left, self.since, now)


class Listeners:
    """Who is to be told that a lock is free; any thread and event loop."""

    def __init__(self) -> None:
        self._events: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def tell(self) -> None:
        """Wake all of them."""
        for event, loop in list(self._events.items()):
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(event.set)

    async def wait(self) -> AsyncIterator[None]:
        """Yield once for each time that they are told, or several times."""
        event = asyncio.Event()
        self._events[event] = asyncio.get_running_loop()
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            del self._events[event]


class MemoryFence:
    """One process's view of a `FenceState` that several electors of this process share, in any thread."""

    def __init__(self, state: FenceState, listeners: Listeners) -> None:
        self._state = state
        self._listeners = listeners

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        """See `headrace.election.fence.Fence.claim`."""
        with self._state.lock:
            return self._state.claim(claim, round(ttl * 1000))

    async def beat(self, token: Token, ttl: float, timeout: float) -> bool:
        """See `headrace.election.fence.Fence.beat`."""
        with self._state.lock:
            return self._state.beat(token, round(ttl * 1000))

    async def release(self, nonce: str, timeout: float) -> None:
        """See `headrace.election.fence.Fence.release`."""
        with self._state.lock:
            self._state.release(nonce)

    async def read(self, timeout: float) -> FenceView:
        """See `headrace.election.fence.Fence.read`."""
        with self._state.lock:
            return self._state.view()

    async def announce(self, timeout: float) -> None:
        """Wake every listener."""
        self._listeners.tell()

    def announcements(self) -> AsyncIterator[None]:
        """See `headrace.election.fence.Fence.announcements`."""
        return self._listeners.wait()

    async def close(self) -> None:
        """Nothing to give up."""
