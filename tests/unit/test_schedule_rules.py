"""Rules of schedules: which times they name, in zones whose clocks change, and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import App, InvalidInput, PayloadTooLarge
from headrace.schedules import Cron, Interval, Rule
from headrace.schedules.rules import rule_of

PARIS, UTC_ZONE = ZoneInfo("Europe/Paris"), ZoneInfo("UTC")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)  # both at 01:00 UTC
DAY = timedelta(days=1)


def times(rule: Rule, after: datetime, until: datetime, limit: int = 1000) -> list[str]:
    return [f"{each:%d %H:%M}" for each in rule.latest(after, until, limit)]


def walked(rule: Rule, after: datetime, until: datetime) -> list[datetime]:
    """The same times, one by one."""
    found, at = [], rule.following(after)
    while at is not None and at <= until:
        found.append(at)
        at = rule.following(at)
    return found


@pytest.mark.parametrize(("around", "before", "after"), [(SPRING, "15:04", "14:04"), (AUTUMN, "14:04", "15:04")])
def test_QJ3_a_daily_time_stays_that_of_the_clocks_when_they_change(around: datetime, before: str, after: str) -> None:
    daily = Cron("4 16 * * *", PARIS)
    found = daily.latest(around - DAY, around + 2 * DAY, 100)
    assert [f"{each.astimezone(PARIS):%H:%M}" for each in found] == ["16:04"] * 3
    assert [f"{each:%H:%M}" for each in found] == [before, after, after]


@pytest.mark.parametrize(
    ("expression", "policy", "expected"),
    [
        ("30 2 * * *", {}, ["28 01:30", "29 01:00", "30 00:30"]),
        ("30 2 * * *", {"skipped": "shift"}, ["28 01:30", "29 01:00", "30 00:30"]),
        ("30 2 * * *", {"skipped": "skip"}, ["28 01:30", "30 00:30"]),
        ("0,20,40 2 29 3 *", {"skipped": "shift"}, ["29 01:00"]),  # three times at one moment are one
        ("30 * 29 3 *", {}, ["28 23:30", "29 00:30", "29 01:30", "29 02:30"]),  # an hourly one is not shifted
    ],
)
def test_QJ3_a_time_that_the_clocks_leave_out_follows_the_policy(
    expression: str, policy: dict[str, Any], expected: list[str]
) -> None:
    rule = Cron(expression, PARIS, **policy)
    assert times(rule, SPRING - DAY, SPRING + 2 * DAY)[: len(expected)] == expected
    assert rule.latest(SPRING - DAY, SPRING + 2 * DAY, 1000) == walked(rule, SPRING - DAY, SPRING + 2 * DAY)


@pytest.mark.parametrize(
    ("expression", "policy", "expected"),
    [
        ("30 2 * * *", {}, ["24 00:30", "25 00:30", "26 01:30"]),
        ("30 2 * * *", {"repeated": "once"}, ["24 00:30", "25 00:30", "26 01:30"]),
        ("30 2 * * *", {"repeated": "twice"}, ["24 00:30", "25 00:30", "25 01:30", "26 01:30"]),
        ("0 * 25 10 *", {}, ["24 22:00", "24 23:00", "25 00:00", "25 01:00", "25 02:00"]),  # goes on with real time
        ("0 * 25 10 *", {"repeated": "once"}, ["24 22:00", "24 23:00", "25 00:00", "25 02:00"]),
    ],
)
def test_QJ3_a_time_that_the_clocks_show_twice_follows_the_policy(
    expression: str, policy: dict[str, Any], expected: list[str]
) -> None:
    rule = Cron(expression, PARIS, **policy)
    assert times(rule, AUTUMN - DAY, AUTUMN + 2 * DAY)[: len(expected)] == expected
    assert rule.latest(AUTUMN - DAY, AUTUMN + 2 * DAY, 1000) == walked(rule, AUTUMN - DAY, AUTUMN + 2 * DAY)


def test_QJ3_a_day_that_a_zone_left_out_is_shifted_to_the_day_after() -> None:
    apia = Cron("0 12 * * *", ZoneInfo("Pacific/Apia"))  # had no 30 December 2011
    found = apia.latest(datetime(2011, 12, 29, tzinfo=UTC), datetime(2012, 1, 1, tzinfo=UTC), 100)
    shown = [f"{each.astimezone(ZoneInfo('Pacific/Apia')):%d %H:%M}" for each in found]
    assert shown == ["29 12:00", "31 00:00", "31 12:00", "01 12:00"]


ZONES = ("UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
RULES = ("*/20 * * * *", "7 * * * *", "15,45 1-3 * * *", "30 2 * * *", "0 0 * * SUN", "5 4 1 * *")


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(RULES),
    st.sampled_from([None, "shift", "skip"]),
    st.sampled_from([None, "once", "twice"]),
    st.sampled_from([SPRING, AUTUMN, datetime(2026, 4, 4, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)]),
    st.integers(-3000, 3000),
    st.integers(1, 4000),
    st.integers(1, 80),
)
def test_QJ3_looking_back_finds_what_walking_forward_finds(
    zone: str, expression: str, skipped: Any, repeated: Any, around: datetime, begin: int, length: int, limit: int
) -> None:
    rule = Cron(expression, ZoneInfo(zone), skipped, repeated)
    after = around + timedelta(minutes=begin)
    until = after + timedelta(minutes=length)
    all_of_them = walked(rule, after, until)
    assert all(earlier < later for earlier, later in pairwise(all_of_them))
    assert rule.latest(after, until, limit) == all_of_them[-limit:]


def test_an_interval_is_counted_from_a_fixed_time() -> None:
    rule = Interval(7 * 60)
    at = datetime(1970, 1, 1, 0, 20, 59, tzinfo=UTC)
    assert times(rule, datetime(1970, 1, 1, tzinfo=UTC), at) == ["01 00:07", "01 00:14"]
    assert times(rule, datetime(1970, 1, 1, tzinfo=UTC), at, 1) == ["01 00:14"]
    assert rule.following(at) == datetime(1970, 1, 1, 0, 21, tzinfo=UTC)


def test_three_years_of_seconds_are_not_gone_through() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(Interval(1).latest(now - 1000 * DAY, now, 5)) == 5
    assert len(Cron("* * * * *", PARIS).latest(now - 1000 * DAY, now, 5)) == 5


GOOD: dict[str, Any] = {"queue": "reports", "cron": "0 3 * * *"}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("Bad Name", {}, "name: 'Bad Name'"),
        ("n", {"queue": "no queue"}, "queue"),
        ("n", {"cron": "0 3 * *"}, "cron: '0 3 * *' has 4 field"),
        ("n", {"cron": "61 3 * * *"}, "Bad minute"),
        ("n", {"cron": "0 0 30 2 *"}, "cron: '0 0 30 2 *' names a date that never comes"),
        ("n", {"cron": "0 0 32 1 *"}, "Bad day-of-month"),
        ("n", {"cron": "@daily"}, "cron: '@daily' is a macro, and macros are not supported"),
        ("n", {"cron": None}, "neither is given"),
        ("n", {"every": 60}, "both are given"),
        ("n", {"timezone": "Europe/Nowhere"}, "timezone: 'Europe/Nowhere'"),
        ("n", {"timezone": "../etc"}, "timezone"),
        ("n", {"cron": None, "every": 0.5}, "every: is 0.5"),
        ("n", {"cron": None, "every": 0}, "every: is 0"),
        ("n", {"cron": None, "every": 60, "timezone": "UTC"}, "every: is given with timezone"),
        ("n", {"catch_up": "some"}, "catch_up: is 'some'"),
        ("n", {"max_catch_up": 1001}, "max_catch_up: is 1001"),
        ("n", {"skipped": "later"}, "skipped: is 'later'"),
        ("n", {"repeated": "never"}, "repeated: is 'never'"),
        ("n", {"payload": object()}, "payload"),
        ("n", {"timeout": -3}, "timeout: is -3"),
        ("n", {"timeout": "long"}, "timeout: is 'long'"),
        ("n", {"priority": "urgent"}, "priority: is 'urgent'"),
        ("n", {"max_retries": -1}, "max_retries"),
        ("taken", {}, "name: 'taken' is the name of another schedule"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_declared(name: str, changes: dict[str, Any], words: str) -> None:
    app = App()
    app.schedule("taken", "report", **GOOD)
    with pytest.raises(InvalidInput, match=words.replace("*", r"\*")):
        app.schedule(name, "report", **{**GOOD, **changes})
    assert [each.name for each in app.schedules] == ["taken"]


def test_a_payload_that_is_too_large_is_refused_when_it_is_declared() -> None:
    with pytest.raises(PayloadTooLarge):
        App().schedule("n", "report", payload=b"x" * (2 << 20), **GOOD)


def test_schedules_are_part_of_copies_and_refused_once_a_worker_runs() -> None:
    app = App()
    app.schedule("n", "report", **GOOD)
    assert app.overriding().schedules == app.schedules == app.schedules_of("reports")
    assert app.schedules_of("others") == ()
    app.freeze()
    with pytest.raises(InvalidInput, match="before the worker starts"):
        app.schedule("m", "report", **GOOD)


@pytest.mark.parametrize(
    "rule",
    [
        Interval(90),
        Cron("4 16 * * MON-FRI", ZoneInfo("Europe/Paris")),
        Cron("*/15,3  0 L * *", ZoneInfo("UTC"), "shift", "twice"),
        Cron("0 3 * * *", ZoneInfo("America/New_York"), repeated="once"),
    ],
)
def test_a_rule_is_read_back_from_its_text(rule: Rule) -> None:
    read = rule_of(rule.text)
    assert read is not None
    assert read.text == rule.text
    moment = datetime(2026, 10, 25, tzinfo=UTC)
    assert read.following(moment) == rule.following(moment)


@pytest.mark.parametrize("text", ["", "every day", "every 0 s", "0 3 * * * Nowhere/City", "0 3 * * * UTC, odd 1", "x"])
def test_a_text_that_is_no_rule_here_is_none(text: str) -> None:
    assert rule_of(text) is None
