"""Counts and histograms in plain arrays: what the hot path of a worker can afford.

A run costs a dictionary look-up, two bisections and a few additions. Written by one event loop, the counts of each
queue's election by that one's thread, read by whoever shows them; a reader may see a histogram between two additions.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from headrace.schedules import Fate
from headrace.worker.metrics import NoMetrics, Outcome, Readings

if TYPE_CHECKING:
    from headrace.stores.base import Statistics
    from headrace.worker.leases import Batch, Execution

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Upper bounds in seconds."""
MAX_LABEL_SETS = 200
OTHER = "_OTHER"

_FIRST = BUCKETS[0]
_NEVER = float("inf")

K = TypeVar("K")
V = TypeVar("V")


class Histogram:
    """``buckets``: observations per bound of BUCKETS, and those above the last; ``total``: their sum, seconds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Finished(NamedTuple):
    """Labels of a finished job."""

    queue: str
    type: str
    outcome: Outcome


class _Series(Histogram):
    """Durations of runs, and how many jobs had an outcome without one."""

    __slots__ = ("unstarted",)

    def __init__(self) -> None:
        super().__init__()
        self.unstarted = 0


class CountingMetrics(NoMetrics):
    """Counts what a process's workers do. At most 200 label sets per instrument; then types are ``_OTHER``.

    Queues come from the configuration, so their number is bounded already.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.claims: dict[str, int] = {}
        self.expired: dict[str, int] = {}
        self.leases_gone: dict[str, int] = {}
        self.poison: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.surveys: dict[str, tuple[Statistics, float]] = {}
        self.unanswered = 0
        self.start_delays: dict[str, Histogram] = {}
        self.calls: dict[str, Histogram] = {}
        self.terms: dict[tuple[str, str], int] = {}
        self.moves: dict[tuple[str, str], int] = {}
        self.fenced: dict[str, int] = {}
        self.renewals: dict[tuple[str, str], Histogram] = {}
        self.duties: dict[tuple[str, str], Histogram] = {}
        self.failed_duties: dict[tuple[str, str], int] = {}
        self.audits: dict[str, int] = {}
        self.violations: dict[str, int] = {}
        self.fires: dict[tuple[str, str, str], int] = {}
        self._finished: dict[Finished, _Series] = {}
        self._by_type: dict[tuple[str, Outcome], dict[str, _Series]] = {}
        self._reads: list[Callable[[], Readings | None]] = []

    # ---- written by workers -----------------------------------------------------------------------------------------

    def started(self, read: Callable[[], Readings | None]) -> None:
        """Remember a worker."""
        self._reads.append(read)

    def claimed(self, queue: str, runs: Collection[Execution]) -> None:
        """Count the jobs of a claim."""
        self.claims[queue] = self.claims.get(queue, 0) + len(runs)

    def settled(self, queue: str, outcome: Outcome, runs: Sequence[Execution]) -> None:
        """Count finished jobs, how long they ran, and how late they began."""
        by_type = self._by_type.get((queue, outcome))
        if by_type is None:
            by_type = self._by_type[queue, outcome] = {}
        delays = self.start_delays.get(queue)
        if delays is None:
            delays = self.start_delays[queue] = Histogram()
        # `Execution.seconds` and `start_delay`, written out, and sums kept in locals: calls and attributes would cost
        # more than the counting.
        delay_buckets, delay_total, total = delays.buckets, 0.0, 0.0
        series: _Series | None = None
        batch: Batch | None = None
        for run in runs:
            job = run.job
            found = by_type.get(job.type) or self._open(by_type, queue, outcome, job.type)
            if found is not series:
                if series is not None:
                    series.total += total
                series, buckets, total = found, found.buckets, 0.0
            deadline = run.deadline
            if deadline == _NEVER:
                series.unstarted += 1
                continue
            started = deadline - run.timeout_ms / 1000
            seconds = run.ended_at - started
            if seconds == _NEVER:  # timed out, and its code goes on
                seconds = deadline - started
            buckets[0 if seconds <= _FIRST else bisect_left(BUCKETS, seconds)] += 1
            total += seconds
            if not job.history:
                if run.batch is not batch:
                    batch = run.batch
                    offset = batch.server_now / 1000 - batch.taken_at
                due, created = job.run_at, job.created_at
                delay = started + offset - (due if due > created else created) / 1000
                if delay < 0:
                    delay = 0.0
                delay_buckets[0 if delay <= _FIRST else bisect_left(BUCKETS, delay)] += 1
                delay_total += delay
        if series is not None:
            series.total += total
        delays.total += delay_total

    def leases_lost(self, queue: str, jobs: int) -> None:
        """Count jobs whose lease a worker of this process lost."""
        self.leases_gone[queue] = self.leases_gone.get(queue, 0) + jobs

    def leases_expired(self, queue: str, jobs: int) -> None:
        """Count jobs that were taken back because their lease had ended."""
        self.expired[queue] = self.expired.get(queue, 0) + jobs

    def poisoned(self, queue: str, jobs: int) -> None:
        """Count jobs that are dead because their worker was lost once too often."""
        self.poison[queue] = self.poison.get(queue, 0) + jobs

    def acks_refused(self, queue: str, jobs: int) -> None:
        """Count results that came too late."""
        self.refused[queue] = self.refused.get(queue, 0) + jobs

    def store_called(self, call: str, seconds: float) -> None:
        """Count one call of the store."""
        calls = self.calls.get(call)
        if calls is None:
            calls = self.calls[call] = Histogram()
        calls.observe(seconds)

    def store_unavailable(self) -> None:
        """Count a call without an answer."""
        self.unanswered += 1

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        """Count a run of a duty, by queue and duty, and those that failed."""
        self.duties.setdefault((queue, duty), Histogram()).observe(seconds)
        if failed:
            self.failed_duties[queue, duty] = self.failed_duties.get((queue, duty), 0) + 1

    def schedule_fired(self, queue: str, schedule: str, outcome: Fate, times: int) -> None:
        """Count times of a schedule, by queue, schedule and outcome."""
        self.fires[queue, schedule, outcome] = self.fires.get((queue, schedule, outcome), 0) + times

    def audited(self, queue: str, partitions: int, leftovers: int) -> None:
        """Count partitions that were looked through, and what was found, by queue."""
        self.audits[queue] = self.audits.get(queue, 0) + partitions
        self.violations[queue] = self.violations.get(queue, 0) + leftovers

    def surveyed(self, queue: str, statistics: Statistics) -> None:
        """Remember what was measured of a queue, and when."""
        self.surveys[queue] = statistics, self.clock()

    # ---- written by the threads of elections ------------------------------------------------------------------------

    def leadership_renewed(self, queue: str, backend: str, seconds: float) -> None:
        """Count one renewal, by queue and lock."""
        self.renewals.setdefault((queue, backend), Histogram()).observe(seconds)

    def leader_moved(self, queue: str, direction: Literal["down", "up"]) -> None:
        """Count a change of the lock, by queue and direction."""
        self.moves[queue, direction] = self.moves.get((queue, direction), 0) + 1

    def leader_fenced(self, queue: str) -> None:
        """Count a refused token."""
        self.fenced[queue] = self.fenced.get(queue, 0) + 1

    def term_ended(self, queue: str, reason: str) -> None:
        """Count a term, by queue and reason of its end."""
        self.terms[queue, reason] = self.terms.get((queue, reason), 0) + 1

    # ---- read by those who show them --------------------------------------------------------------------------------

    def finished(self) -> dict[Finished, int]:
        """Return the finished jobs by queue, type and outcome; safe from another thread."""
        return {labels: series.unstarted + sum(series.buckets) for labels, series in copied(self._finished).items()}

    def durations(self) -> dict[tuple[str, str], Histogram]:
        """Return how long handlers ran, by queue and type; safe from another thread."""
        found: dict[tuple[str, str], Histogram] = {}
        for labels, series in copied(self._finished).items():
            durations = found.setdefault((labels.queue, labels.type), Histogram())
            durations.buckets = [sum(pair) for pair in zip(durations.buckets, series.buckets, strict=True)]
            durations.total += series.total
        return found

    def readings(self) -> list[Readings]:
        """Return the state of each worker that runs; safe from another thread."""
        found = [(read, read()) for read in list(self._reads)]
        for read, readings in found:
            if readings is None:
                self._reads.remove(read)
        return [readings for _, readings in found if readings is not None]

    # ---- label sets -------------------------------------------------------------------------------------------------

    def _open(self, by_type: dict[str, _Series], queue: str, outcome: Outcome, type: str) -> _Series:
        """Return the series of a type that comes up for the first time."""
        if len(self._finished) >= MAX_LABEL_SETS:
            # Not noted under its own name: types that nobody foresaw must not fill the memory.
            type = OTHER
            if (known := by_type.get(OTHER)) is not None:
                return known
        series = by_type[type] = self._finished[Finished(queue, type, outcome)] = _Series()
        return series


def copied(found: dict[K, V]) -> dict[K, V]:
    """Return a copy of a dictionary that another thread may be adding to."""
    while True:
        try:
            return dict(found)
        except RuntimeError:
            continue
