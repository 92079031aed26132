"""How often calls are made: token bucket, priorities, breaker."""

from __future__ import annotations

import asyncio

from headrace_operator.kubernetes.pace import KEPT, Budget, Pace, Priority
from headrace_operator.redis.breaker import LONGEST_PAUSE, Breaker


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def test_a_pace_lets_a_burst_through_and_then_its_rate() -> None:
    time = Time()
    pace = Pace(5, time, burst=10)
    assert [pace.take() for _ in range(11)] == [True] * 10 + [False]
    time.now += 1
    assert [pace.take() for _ in range(6)] == [True] * 5 + [False]
    time.now += 100
    assert sum(pace.take() for _ in range(20)) == 10


async def test_O25_calls_keep_to_the_rate_and_higher_priorities_find_tokens_left() -> None:
    time = Time()
    budget = Budget(50, 100, time, time.sleep)
    for _ in range(int(100 * (1 - KEPT[Priority.LOW]))):
        await budget.take(Priority.LOW)
    assert time.now == 0.0
    for _ in range(30):
        await budget.take(Priority.NORMAL)
    for _ in range(20):
        await budget.take(Priority.URGENT)
    assert time.now == 0.0
    for _ in range(500):
        await budget.take(Priority.URGENT)
    assert 9.9 < time.now < 10.1
    before = time.now
    await budget.take(Priority.LOW)
    assert time.now - before > 0.9


async def test_a_server_that_asks_for_a_pause_gets_one_from_every_call() -> None:
    time = Time()
    budget = Budget(50, 100, time, time.sleep)
    budget.hold(7)
    budget.hold(3)
    await budget.take(Priority.URGENT)
    assert time.now == 7.0


def test_a_breaker_lets_one_try_after_a_pause_that_grows_to_a_limit() -> None:
    time = Time()
    breaker = Breaker(time, lambda low, high: high)
    assert breaker.allows()
    assert breaker.allows()
    pauses = []
    for _ in range(8):
        breaker.failed()
        assert not breaker.allows()
        pauses.append(breaker.wait)
        time.now += breaker.wait
        assert breaker.allows()
        assert not breaker.allows(), "another one is on trial"
    assert pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    breaker.succeeded()
    assert breaker.allows()
    assert breaker.wait == 0.0
