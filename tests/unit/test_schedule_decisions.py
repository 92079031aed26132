"""What is decided about a schedule: by its rule, by what was noted, and by the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.schedules import ON_TIME_MS, CatchUp, Cron, Decision, Interval, Schedule, ScheduleMark, decide
from headrace.schedules.firing import MAX_COUNTED

HOUR, DAY = 3_600_000, 24 * 3_600_000
NOW = round(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp() * 1000)


def hourly(catch_up: CatchUp = "one", **options: Any) -> Schedule:
    return Schedule("hourly", "reports", "report", Interval(3600), None, catch_up, **options)


def noted(at: int, rule: str = "every 3600 s") -> ScheduleMark:
    return ScheduleMark(at, rule)


def test_a_schedule_that_nobody_has_seen_begins_now() -> None:
    decision = decide(hourly("all"), None, NOW + 5)
    assert decision == ((), 0, noted(NOW + 5), NOW + HOUR)


@pytest.mark.parametrize("catch_up", ["none", "one", "all"])
def test_a_time_that_has_come_fires_once_whatever_the_policy(catch_up: CatchUp) -> None:
    schedule = hourly(catch_up)
    first = decide(schedule, noted(NOW - HOUR), NOW + 3)
    assert first == Decision((NOW,), 0, noted(NOW), NOW + HOUR)
    assert decide(schedule, first.mark, NOW + 3) == ((), 0, noted(NOW), NOW + HOUR)


@pytest.mark.parametrize(
    ("schedule", "fires"),
    [
        (hourly("none"), []),
        (hourly("one"), [NOW]),
        (hourly("all"), [NOW - 72 * HOUR + n * HOUR for n in range(1, 73)]),
        (hourly("all", max_catch_up=5), [NOW - 4 * HOUR, NOW - 3 * HOUR, NOW - 2 * HOUR, NOW - HOUR, NOW]),
    ],
)
def test_QJ5_after_three_days_off_the_policy_says_what_is_made_up_for(schedule: Schedule, fires: list[int]) -> None:
    now = NOW + ON_TIME_MS + 1
    decision = decide(schedule, noted(NOW - 3 * DAY), now)
    assert list(decision.fires) == fires
    assert decision.missed == 72 - len(fires)
    assert decision.mark == noted(NOW)  # all of them are dealt with
    assert decide(schedule, decision.mark, now).fires == ()


def test_QJ5_what_is_a_minute_late_is_on_time_for_every_policy() -> None:
    assert decide(hourly("none"), noted(NOW - HOUR), NOW + ON_TIME_MS).fires == (NOW,)


def test_QJ5_a_year_off_is_bounded_and_counted_up_to_a_bound() -> None:
    every_second = Schedule("s", "reports", "report", Interval(1), None, "all")
    decision = decide(every_second, noted(NOW - 365 * DAY, "every 1 s"), NOW)
    assert len(decision.fires) == 100
    assert decision.fires[-1] == NOW
    assert decision.missed == MAX_COUNTED - 100


def test_time_that_goes_back_fires_nothing_twice() -> None:
    decision = decide(hourly("all"), noted(NOW), NOW - 2 * HOUR)
    assert decision == ((), 0, noted(NOW), NOW + HOUR)


def test_a_rule_that_has_changed_begins_again_without_a_gap() -> None:
    daily = Schedule("hourly", "reports", "report", Cron("0 12 * * *", ZoneInfo("UTC")))
    decision = decide(daily, noted(NOW - 12 * HOUR), NOW + 3)  # the new rule came into force as its time came
    assert decision.fires == (NOW,)
    later = decide(daily, noted(NOW - 12 * HOUR), NOW + HOUR)
    assert later == ((), 0, ScheduleMark(NOW + HOUR - ON_TIME_MS, daily.rule.text), NOW + DAY)


def test_ids_and_headers_name_schedule_and_time() -> None:
    assert hourly().id_at(NOW) == "hourly@2026-05-04T12:00:00Z"
    assert hourly().headers_at(NOW) == {
        "headrace-schedule": "hourly",
        "headrace-scheduled-for": "2026-05-04T12:00:00Z",
    }


def test_rules_are_the_same_if_their_texts_are() -> None:
    paris = ZoneInfo("Europe/Paris")
    texts = {
        Cron("0 3 * * *", paris).text,
        Cron("0  3 * * *", paris).text,
        Cron("0 3 * * *", ZoneInfo("UTC")).text,
        Cron("0 3 * * *", paris, "skip").text,
        Cron("0 3 * * *", paris, None, "twice").text,
    }
    assert len(texts) == 4
