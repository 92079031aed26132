"""What is asked of the queue: jobs of a few shapes that queues in use have, and things that go wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.scaling.world import Job, World

Interval = tuple[float, float]
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Workload:
    """``text``: what it is, for the table."""

    name: str
    text: str
    until: float
    jobs: Callable[[random.Random], list[Job]]
    held: Sequence[Interval] = ()
    blind: Sequence[Interval] = ()
    down: Sequence[Interval] = ()
    most_in_flight: float = math.inf

    def world(self, seed: int = 1) -> World:
        """Return it at its beginning."""
        return World(
            self.jobs(random.Random(seed)),
            self.until,
            most_in_flight=self.most_in_flight,
            held=self.held,
            blind=self.blind,
            down=self.down,
            seed=seed,
        )


def _arrivals(source: random.Random, until: float, rate: Callable[[float], float], most: float) -> list[float]:
    """Return times of a Poisson process with a rate that changes and is ``most`` at most."""
    times, now = [], 0.0
    while (now := now + source.expovariate(most)) < until:
        if source.random() * most < rate(now):
            times.append(now)
    return times


def _burst(source: random.Random) -> list[Job]:
    return [Job(at + source.random(), source.uniform(0.5, 1.5)) for at in (120.0, 1320.0) for _ in range(2000)]


def _steady(source: random.Random) -> list[Job]:
    times = _arrivals(source, 30 * MINUTE, lambda _: 20.0, 20.0)
    return [Job(at, source.expovariate(1.0)) for at in times]


def _slow(source: random.Random) -> list[Job]:
    return [Job(at + source.uniform(0, 30), source.uniform(480, 720)) for at in (60.0, 3660.0) for _ in range(80)]


def _sparse(source: random.Random) -> list[Job]:
    return [Job(at, 2.0) for at in _arrivals(source, 4 * 60 * MINUTE, lambda _: 1 / 240, 1 / 240)]


def _ramp(source: random.Random) -> list[Job]:
    def rate(now: float) -> float:
        return 60 * max(0.0, 1 - abs(now - 15 * MINUTE) / (12 * MINUTE))

    return [Job(at, source.expovariate(2.0)) for at in _arrivals(source, 30 * MINUTE, rate, 60.0)]


def _day(source: random.Random) -> list[Job]:
    length = 4 * 60 * MINUTE

    def rate(now: float) -> float:
        return 4 * (1 - math.cos(2 * math.pi * now / length)) / 2 + (1.5 if now % 1800 < 120 else 0.0)

    return [Job(at, source.expovariate(0.5)) for at in _arrivals(source, length, rate, 5.5)]


def _cliff(source: random.Random) -> list[Job]:
    return [Job(15 * MINUTE, source.uniform(0.5, 1.5), submitted=0.0) for _ in range(10_000)]


def _paused(source: random.Random) -> list[Job]:
    return [Job(60 + source.random(), source.uniform(0.5, 1.5)) for _ in range(500)]


def _limited(source: random.Random) -> list[Job]:
    return [Job(60 + source.random(), source.uniform(4, 6)) for _ in range(600)]


def _flapping(source: random.Random) -> list[Interval]:
    begin, intervals = 300.0, []
    while begin < 25 * MINUTE:
        end = begin + source.uniform(2, 60)
        intervals.append((begin, end))
        begin = end + source.uniform(2, 60)
    return intervals


WORKLOADS = (
    Workload("bursts", "2,000 jobs of 1 s at once, twice in 40 min", 40 * MINUTE, _burst),
    Workload("steady", "20 jobs of 1 s per second for 30 min", 40 * MINUTE, _steady),
    Workload("slow jobs", "80 jobs of 10 min within 30 s, twice in 2 h", 120 * MINUTE, _slow),
    Workload("sparse", "a job of 2 s every 4 min, for 4 h", 4 * 60 * MINUTE, _sparse),
    Workload("ramp", "from 0 to 60 jobs of 0.5 s per second and back in 24 min", 40 * MINUTE, _ramp),
    Workload(
        "day", "a day made 4 h long, up to 4 jobs of 2 s per second, more at each half hour", 4 * 60 * MINUTE, _day
    ),
    Workload("cliff", "10,000 jobs of 1 s that were delayed until 9:00", 40 * MINUTE, _cliff),
    Workload(
        "metrics fail",
        "as steady; for half of the time nothing can be measured",
        40 * MINUTE,
        _steady,
        blind=_flapping(random.Random(5)),
    ),
    Workload(
        "paused", "500 jobs of 1 s in a queue that is paused for 20 min", 40 * MINUTE, _paused, held=((0, 20 * MINUTE),)
    ),
    Workload("limited", "600 jobs of 5 s in a queue that runs 8 at a time", 40 * MINUTE, _limited, most_in_flight=8),
    Workload(
        "restarts",
        "as bursts; the autoscaler is away for 10 s every minute",
        40 * MINUTE,
        _burst,
        down=[(minute * MINUTE - 5, minute * MINUTE + 5) for minute in range(40)],
    ),
)
