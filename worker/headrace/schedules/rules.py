"""Rules that say at which times a schedule is due. Times are aware datetimes in UTC, of whole seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from headrace.errors import InvalidInput

Skipped = Literal["shift", "skip"]
Repeated = Literal["once", "twice"]

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
LONGEST_EVERY = 366 * 24 * 3600
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLE = datetime(2024, 1, 1, tzinfo=UTC)
_CHANGE_HOURS = 26
"""Hours around a time within which a change of the clocks matters to it; the largest one skipped a day."""


class Rule(Protocol):
    """When something is due."""

    @property
    def text(self) -> str:
        """What the rule is, in one line; two rules are the same if their texts are."""
        ...

    def latest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the last times, ``limit`` at most, that are after ``after`` and not after ``until``, in order."""
        ...

    def following(self, moment: datetime) -> datetime | None:
        """Return the first time after ``moment``; None if there is none within 50 years."""
        ...


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many ``seconds`` (whole, 1 s to 366 days), counted from the beginning of 1970 in UTC.

    Counted from a fixed time, so that all processes agree, and a restart changes nothing. Raises InvalidInput.
    """

    seconds: int

    def __post_init__(self) -> None:
        if not 1 <= self.seconds <= LONGEST_EVERY:
            raise InvalidInput("every", f"is {self.seconds} s", f"give 1 to {LONGEST_EVERY} seconds")

    @property
    def text(self) -> str:
        """As `Rule.text`."""
        return f"every {self.seconds} s"

    def latest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """As `Rule.latest`."""
        last, first = self._number(until), self._number(after) + 1
        return [self._time(number) for number in range(max(first, last - limit + 1), last + 1)]

    def following(self, moment: datetime) -> datetime | None:
        """As `Rule.following`."""
        return self._time(self._number(moment) + 1)

    def _number(self, moment: datetime) -> int:
        return (moment - _EPOCH) // timedelta(seconds=self.seconds)

    def _time(self, number: int) -> datetime:
        return _EPOCH + number * timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron ``expression`` of five fields, read on the clocks of a time zone.

    ``skipped``: a time that the clocks leave out is shifted to the moment after the gap, or skipped. ``repeated``: a
    time that they show twice counts once, the first time, or twice. None: as cron does it. An expression with fixed
    hours is shifted and counts once; one whose hour or minute begins with ``*`` goes on with real time: nothing is
    shifted, and both hours count.

    Raises InvalidInput for an expression that is none, or that never comes.
    """

    expression: str
    zone: ZoneInfo
    skipped: Skipped | None = None
    repeated: Repeated | None = None
    _follows_time: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise InvalidInput("cron", f"{self.expression!r} is no text", "give five fields, as in '0 16 * * *'")
        fields = self.expression.split()
        if self.expression.strip().startswith("@"):
            remedy = "give five fields, such as '0 0 * * *' for @daily"
            raise InvalidInput("cron", f"{self.expression!r} is a macro, and macros are not supported", remedy)
        if len(fields) != 5:
            remedy = "give minute, hour, day of the month, month and day of the week, as in '0 16 * * *'"
            raise InvalidInput("cron", f"{self.expression!r} has {len(fields)} field(s)", remedy)
        object.__setattr__(self, "_follows_time", fields[0].startswith("*") or fields[1].startswith("*"))
        try:
            CronSim(self.expression, _SAMPLE)
        except CronSimError as error:
            if _date_never_comes(fields):
                problem = f"{self.expression!r} names a date that never comes"
                raise InvalidInput("cron", problem, "correct day of the month or month") from None
            raise InvalidInput("cron", f"{self.expression!r}: {error}", "correct that field") from None
        if self.following(_SAMPLE) is None:
            raise InvalidInput("cron", f"{self.expression!r} never comes", "give a time that comes")

    @property
    def text(self) -> str:
        """As `Rule.text`."""
        policy = "".join(f", {name} {value}" for name, value in self._policies() if value)
        return f"{' '.join(self.expression.split())} {self.zone.key}{policy}"

    def _policies(self) -> tuple[tuple[str, str | None], ...]:
        return ("skipped", self.skipped), ("repeated", self.repeated)

    def latest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """As `Rule.latest`."""
        found: set[datetime] = set()
        floor = self._shown(after) - self._swing(after)
        for shown in self._backwards(self._shown(until) + self._swing(until)):
            if len(found) >= limit:
                kept = sorted(found)[-limit]
                floor = self._shown(kept) - self._swing(kept)
            if shown < floor:
                break
            found |= {each for each in self._moments(shown) if after < each <= until}
        return sorted(found)[-limit:]

    def following(self, moment: datetime) -> datetime | None:
        """As `Rule.following`."""
        best: datetime | None = None
        for shown in CronSim(self.expression, self._shown(moment) - self._swing(moment) - SECOND):
            later = [each for each in self._moments(shown) if each > moment]
            best = min([*later, best] if best is not None else later, default=None)
            if best is not None and shown >= self._shown(best) + self._swing(best):
                break
        return best

    def _backwards(self, shown: datetime) -> Iterator[datetime]:
        return CronSim(self.expression, shown + SECOND, reverse=True)

    def _shown(self, moment: datetime) -> datetime:
        """Return what the clocks show at a moment, without a zone."""
        return moment.astimezone(self.zone).replace(tzinfo=None, microsecond=0)

    def _swing(self, moment: datetime) -> timedelta:
        """Return by how much clocks change around a moment: so far from it, the order of what they show may differ."""
        around = [self._offset(moment + hours * HOUR) for hours in range(-_CHANGE_HOURS, _CHANGE_HOURS + 1)]
        return max(around) - min(around)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta()

    def _moments(self, shown: datetime) -> list[datetime]:
        """Return the moments that count as the time ``shown`` by the clocks."""
        first, second = (shown.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if self._shown(first) != shown:  # left out: `second` lies before the gap, and `first` after it
            shifts = (self.skipped or ("skip" if self._follows_time else "shift")) == "shift"
            return [self._end_of_gap(second, first)] if shifts else []
        twice = (self.repeated or ("twice" if self._follows_time else "once")) == "twice"
        return [first, second] if twice and first != second else [first]

    def _end_of_gap(self, before: datetime, after: datetime) -> datetime:
        """Return the first moment at which the clocks have changed."""
        old = self._offset(before)
        while after - before > SECOND:
            middle = (before + (after - before) // 2).replace(microsecond=0)
            if self._offset(middle) == old:
                before = middle
            else:
                after = middle
        return after


def rule_of(text: str) -> Rule | None:
    """Return the rule of a `Rule.text`; None if this version of Headrace does not read it."""
    try:
        if text.startswith("every "):
            return Interval(int(text.removeprefix("every ").removesuffix(" s")))
        cron, *policies = text.split(", ")
        expression, _, zone = cron.rpartition(" ")
        given: dict[str, Any] = {name: value for name, _, value in (each.partition(" ") for each in policies)}
        return Cron(expression, ZoneInfo(zone), **given)
    except (ValueError, TypeError, KeyError, OSError):  # InvalidInput is a ValueError
        return None


def _date_never_comes(fields: list[str]) -> bool:
    """Whether day of the month and month of a refused expression are right alone, but not together: February 30."""
    minute, hour, day, month, weekday = fields
    try:
        for alone in ((day, "*"), ("*", month)):
            CronSim(" ".join((minute, hour, *alone, weekday)), _SAMPLE)
    except CronSimError:
        return False
    return True
