"""A schedule as an application declares it, checked as a whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo

from headrace.envelope import MAX_PAYLOAD_BYTES, encode_body
from headrace.errors import InvalidInput
from headrace.job_fields import check_whole, duration_ms, priority_number
from headrace.schedules.rules import Cron, Interval, Repeated, Rule, Skipped
from headrace.topology import check_queue_name

CatchUp = Literal["none", "one", "all"]
MAX_CATCH_UP = 1000
NAME_HEADER, TIME_HEADER = "headrace-schedule", "headrace-scheduled-for"
"""Headers of the jobs: the name of their schedule, and the time that they stand for."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}\Z")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job of ``type`` for ``queue`` whenever ``rule`` says so; other fields as in `headrace.App.schedule`."""

    name: str
    queue: str
    type: str
    rule: Rule
    payload: Any = None
    catch_up: CatchUp = "one"
    max_catch_up: int = 100
    max_retries: int | None = None
    timeout: timedelta | float | None = None
    priority: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            remedy = "give at most 100 lower-case letters, digits, '.', '_' and '-', the first a letter or digit"
            raise InvalidInput("name", f"{self.name!r} cannot be the name of a schedule", remedy)
        check_queue_name(self.queue)
        if self.catch_up not in get_args(CatchUp):
            raise InvalidInput("catch_up", f"is {self.catch_up!r}", "give 'none', 'one' or 'all'")
        check_whole("max_catch_up", self.max_catch_up, 1, MAX_CATCH_UP)
        encode_body(
            self.type,
            self.payload,
            max_retries=self.max_retries,
            timeout_ms=None if self.timeout is None else duration_ms("timeout", self.timeout),
            priority=priority_number(self.priority),
            max_payload_bytes=MAX_PAYLOAD_BYTES,
        )

    def id_at(self, at_ms: int) -> str:
        """Return the id of the job for a time: the same in every process."""
        return f"{self.name}@{shown(at_ms)}"

    def headers_at(self, at_ms: int) -> dict[str, str]:
        """Return the headers of the job for a time."""
        return {NAME_HEADER: self.name, TIME_HEADER: shown(at_ms)}


def shown(at_ms: int) -> str:
    """Return a time (ms) as text, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_rule(
    cron: str | None,
    every: timedelta | float | None,
    timezone: str | None,
    skipped: Skipped | None,
    repeated: Repeated | None,
) -> Rule:
    """Return the rule that the arguments of `headrace.App.schedule` describe. Raises InvalidInput."""
    if (cron is None) == (every is None):
        given = "neither is" if cron is None else "both are"
        raise InvalidInput("cron", f"and every: {given} given", "give one of the two")
    for name, value, allowed in (
        ("skipped", skipped, get_args(Skipped)),
        ("repeated", repeated, get_args(Repeated)),
    ):
        if value is not None and value not in allowed:
            raise InvalidInput(name, f"is {value!r}", f"give {' or '.join(map(repr, allowed))}, or leave it out")
    if cron is not None:
        return Cron(cron, _zone("UTC" if timezone is None else timezone), skipped, repeated)
    if timezone is not None or skipped is not None or repeated is not None:
        remedy = "leave them out, or give cron: an interval knows no clocks that change"
        raise InvalidInput("every", "is given with timezone, skipped or repeated", remedy)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds != seconds // 1:
        raise InvalidInput("every", f"is {every!r}", "give a timedelta or a number of whole seconds")
    return Interval(int(seconds))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):  # unknown, no name at all, a folder of the database
        raise InvalidInput("timezone", f"{name!r} is not known", "give a name such as Europe/Paris or UTC") from None
