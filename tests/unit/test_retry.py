"""Retry policies: the delay of each run, and when there is no further one."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace.retry import RetryPolicy, Strategy, decide

LOW = lambda low, high: low  # noqa: E731
HIGH = lambda low, high: high  # noqa: E731
MIDDLE = lambda low, high: (low + high) / 2  # noqa: E731


def delays(policy: RetryPolicy, runs: list[int]) -> list[int]:
    return [policy.delay_ms(run, MIDDLE) for run in runs]


def test_J13_the_mean_delay_doubles_up_to_the_cap() -> None:
    assert delays(RetryPolicy(), [1, 2, 3, 4, 5, 6, 7, 8]) == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]


def test_J13_the_retries_of_ten_thousand_jobs_that_fail_at_once_spread_evenly_around_the_mean() -> None:
    uniform = random.Random(13).uniform
    for run, mean in ((1, 1000), (2, 2000), (5, 16_000), (9, 60_000)):
        found = [RetryPolicy().delay_ms(run, uniform) for _ in range(10_000)]
        assert abs(sum(found) / len(found) - mean) < mean / 100
        # Of ten equal parts of the range none has twice what another one has: no second wave hits at once.
        parts = Counter(min(9, int((delay - 0.75 * mean) / (0.05 * mean))) for delay in found)
        assert len(parts) == 10
        assert max(parts.values()) < 2 * min(parts.values())


def test_M11_exponential_is_spread_by_a_quarter_to_both_sides() -> None:
    policy = RetryPolicy()
    assert [policy.delay_ms(run, LOW) for run in (1, 2, 9)] == [750, 1500, 45000]
    assert [policy.delay_ms(run, HIGH) for run in (1, 2, 9)] == [1250, 2500, 75000]


def test_M11_linear_is_constant() -> None:
    policy = RetryPolicy(strategy="linear", base_ms=300)
    assert [policy.delay_ms(run, uniform) for run in (1, 2, 70) for uniform in (LOW, HIGH)] == [300] * 6


def test_M11_backpressure_is_full_jitter_above_the_base() -> None:
    policy = RetryPolicy(strategy="backpressure", base_ms=1000, cap_ms=10_000)
    assert [policy.delay_ms(run, LOW) for run in (1, 2, 3, 4, 5, 70)] == [1000] * 6
    assert [policy.delay_ms(run, HIGH) for run in (1, 2, 3, 4, 5, 70)] == [1000, 2000, 4000, 8000, 10_000, 10_000]


@pytest.mark.parametrize("run", [64, 65, 66, 70, 1000, 10**9])
@pytest.mark.parametrize("strategy", ["exponential", "backpressure"])
def test_M11_a_late_run_gives_the_cap_and_no_overflow(strategy: Strategy, run: int) -> None:
    assert RetryPolicy(strategy=strategy, max_retries=1000).delay_ms(run, HIGH) in (60_000, 75_000)
    widest = RetryPolicy(strategy=strategy, base_ms=86_400_000, cap_ms=86_400_000)
    assert widest.delay_ms(run, LOW) in (64_800_000, 86_400_000)


@given(
    st.sampled_from(["exponential", "linear", "backpressure"]),
    st.integers(1, 86_400_000),
    st.integers(1, 86_400_000),
    st.integers(1, 200),
    st.integers(0, 2**32),
)
def test_M11_every_delay_is_above_zero_and_lies_between_the_jittered_base_and_the_jittered_cap(
    strategy: Strategy, one: int, other: int, run: int, seed: int
) -> None:
    base, cap = sorted((one, other))
    delay = RetryPolicy(strategy=strategy, base_ms=base, cap_ms=cap).delay_ms(run, random.Random(seed).uniform)
    assert round(base * 0.75) <= delay <= round(cap * 1.25)
    assert isinstance(delay, int)


def test_J18_three_retries_are_one_and_three_runs() -> None:
    policy = RetryPolicy(max_retries=3)
    assert [decide(policy, failed, uniform=MIDDLE).dead for failed in (1, 2, 3, 4, 5)] == [False] * 3 + [True] * 2
    assert decide(policy, 3, uniform=MIDDLE).delay_ms == 4000
    assert decide(policy, 3, uniform=MIDDLE).reason == "retry 3 of 3"
    assert decide(policy, 4).reason == "all 4 runs failed"


def test_M12_a_jobs_own_number_of_retries_wins() -> None:
    policy = RetryPolicy(max_retries=3)
    assert decide(policy, 1, max_retries=0).dead
    assert not decide(policy, 9, max_retries=9).dead
    assert decide(policy, 10, max_retries=9).dead


def test_M10_no_retries_mean_one_run() -> None:
    assert decide(RetryPolicy(max_retries=0), 1).reason == "all 1 runs failed"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 1001}, "max_retries"),
        ({"base_ms": 0}, "base_ms"),
        ({"cap_ms": 0}, "cap_ms"),
        ({"cap_ms": 86_400_001}, "cap_ms"),
        ({"strategy": "random"}, "strategy"),
        ({"jitter": 1}, "jitter"),
        ({"base_ms": 5000, "cap_ms": 4000}, "base_ms 5000 is above cap_ms 4000"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(values: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        RetryPolicy.model_validate(values)
