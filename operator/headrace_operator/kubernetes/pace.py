"""How often something may happen: a token bucket, and the budget of calls to the API server that is made of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum


class Pace:
    """At most ``rate`` times per second in the long run, and ``burst`` (None: ``rate``) at once. ``clock``: seconds."""

    def __init__(self, rate: float, clock: Callable[[], float], burst: float | None = None) -> None:
        self._rate = rate
        self._burst = rate if burst is None else burst
        self._clock = clock
        self._tokens, self._at = self._burst, clock()

    def take(self) -> bool:
        """Whether it may happen now; if so, it counts."""
        return self.take_or_wait(0.0) == 0.0

    def take_or_wait(self, kept: float) -> float:
        """Let it happen and count it, if more than ``kept`` tokens stay: 0. Else return the seconds until they may."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= kept + 1 - _ROUNDING:
            self._tokens -= 1
            return 0.0
        return (kept + 1 - self._tokens) / self._rate


_ROUNDING = 1e-9


class Priority(IntEnum):
    """What a call is for. While tokens are few, the higher ones go first."""

    URGENT = 0
    """Scale and topology: jobs wait for it."""
    NORMAL = 1
    """Looking, and telling what follows from the spec."""
    LOW = 2
    """Measurements and Events: nobody misses them for a while."""


KEPT = {Priority.URGENT: 0.0, Priority.NORMAL: 0.2, Priority.LOW: 0.5}
"""Share of the burst that a call leaves to those of higher priority."""


class Budget:
    """When the next call to the API server may be sent.

    ``rate`` calls per second and ``burst`` at once; a call of lower priority leaves some tokens to the higher ones.
    ``hold`` stops all of them, when the server asks for that. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pace = Pace(rate, clock, burst)
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._held_until = float("-inf")

    async def take(self, priority: Priority) -> None:
        """Wait until a call of ``priority`` may be sent; it counts."""
        while True:
            if (held := self._held_until - self._clock()) > 0:
                await self._sleep(held)
            elif (wait := self._pace.take_or_wait(KEPT[priority] * self._burst)) > 0:
                await self._sleep(wait)
            else:
                return

    def hold(self, seconds: float) -> None:
        """Send no call for so long."""
        self._held_until = max(self._held_until, self._clock() + seconds)
