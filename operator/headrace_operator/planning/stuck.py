"""A drain whose jobs could run and do not: whether it is one, and which jobs of it to name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from headrace.settings import QueueSettings
from headrace.stores.base import Counts
from headrace_operator.observed import HeldJob
from headrace_operator.reasons import Finding, Reason

STUCK_MS = 600_000
"""Jobs that could run and have not for this time need somebody."""
SHOWN = 3
_LONGEST_NAME = 60

Cause = Literal["waiting", "held"]
"""No worker takes a ready job; or one holds a job for longer than any run may take."""


def stuck(counts: Mapping[int, Counts], settings: QueueSettings) -> Cause | None:
    """Say why jobs of a draining version which could run have not for long; None if they have, or wait for else."""
    marked = [count.marked_at for count in counts.values() if count.marked_at is not None]
    now = max((count.now for count in counts.values()), default=0)
    if not marked or settings.stop == "hold" or now - min(marked) < STUCK_MS:
        return None
    if any(count.ready and now - _ready_since(count) >= STUCK_MS for count in counts.values()):
        return "waiting"
    if (
        any(count.leased for count in counts.values())
        and settings.timeout_ms is not None
        and now - min(marked) >= STUCK_MS + settings.timeout_ms
    ):
        return "held"
    return None


def _ready_since(count: Counts) -> int:
    """Return since when a partition has held a ready job, ms.

    Of jobs that are set apart, since their workers died, it is not known: taken for it is the beginning of the drain.
    """
    told = (when for when in (count.oldest_ready_at, count.marked_at) if when is not None)
    return next(told, count.now)


def stuck_finding(version: int, cause: Cause, jobs: Sequence[HeldJob]) -> Finding:
    """Say what is stuck, and of which jobs it is known.

    Without sizes, and with the jobs apart: they change, and each message is told as an Event of its own.
    """
    minutes = STUCK_MS // 60_000
    if cause == "waiting":
        why = (
            f"has held a ready job for more than {minutes} minutes: no worker takes it, or they do not keep up; see "
            "WorkersAvailable and `headrace worker list`"
        )
    else:
        why = (
            f"has drained for more than {minutes} minutes and a run's longest time, and a worker still holds a job of "
            "it; `headrace worker list` says which"
        )
    return Finding(Reason.DRAIN_STUCK, f"v{version} {why}", _named(jobs))


def _named(jobs: Sequence[HeldJob]) -> str:
    """Return a clause that names the jobs, those that took workers down first; "" if none is known."""
    first = sorted(jobs, key=lambda job: (not job.poison, job.due_at, job.id))
    if not first:
        return ""
    more = f" and {len(first) - SHOWN} more" if len(first) > SHOWN else ""
    return ": " + ", ".join(map(_told, first[:SHOWN])) + more


def _told(job: HeldJob) -> str:
    kind = f" ({job.type[:_LONGEST_NAME]!r})" if job.type else ""
    where = f" is held by {job.holder}" if job.holder else " is ready"
    lost = f", and has lost {job.expiries} leases: its workers died, or hung" if job.poison else ""
    return f"job {job.id}{kind}{where}{lost}"
