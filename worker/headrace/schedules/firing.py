"""What is to be done about a schedule now: a function of its rule, of what was dealt with, and of the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, NamedTuple

from headrace.schedules.mark import ScheduleMark
from headrace.schedules.rules import rule_of
from headrace.schedules.schedule import Schedule

Fate = Literal["enqueued", "existing", "missed", "failed"]
"""What becomes of a time: a job is enqueued, there is one already, none is made up for; or a try ended in an error."""
ON_TIME_MS = 60_000
"""How late a time may be and still count as on time: longer than it takes until somebody leads again."""
MAX_COUNTED = 1000
"""Most times that were missed that are counted one by one."""


class Decision(NamedTuple):
    """``fires``: times (ms) to enqueue a job for, in order; ``missed``: times that get none, counted up to 1000.

    ``mark``: what is to be noted afterwards; ``next_at``: when (ms) to decide again, None: never.
    """

    fires: tuple[int, ...]
    missed: int
    mark: ScheduleMark
    next_at: int | None


def decide(schedule: Schedule, mark: ScheduleMark | None, now_ms: int) -> Decision:
    """Decide what is due. ``mark``: what was noted last, None for a schedule that nobody has seen yet.

    A new schedule begins now. One whose rule has changed begins again, with what came within the last minute: the one
    who noted the old rule may just have stopped. Of the times that have passed, ``catch_up`` takes all (the last
    ``max_catch_up``), the last one, or the last one if it is on time. Time that goes back fires nothing twice.
    """
    rule = schedule.rule
    if mark is None:
        mark = ScheduleMark(now_ms, rule.text)
    elif mark.rule != rule.text:
        mark = ScheduleMark(max(mark.at, now_ms - ON_TIME_MS), rule.text)
    passed = [_ms(each) for each in rule.latest(_time(mark.at), _time(now_ms), MAX_COUNTED)]
    if schedule.catch_up == "all":
        fires = passed[-schedule.max_catch_up :]
    else:
        fires = passed[-1:]
        if schedule.catch_up == "none":
            fires = [at for at in fires if now_ms - at <= ON_TIME_MS]
    if passed:
        mark = mark._replace(at=passed[-1])
    following = rule.following(_time(max(now_ms, mark.at)))
    return Decision(tuple(fires), len(passed) - len(fires), mark, None if following is None else _ms(following))


def next_time(mark: ScheduleMark) -> int | None:
    """Return the first time (ms) that has not been dealt with; None if there is none, or the rule cannot be read."""
    rule = rule_of(mark.rule)
    following = rule.following(_time(mark.at)) if rule is not None else None
    return None if following is None else _ms(following)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
