"""What an elector takes from outside, so that tests can give it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.election.metrics import Metrics
from headrace.election.timings import Timings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything from outside that decisions rest on. ``clock`` in seconds, ``wall`` in microseconds."""

    identity: str
    timings: Timings
    clock: Callable[[], float]
    wall: Callable[[], int]
    rng: random.Random
    metrics: Metrics


def suspend_aware_clock() -> float:
    """Return seconds that go on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def wall_microseconds() -> int:
    """Return the wall time, which is shown and never compared."""
    return time.time_ns() // 1000
