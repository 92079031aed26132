"""How often somebody who waits for jobs looks for them."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidInput
from headrace.waiting import FIRST_SECONDS, LONGEST_SECONDS, SLOWEST_SECONDS, Pace


class Time:
    """Passes only by sleeping, and by what a look takes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def pace(self, timeout: float | None) -> Pace:
        return Pace(timeout, self.clock, self.sleep, lambda low, high: (low + high) / 2)


async def test_M15_looks_become_rare_while_nothing_changes() -> None:
    """A minute of waiting costs some seventy looks, not thousands."""
    time = Time()
    pace = time.pace(60)
    pace.looking()
    while await pace.pause(changed=False):
        pace.looking()
    assert time.now == pytest.approx(60)
    assert len(time.pauses) < 75
    assert time.pauses[0] == FIRST_SECONDS
    assert max(time.pauses) == LONGEST_SECONDS


async def test_a_change_makes_looks_frequent_again() -> None:
    time = Time()
    pace = time.pace(None)
    for _ in range(20):
        pace.looking()
        assert await pace.pause(changed=False)
    for _ in range(4):
        pace.looking()
        assert await pace.pause(changed=True)
    assert time.pauses[-5] == LONGEST_SECONDS
    assert time.pauses[-1] < 0.06


async def test_looks_that_take_long_come_less_often() -> None:
    time = Time()
    pace = time.pace(None)
    for took, pause in ((0.1, 0.9), (0.3, 2.7), (60.0, SLOWEST_SECONDS)):
        pace.looking()
        time.now += took
        await pace.pause(changed=True)
        assert time.pauses[-1] == pytest.approx(pause)


async def test_the_last_look_comes_at_the_end_of_the_time() -> None:
    time = Time()
    pace = time.pace(0.05)
    pace.looking()
    assert await pace.pause(changed=False)
    assert await pace.pause(changed=False)
    assert time.now == pytest.approx(0.05)
    assert not await pace.pause(changed=False)


@pytest.mark.parametrize("timeout", [-0.1, float("nan")])
def test_a_time_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        Pace(timeout)
