"""What is kept of a schedule between two times."""

from __future__ import annotations

from typing import NamedTuple


class ScheduleMark(NamedTuple):
    """The times of a schedule up to ``at`` (ms) have been dealt with, by the rule of this text."""

    at: int
    rule: str
