"""What follows a run: pure decisions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import Dead, InvalidInput, Job, Retry, RetryPolicy, Snooze, open_store
from headrace.retry import RetryBy, RetryFunction
from headrace.worker.outcomes import (
    MAX_ERROR_CHARS,
    Failed,
    HandedBack,
    after_error,
    after_timeout,
    error_text,
    undecodable,
)

POLICY = RetryPolicy(max_retries=2, base_ms=100, cap_ms=1000)
JOB = Job("id", "emails", "send", None, 0, 0, 1, 0)
NOW = 1_700_000_000_000


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def decided(error: BaseException, **changes: Any) -> Failed | HandedBack:
    return after_error(error, replace(JOB, **changes), POLICY, NOW, middle)


def test_an_error_is_retried_as_the_policy_says_until_its_runs_are_used_up() -> None:
    delays = []
    for attempt in range(3):
        decision = decided(ValueError("x"), attempt=attempt)
        assert isinstance(decision, Failed)
        delays.append((decision.delay_ms, decision.outcome))
    assert delays == [(100, "retried"), (200, "retried"), (None, "dead")]


def test_M12_the_jobs_own_number_of_retries_wins() -> None:
    assert decided(ValueError("x"), max_retries=0) == Failed(None, "ValueError: x", "failed")
    decision = decided(ValueError("x"), max_retries=9, attempt=8)
    assert isinstance(decision, Failed)
    assert decision.delay_ms == 1000


def test_Retry_sets_the_delay_and_keeps_the_limit() -> None:
    assert decided(Retry(after=7, reason="busy")) == Failed(7000, "busy", "failed")
    assert decided(Retry(after=timedelta(minutes=1))) == Failed(60_000, "the handler asked for a retry", "failed")
    assert decided(Retry()) == Failed(100, "the handler asked for a retry", "failed")
    assert decided(Retry(after=7), attempt=2) == Failed(None, "the handler asked for a retry", "failed")


@pytest.mark.parametrize("kind", [Dead, Retry, ValueError])
def test_an_error_that_cannot_say_what_it_is_counts_all_the_same(kind: type[Exception]) -> None:
    class Speechless(kind):  # type: ignore[misc, valid-type]
        def __str__(self) -> str:
            raise SystemExit(1)

    decision = decided(Speechless("x") if kind is Dead else Speechless())
    assert isinstance(decision, Failed)
    assert decision.outcome == ("dead" if kind is Dead else "retried")
    assert "(the error has no readable message)" in decision.error


@pytest.mark.parametrize("wrong", [SystemExit(1), asyncio.CancelledError(), MemoryError()])
def test_whatever_a_retry_function_raises_its_policy_decides(wrong: BaseException) -> None:
    def function(failed_runs: int, error: BaseException) -> float:
        raise wrong

    decision = by_function(function, ValueError("x"))
    assert (decision.delay_ms, decision.status) == (100, "failed")
    assert f"the retry function failed: {type(wrong).__name__}" in decision.error
    late = after_timeout(JOB, RetryBy(function, POLICY), 50, middle)
    assert (late.delay_ms, late.status) == (100, "timed out")


def by_function(function: RetryFunction, error: BaseException, **changes: Any) -> Failed:
    decision = after_error(error, replace(JOB, **changes), RetryBy(function, POLICY), NOW, middle)
    assert isinstance(decision, Failed)
    return decision


def test_a_function_decides_by_the_failed_runs_and_the_error() -> None:
    def after(failed_runs: int, error: BaseException) -> float | None:
        return None if isinstance(error, PermissionError) else failed_runs * 1.5

    assert by_function(after, OSError("x")) == Failed(1500, "OSError: x", "failed")
    assert by_function(after, OSError("x"), attempt=7) == Failed(12_000, "OSError: x", "failed")
    assert by_function(after, PermissionError("no")) == Failed(None, "PermissionError: no", "failed")
    assert by_function(after, OSError("x"), attempt=2, max_retries=2).delay_ms is None
    assert by_function(after, OSError("x"), attempt=1000).delay_ms is None
    assert by_function(after, Retry(after=7)).delay_ms == 7000
    timed_out = after_timeout(JOB, RetryBy(after, POLICY), 250, middle)
    assert timed_out == Failed(1500, "timed out after 250 ms", "timed out")
    seen = []
    after_timeout(JOB, RetryBy(lambda runs, error: seen.append((runs, type(error))), POLICY), 250, middle)
    assert seen == [(1, TimeoutError)]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("soon", "TypeError: it returned a str; return seconds"),
        (True, "TypeError: it returned a bool"),
        (-1, "ValueError: it returned -1; return 0 to"),
        (float("nan"), "ValueError: it returned nan"),
        (1e12, "ValueError: it returned 1000000000000.0"),
    ],
)
def test_where_a_function_returns_no_delay_the_policy_decides_and_the_error_says_so(
    returned: Any, problem: str
) -> None:
    decision = by_function(lambda runs, error: returned, OSError("x" * 5000))
    assert decision.delay_ms == 100
    assert f"(the retry function failed: {problem}" in decision.error
    assert len(decision.error) == MAX_ERROR_CHARS


def test_where_a_function_raises_the_policy_decides() -> None:
    def broken(failed_runs: int, error: BaseException) -> float | None:
        raise KeyError("limits")

    decision = by_function(broken, OSError("x"), attempt=2)
    assert decision.delay_ms is None
    assert decision.error.startswith("OSError: x\n(the retry function failed: KeyError: 'limits'")


def test_Dead_and_Snooze() -> None:
    assert decided(Dead("no such address")) == Failed(None, "no such address", "dead")
    assert decided(Snooze(timedelta(seconds=5))) == HandedBack(5000, "snoozed", "snoozed")
    at = datetime.fromtimestamp(NOW / 1000 + 60, UTC)
    assert decided(Snooze(at)) == HandedBack(60_000, "snoozed", "snoozed")
    assert decided(Snooze(at - timedelta(days=1))) == HandedBack(1, "snoozed", "snoozed")
    assert decided(Snooze(timedelta(0))) == HandedBack(1, "snoozed", "snoozed")


@pytest.mark.parametrize("until", [5, datetime(2030, 1, 1), None])
def test_Snooze_wants_a_time_that_has_one_meaning(until: Any) -> None:
    with pytest.raises(InvalidInput, match="give a datetime with a time zone, or a timedelta"):
        Snooze(until)


@pytest.mark.parametrize("after", [-1, float("nan"), 1e12])
def test_Retry_refuses_a_delay_out_of_range(after: float) -> None:
    with pytest.raises(InvalidInput, match="after: is"):
        Retry(after=after)


def test_a_timeout_is_a_failure_with_its_own_reason() -> None:
    assert after_timeout(JOB, POLICY, 250, middle) == Failed(100, "timed out after 250 ms", "timed out")
    assert after_timeout(replace(JOB, attempt=2), POLICY, 250, middle).delay_ms is None


def test_a_record_that_cannot_be_read_is_dead() -> None:
    decision = undecodable(ValueError("format 9"))
    assert decision.delay_ms is None
    assert decision.error == "the stored record cannot be read: ValueError: format 9"


def test_the_error_text_names_the_last_frames_and_is_bounded() -> None:
    def inner() -> None:
        raise ValueError("x" * 5000)

    def outer() -> None:
        inner()

    with pytest.raises(ValueError) as raised:
        outer()
    text = error_text(raised.value)
    assert len(text) == MAX_ERROR_CHARS
    assert text.startswith("ValueError: xxx")
    assert text.splitlines()[-1].endswith("in inner")
    assert text.splitlines()[-2].endswith("in outer")


def test_an_error_of_the_library_itself_keeps_its_frames() -> None:
    with pytest.raises(InvalidInput) as raised:
        open_store("nowhere")
    raised.value.__traceback__ = raised.value.__traceback__ and raised.value.__traceback__.tb_next
    assert error_text(raised.value).splitlines()[-1].endswith("in open_store")


def test_an_error_without_text_or_with_a_broken_one() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(SystemExit()) == "SystemExit"
    assert error_text(Broken()) == "Broken: (the error has no readable message)"
