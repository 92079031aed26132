"""A circuit breaker: what has just failed is not tried by everybody at once, but by one after a pause."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class Breaker:
    """Closed (calls are made), open (none is, for a pause that doubles), or on trial (one is). ``clock``: seconds."""

    def __init__(self, clock: Callable[[], float], uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._clock = clock
        self._uniform = uniform
        self._failures = 0
        self._retry_at = float("-inf")
        self._on_trial = False

    def allows(self) -> bool:
        """Whether a call may be made now; the caller says `succeeded` or `failed` afterwards."""
        if self._failures == 0:
            return True
        if self._on_trial or self._clock() < self._retry_at:
            return False
        self._on_trial = True
        return True

    @property
    def wait(self) -> float:
        """Seconds until a call may be made; 0: now."""
        return 0.0 if self._failures == 0 else max(0.0, self._retry_at - self._clock())

    def succeeded(self) -> None:
        """Say that a call came back."""
        self._failures, self._on_trial = 0, False

    def failed(self) -> None:
        """Say that a call failed in a way that would meet others as well."""
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
        self._retry_at = self._clock() + pause * self._uniform(0.75, 1.0)
        self._failures, self._on_trial = self._failures + 1, False

    def reset(self) -> None:
        """Let the next call be made at once: something was corrected."""
        self.succeeded()
