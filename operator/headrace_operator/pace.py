"""How often something may happen: a token bucket."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """At most ``rate`` times per second in the long run, and ``burst`` (None: ``rate``) at once. ``clock``: seconds."""

    def __init__(self, rate: float, clock: Callable[[], float], burst: float | None = None) -> None:
        self._rate = rate
        self._burst = rate if burst is None else burst
        self._clock = clock
        self._tokens, self._at = self._burst, clock()

    def take(self) -> bool:
        """Whether it may happen now; if so, it counts."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait(self, kept: float = 0.0) -> float:
        """Return the seconds until one more than ``kept`` tokens are there; 0: now."""
        self._refill()
        return max(0.0, (kept + 1 - self._tokens) / self._rate)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
