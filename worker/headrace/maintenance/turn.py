"""A leader's turn: what it may do, asked before each step, and how fast."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from headrace.election.fence import Token
from headrace.stores.base import Counts, Fence, Store
from headrace.topology import PartitionRef, Topology

T = TypeVar("T")

AT_ONCE = 16
"""Steps that are sent together; a claim that comes meanwhile waits for no more than these."""
REST = 1.0
"""Time between steps, as a multiple of the time that the last ones took: a slow store gets more rest."""


LONGEST_STEP = 0.05
"""Seconds that a single step takes at most: more than that, and it was not the step that took them."""


class NotLeading(Exception):
    """Nothing may be done: some other process leads, or none."""


class Turn:
    """The right of a leader to do something now. ``token`` says under which one; None ends everything."""

    def __init__(
        self,
        queue: str,
        store: Store,
        token: Callable[[], Token | None],
        reread: Callable[[], None],
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.queue = queue
        self.store = store
        self.reread = reread
        """Lets the topology be read soon: it has changed."""
        self._token = token
        self._clock = clock
        self._breathed = clock()
        self._pause = pause

    def now(self) -> float:
        """Return the time on the monotonic clock."""
        return self._clock()

    def token(self) -> Token:
        """Return what to show to the fence. Raises NotLeading. Ask before every step."""
        token = self._token()
        if token is None:
            raise NotLeading
        return token

    def fence(self, topology: Topology) -> Fence:
        """Return what to show to partitions now. Raises NotLeading. Ask before every step."""
        token = self.token()
        return Fence(token.epoch, token.nonce, topology.incarnation)

    async def step(self, call: Callable[[], Awaitable[T]]) -> T:
        """Do one step, and rest for as long as it took. Raises NotLeading, and what the step raises."""
        self.token()
        began = self._clock()
        answer = await call()
        await self._pause((self._clock() - began) * REST)
        return answer

    async def breathe(self, load: float, shortest: float) -> None:
        """Rest after a step so that the store is kept busy for ``load`` of the time at most. Raises NotLeading.

        For steps of which only the end is known: they took as long as the time since the last call, or ``shortest``.
        """
        self.token()
        took = max(shortest, self._clock() - self._breathed)
        await self._pause(min(took, LONGEST_STEP) * (1 / load - 1))
        self.token()
        self._breathed = self._clock()

    async def count(self, ref: PartitionRef) -> Counts:
        """Read the sizes of one partition."""
        (counts,) = await self.store.counts([ref])
        return counts

    async def each(self, refs: Sequence[PartitionRef], step: Callable[[PartitionRef], Awaitable[T]]) -> list[T]:
        """Do one step on every partition, a few at a time, with rest in between; the replies in order.

        All that were begun have ended when it raises the first error, or NotLeading.
        """
        replies: list[T] = []
        for start in range(0, len(refs), AT_ONCE):
            self.token()
            began = self._clock()
            outcomes = await asyncio.gather(*map(step, refs[start : start + AT_ONCE]), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                replies.append(outcome)
            if start + AT_ONCE < len(refs):
                await self._pause((self._clock() - began) * REST)
        return replies
