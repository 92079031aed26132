"""What a duty is."""

from __future__ import annotations

from typing import Protocol

from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.schedules import Fate
from headrace.stores.base import Statistics


class Duty(Protocol):
    """One kind of housekeeping of one queue, for one term of its leader; a new one is made for each term."""

    @property
    def name(self) -> str:
        """Name of the duty in logs and metrics, with ``_`` between words."""
        ...

    def due(self, signs: Signs, now: float) -> float | None:
        """Return when it is to run next, on the monotonic clock; None: not before the signs change.

        Asked again after each run and each sign; a decision about values, without I/O.
        """
        ...

    async def run(self, turn: Turn, signs: Signs) -> None:
        """Do what is due: a sequence of steps, each of which may be the last. Raises what the store raises."""
        ...


class DutyMetrics(Protocol):
    """Receives what duties do."""

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        """Count one run of a duty, and how long it took."""
        ...


class DutyFindings(Protocol):
    """Receives what duties find out, as `headrace.worker.metrics.Metrics` does."""

    def surveyed(self, queue: str, statistics: Statistics) -> None:
        """Take what was measured of a queue."""
        ...

    def schedule_fired(self, queue: str, schedule: str, outcome: Fate, times: int) -> None:
        """Count times of a schedule, by what became of them."""
        ...

    def audited(self, queue: str, partitions: int, leftovers: int) -> None:
        """Count partitions that were looked through, and what no step leaves behind there."""
        ...


class NoFindings:
    """Takes no note."""

    def surveyed(self, queue: str, statistics: Statistics) -> None:
        """Do nothing."""

    def schedule_fired(self, queue: str, schedule: str, outcome: Fate, times: int) -> None:
        """Do nothing."""

    def audited(self, queue: str, partitions: int, leftovers: int) -> None:
        """Do nothing."""
