"""What a handler raises to decide by itself what happens to its job.

Anything else that a handler raises is a failed run, repeated as the retry policy says.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from headrace.errors import InvalidInput


class Control(Exception):
    """Base of the three orders below."""


class Retry(Control):
    """Count this run as failed and run again after ``after`` (seconds or timedelta; None: as the policy says).

    The limit of the retry policy still holds: after its last run the job is dead.
    """

    def __init__(self, after: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after_ms = None if after is None else _milliseconds("after", after)


class Dead(Control):
    """Make the job a dead letter now, whatever retries are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Snooze(Control):
    """Run the job again at ``until`` (a datetime with time zone, or a timedelta from now); this run costs no attempt.

    A time in the past means: as soon as possible.
    """

    def __init__(self, until: datetime | timedelta) -> None:
        super().__init__("the handler put the job off")
        self.at_ms: int | None = None
        self.after_ms: int | None = None
        if isinstance(until, timedelta):
            self.after_ms = max(0, round(until.total_seconds() * 1000))
        elif isinstance(until, datetime) and until.tzinfo is not None:
            self.at_ms = round(until.timestamp() * 1000)
        else:
            raise InvalidInput("until", f"is {until!r}", "give a datetime with a time zone, or a timedelta")

    def delay_ms(self, now_ms: int) -> int:
        """Return the delay seen from the server time ``now_ms``, at least 1 ms."""
        delay = self.after_ms if self.at_ms is None else self.at_ms - now_ms
        return max(1, delay or 0)


def _milliseconds(field: str, value: float | timedelta) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds <= 10 * 365 * 86400:
        raise InvalidInput(field, f"is {value!r}", "give 0 seconds to 10 years")
    return round(seconds * 1000)
