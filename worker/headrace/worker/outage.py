"""How the loops of a worker live through a store that does not answer."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from headrace.errors import DataDamaged, StoreUnavailable

log = logging.getLogger("headrace.worker")

LOG_INTERVAL = 30.0
_FIRST, _LONGEST = 0.05, 5.0


class Backoff:
    """Delays that grow from 50 ms to 5 s, each with full jitter above a tenth, so that workers spread."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._tries = 0

    def next(self) -> float:
        """Return the next delay in seconds."""
        ceiling = min(_LONGEST, _FIRST * 2 ** min(self._tries, 10))
        self._tries += 1
        return self._uniform(ceiling / 10, ceiling)

    def reset(self) -> None:
        """Begin again with the shortest delay."""
        self._tries = 0


class Reachability:
    """What is known of the store, for logs and readiness: shared by all loops and threads of a worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.answered_at: float | None = None
        self.down_since: float | None = None
        self.outages = 0
        """How many have ended."""
        self._logged_at = float("-inf")
        self._told = False
        self._damage_logged: dict[str, float] = {}

    def answered(self) -> None:
        """Note an answer of the store."""
        now = self.answered_at = self._clock()
        # Read once: the keeper's thread may end the outage between two lines.
        if (down_since := self.down_since) is not None:
            # Only an outage that was told ends with a line: part of a cluster may fail and answer many times a second.
            if self._told:
                log.warning("the store answers again after %.1f s", now - down_since)
            self.down_since, self._told = None, False
            self.outages += 1

    def failed(self, what: str, error: Exception) -> None:
        """Note a call that failed; one line per 30 s is logged, however many loops fail."""
        now = self._clock()
        if isinstance(error, StoreUnavailable):
            if self.down_since is None:
                self.down_since = now
            if now - self._logged_at >= LOG_INTERVAL:
                self._logged_at, self._told = now, True
                log.warning("%s: %s; going on trying", what, error)
        elif isinstance(error, DataDamaged):
            # Each key of its own: what is damaged says so, whatever else fails.
            if now - self._damage_logged.get(error.key, float("-inf")) >= LOG_INTERVAL:
                self._damage_logged = {key: at for key, at in self._damage_logged.items() if now - at < LOG_INTERVAL}
                self._damage_logged[error.key] = now
                log.error("%s: %s; going on with everything else", what, error)
        elif now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            log.error("%s failed unexpectedly; going on trying", what, exc_info=error)

    def ready(self, within: float = 30.0) -> bool:
        """Whether the store answered within the last ``within`` seconds."""
        return self.answered_at is not None and self._clock() - self.answered_at <= within
