"""A fence in this process: for queues in memory, and the model that the scripts are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

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
        self.epoch += 1
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
        left = max(0, self.expires - self.clock()) / 1000
        return FenceView(self.epoch, self.holder, self.backend, self.rank, left, self.since)


class MemoryFence:
    """One process's view of a `FenceState` that several electors of this process share."""

    def __init__(self, state: FenceState, listeners: list[asyncio.Event]) -> None:
        self._state = state
        self._listeners = listeners

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        """See `headrace.election.fence.Fence.claim`."""
        return self._state.claim(claim, round(ttl * 1000))

    async def beat(self, token: Token, ttl: float, timeout: float) -> bool:
        """See `headrace.election.fence.Fence.beat`."""
        return self._state.beat(token, round(ttl * 1000))

    async def release(self, nonce: str, timeout: float) -> None:
        """See `headrace.election.fence.Fence.release`."""
        self._state.release(nonce)

    async def read(self, timeout: float) -> FenceView:
        """See `headrace.election.fence.Fence.read`."""
        return self._state.view()

    async def announce(self, timeout: float) -> None:
        """Wake every listener; all must run in one event loop."""
        for event in self._listeners:
            event.set()

    async def announcements(self) -> AsyncIterator[None]:
        """See `headrace.election.fence.Fence.announcements`."""
        event = asyncio.Event()
        self._listeners.append(event)
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            self._listeners.remove(event)

    async def close(self) -> None:
        """Nothing to give up."""
