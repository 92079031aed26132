"""What a handler knows about the run it is in."""

from __future__ import annotations

import time
from contextvars import ContextVar

from headrace.job import Job

_current: ContextVar[Context | None] = ContextVar("headrace_run", default=None)


def current_run() -> Context | None:
    """Return the run that the calling code is part of (its task or thread), None outside of handlers."""
    return _current.get()


def enter(run: Context) -> None:
    """Make ``run`` the current one of this task; workers do this."""
    _current.set(run)


class Context:
    """One run of one job, given to its handler.

    ``job``: the job. ``deadline``: when the run times out, on the clock of `time.monotonic`. ``cancelled``: the run is
    no longer wanted (timed out, the worker stops, or the lease is lost): a plain function cannot be interrupted, so a
    long one should look at it now and then. ``lost``: the job's lease is gone: the result of this run is refused and
    another worker may run the job.
    """

    __slots__ = ("cancelled", "deadline", "job", "lost")

    def __init__(self, job: Job, deadline: float) -> None:
        self.job = job
        self.deadline = deadline
        self.cancelled = False
        self.lost = False

    @property
    def attempt(self) -> int:
        """Runs of this job that failed before this one; 0 on the first run."""
        return self.job.attempt

    def remaining(self) -> float:
        """Return the seconds left before the run times out; negative afterwards."""
        return self.deadline - time.monotonic()

    def __repr__(self) -> str:
        return f"<Context of job {self.job.id!r} ({self.job.type}) in queue {self.job.queue!r}>"
