"""Estimates from growing counters, and from starts of Pods: how fast jobs arrive, how long they and starts take."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

FAST_SECONDS, SLOW_SECONDS = 10.0, 60.0
SERVICE_JOBS = 200
COLD_START_PRIOR, SHORTEST_COLD_START, LONGEST_COLD_START = 10.0, 1.0, 300.0
COLD_STARTS = 20


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rate of a counter that grows. ``at_ms``: when it was read last, None before that.

    Two moving averages, over about 10 s and 60 s; the larger one counts, so that a burst is noticed soon and the lull
    after it not mistaken for an end.
    """

    at_ms: int | None = None
    counter: int = 0
    fast: float = 0.0
    slow: float = 0.0

    @property
    def per_second(self) -> float:
        """The rate."""
        return max(self.fast, self.slow)

    def read(self, now_ms: int, counter: int) -> Arrivals:
        """Return the estimate after the counter was read again. One that went back was begun anew: nothing arrived."""
        if now_ms == self.at_ms:
            return self
        if self.at_ms is None or now_ms < self.at_ms:  # another server's clock: begin anew from here
            return replace(self, at_ms=now_ms, counter=max(counter, 0))
        seconds = (now_ms - self.at_ms) / 1000
        rate = max(0, counter - self.counter) / seconds
        return Arrivals(
            now_ms,
            max(counter, 0),
            self.fast + (rate - self.fast) * -math.expm1(-seconds / FAST_SECONDS),
            self.slow + (rate - self.slow) * -math.expm1(-seconds / SLOW_SECONDS),
        )


@dataclass(frozen=True, slots=True)
class Service:
    """Mean run of the last 200 jobs or so. ``jobs``, ``milliseconds``: the growing counters as read last."""

    jobs: int = 0
    milliseconds: float = 0.0
    known: int = 0
    mean: float | None = None

    def read(self, jobs: int, milliseconds: float) -> Service:
        """Return the estimate after the counters (runs that ended, and how long they took in all) were read again."""
        ended, took = jobs - self.jobs, milliseconds - self.milliseconds
        if ended <= 0 or took < 0:
            return Service(jobs, milliseconds, self.known, self.mean)
        known = min(SERVICE_JOBS, self.known + ended)
        before = self.mean or 0.0
        mean = before + min(1.0, ended / known) * (took / ended / 1000 - before)
        return Service(jobs, milliseconds, known, mean)


def cold_start(seconds: Iterable[float]) -> float:
    """Return how long a Pod takes to become ready: as long as the slowest but four of the last 20; without any 10 s.

    Between 1 and 300 s. The last of ``seconds`` are the newest.
    """
    starts = sorted([second for second in seconds if math.isfinite(second) and second >= 0][-COLD_STARTS:])
    if not starts:
        return COLD_START_PRIOR
    return min(LONGEST_COLD_START, max(SHORTEST_COLD_START, starts[math.ceil(len(starts) * 0.8) - 1]))
