"""What a handler knows about the run it is in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar

from headrace.errors import InvalidPayload
from headrace.job import Job

_current: ContextVar[Context | None] = ContextVar("headrace_run", default=None)


def current_run() -> Context | None:
    """Return the run that the calling code is part of (its task or thread), None outside of handlers."""
    return _current.get()


def log_fields(job: Job) -> dict[str, object]:
    """Return what a log line about a job carries as ``extra``."""
    return {"job_id": job.id, "queue": job.queue, "type": job.type, "attempt": job.attempt}


def enter(run: Context) -> None:
    """Make ``run`` the current one of this task; workers do this."""
    _current.set(run)


class Context:
    """One run of one job, given to its handler.

    ``job``: the job. ``deadline``: when the run times out, on the clock of `time.monotonic`. ``lost``: the job's lease
    is gone: the result of this run is refused and another worker may run the job.
    """

    __slots__ = ("_unwanted", "_was_told", "deadline", "job", "lost")

    def __init__(self, job: Job, deadline: float) -> None:
        self.job = job
        self.deadline = deadline
        self.lost = False
        self._unwanted = False
        self._was_told = False

    @property
    def runs(self) -> tuple[Context, ...]:
        """The runs of its single jobs: this one, or those of a batch."""
        return (self,)

    @property
    def cancelled(self) -> bool:
        """Whether the run is no longer wanted: it timed out, the worker stops, or the lease is lost.

        A plain function cannot be interrupted, so a long one should look at this now and then, and return: a run that
        was told so does not count as a success. Timed out, it has failed; else it is handed back and runs again.
        """
        if self._unwanted:
            self._was_told = True
        return self._unwanted

    @property
    def attempt(self) -> int:
        """Runs of this job that failed before this one; 0 on the first run."""
        return self.job.attempt

    def remaining(self) -> float:
        """Return the seconds left before the run times out; negative afterwards, when the run counts as timed out."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            self._was_told = True
        return left

    def is_leader(self) -> bool:
        """Return whether this process leads the job's queue now. Any thread may ask."""
        return self.leader_epoch() is not None

    def leader_epoch(self) -> int | None:
        """Return the epoch under which this process leads the job's queue now, None if it does not.

        For other systems: one that remembers the highest epoch and refuses lower ones is safe from a paused leader.
        """
        return None

    def __repr__(self) -> str:
        return f"<Context of job {self.job.id!r} ({self.job.type}) in queue {self.job.queue!r}>"


class BatchContext(Context):
    """One run of several jobs of one type and queue, given to a batch handler.

    ``runs`` are the runs of the single jobs, in the order of the payloads; each has its own ``job``, and its own
    ``lost``. ``job`` is the first one, ``lost`` means all of them. They share ``deadline`` and ``cancelled``.
    """

    __slots__ = ()

    @property
    def jobs(self) -> list[Job]:
        """The jobs, in the order of the payloads."""
        return [run.job for run in self.runs]

    def refuse(self, errors: Mapping[int, InvalidPayload]) -> None:
        """Take out the runs at these positions of ``runs``; workers do this with payloads that do not fit."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<BatchContext of {len(self.runs)} jobs ({self.job.type}) in queue {self.job.queue!r}>"
