"""What holds claims back in one partition in memory: a pause, a rate, a number of jobs in flight."""

from __future__ import annotations

import math
from typing import NamedTuple

from headrace.settings import PartitionLimits


class Allowance(NamedTuple):
    """How many jobs may be leased now, and when the rate allows more (None: no rate holds them back)."""

    jobs: int
    reopens: int | None


class Limiter:
    """Enforces a partition's limits. The bucket holds one second of the rate, at least one job."""

    def __init__(self, limits: PartitionLimits) -> None:
        self.limits = limits
        self._tokens = 1.0
        self._at: int | None = None

    def allow(self, wanted: int, leased: int, now: int) -> Allowance:
        """Decide how many of the ``wanted`` jobs may be leased while ``leased`` are in flight."""
        if self.limits.hold:
            return Allowance(0, None)
        if self.limits.in_flight is not None:
            wanted = max(0, min(wanted, self.limits.in_flight - leased))
        if self.limits.rate is None:
            return Allowance(wanted, None)
        left = self._left(now)
        wanted = min(wanted, math.floor(left))
        after = left - wanted
        reopens = now + math.ceil((1 - after) * 1000 / self.limits.rate) if after < 1 else None
        return Allowance(wanted, reopens)

    def leased(self, jobs: int, now: int) -> None:
        """Take note that jobs were leased."""
        if self.limits.rate is not None and jobs:
            self._tokens, self._at = self._left(now) - jobs, now

    def _left(self, now: int) -> float:
        rate = self.limits.rate or 0.0
        since = 0 if self._at is None else now - self._at
        return min(max(1.0, rate), self._tokens + since * rate / 1000)
