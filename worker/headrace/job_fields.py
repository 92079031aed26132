"""Fields that producers, schedules and handlers give, checked: priorities, durations, numbers."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Literal

from headrace.errors import InvalidInput

Priority = Literal["high", "default", "low"] | int
PRIORITIES: dict[object, int] = {"high": 0, "default": 1, "low": 2, 0: 0, 1: 1, 2: 2}
DEFAULT_PRIORITY = 1

_LONGEST_SECONDS = 100 * 366 * 24 * 3600


def priority_number(value: object) -> int:
    """Return a priority as its number, 0 to 2; None is the default. Raises InvalidInput."""
    if value is None:
        return DEFAULT_PRIORITY
    known = PRIORITIES.get(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if known is None:
        raise InvalidInput("priority", f"is {shortened(value)}", "give 'high', 'default' or 'low', or 0, 1 or 2")
    return known


def duration_ms(field: str, value: timedelta | float) -> int:
    """Return a timedelta, or seconds, in ms. Raises InvalidInput, which names ``field``."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_number(seconds) or seconds < 0:
        raise InvalidInput(field, f"is {shortened(value)}", "give a timedelta or a number of seconds, not negative")
    if seconds > _LONGEST_SECONDS:
        raise InvalidInput(field, f"is {shortened(value)}", "give at most 100 years")
    return round(seconds * 1000)


def is_number(value: object) -> bool:
    """Whether a value is a number that can be compared."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def is_finite(value: object) -> bool:
    """Whether a value is a number that a float can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def check_whole(field: str, value: object, least: int, most: int | None = None, unit: str = "") -> None:
    """Raise InvalidInput, which names ``field``, unless a value is a whole number in this range."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least and (most is None or value <= most)
    if not fits:
        accepted = f"{least} or more" if most is None else f"{least} to {most}"
        raise InvalidInput(field, f"is {shortened(value)}", f"give a whole number, {accepted}{unit}")


def shortened(value: object) -> str:
    """Return a value as text that fits into a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
