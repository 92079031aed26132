"""What the log tells of runs that failed: dead letters and time-outs, a few lines per type and minute.

What is left out is counted, and told when the minute is over.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal

from headrace.context import log_fields
from headrace.job import Job
from headrace.shown_text import harmless

log = logging.getLogger("headrace.worker")

Kind = Literal["dead", "timed out"]

LINES = 5
INTERVAL_SECONDS = 60.0
MAX_SUBJECTS = 200
"""Combinations of kind, queue and type that are told apart; the types beyond them are counted together."""


@dataclass(slots=True)
class _Told:
    lines: int = 0
    left_out: int = 0


class FailureLog:
    """Writes at most ``LINES`` lines per kind, queue and type in a minute, from one event loop."""

    def __init__(self) -> None:
        self._told: dict[tuple[Kind, str, str], _Told] = {}
        self._timer: asyncio.TimerHandle | None = None

    def died(self, job: Job, error: str) -> None:
        """Tell of a job that is a dead letter now, with the first line of its error."""
        if self._may_tell("dead", job):
            first = harmless(error.partition("\n")[0])
            log.warning(
                "queue %s: job %s (%s) is dead: %s",
                job.queue,
                job.id,
                job.type or "unreadable",
                first,
                extra=log_fields(job),
            )

    def timed_out(self, job: Job, timeout_ms: int, *, goes_on: bool) -> None:
        """Tell of a run that took too long."""
        if self._may_tell("timed out", job):
            log.warning(
                "queue %s: job %s (%s) timed out after %d ms%s",
                job.queue,
                job.id,
                job.type,
                timeout_ms,
                " and goes on; its slot stays taken until it ends" if goes_on else "",
                extra=log_fields(job),
            )

    def failed(self, job: Job, error: str) -> None:
        """Tell of a failed run that is repeated, where somebody wants to see each of them."""
        if log.isEnabledFor(logging.DEBUG):
            first = harmless(error.partition("\n")[0])
            log.debug(
                "queue %s: job %s (%s) failed and runs again: %s",
                job.queue,
                job.id,
                job.type,
                first,
                extra=log_fields(job),
            )

    def flush(self) -> None:
        """Tell now how many were left out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        told, self._told = self._told, {}
        for (kind, queue, type), each in told.items():
            if each.left_out:
                log.warning("queue %s: %d more job(s) of %s are %s", queue, each.left_out, type or "other types", kind)

    def _may_tell(self, kind: Kind, job: Job) -> bool:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self.flush)
        subject = (kind, job.queue, job.type)
        if subject not in self._told and len(self._told) >= MAX_SUBJECTS:
            subject = (kind, job.queue, "")
        told = self._told.setdefault(subject, _Told())
        if told.lines < LINES:
            told.lines += 1
            return True
        told.left_out += 1
        return False
