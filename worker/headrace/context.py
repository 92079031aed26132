"""What a handler knows about the run it is in."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar

from headrace.errors import InvalidInput, InvalidPayload
from headrace.job import MAX_NOTE, Job
from headrace.job_fields import is_finite, shortened

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

    __slots__ = ("_fencing_token", "_unwanted", "_was_told", "deadline", "job", "lost")

    def __init__(self, job: Job, deadline: float, fencing_token: int = 0) -> None:
        self.job = job
        self.deadline = deadline
        self.lost = False
        self._fencing_token = fencing_token
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

    @property
    def fencing_token(self) -> int:
        """A number above that of every earlier run of this job, of whichever worker.

        Write it along with what the run changes elsewhere, and let nothing be changed under a lower one: a run whose
        lease was lost without its knowledge does no harm then.
        """
        return self._fencing_token

    def progress(self, value: float, note: str = "") -> None:
        """Report how far the run is: a number and a note, of which 200 characters are kept with the job.

        The last report replaces the one before. It is stored within about a second, and with the outcome of a run that
        fails or is put off; the next run finds it in ``job.progress``. Any thread may call this, as often as it likes.
        Raises InvalidInput for a value that is no finite number.
        """
        if not is_finite(value):
            raise InvalidInput("value", f"is {shortened(value)}", "give a finite number")
        self._report(float(value), str(note)[:MAX_NOTE])

    def heartbeat(self) -> None:
        """Say that the code is alive, from any thread.

        Leases of code that goes on past its time-out are given up after a grace (``timeout_grace_ms``); this begins it
        anew, so that nobody else runs the job while the code still cleans up. Past its time-out, the run has failed
        all the same.
        """

    def _report(self, value: float, note: str) -> None:
        """Pass a report on; there is nobody to pass it to here."""

    def __repr__(self) -> str:
        return f"<Context of job {self.job.id!r} ({self.job.type}) in queue {self.job.queue!r}>"


class BatchContext(Context, ABC):
    """One run of several jobs of one type and queue, given to a batch handler.

    ``runs`` are the runs of the single jobs, in the order of the payloads; each has its own ``job``, and its own
    ``lost``. ``job`` is the first one, ``lost`` means all of them. They share ``deadline`` and ``cancelled``.
    """

    __slots__ = ()

    @property
    def jobs(self) -> list[Job]:
        """The jobs, in the order of the payloads."""
        return [run.job for run in self.runs]

    @property
    def fencing_token(self) -> int:
        """The lowest one of its runs; each of ``runs`` has its own."""
        return min(run.fencing_token for run in self.runs)

    def heartbeat(self) -> None:
        """Say that the code is alive, for all jobs."""
        for run in self.runs:
            run.heartbeat()

    def _report(self, value: float, note: str) -> None:
        for run in self.runs:
            run._report(value, note)

    @abstractmethod
    def refuse(self, errors: Mapping[int, InvalidPayload]) -> None:
        """Take out the runs at these positions of ``runs``; workers do this with payloads that do not fit."""

    def __repr__(self) -> str:
        return f"<BatchContext of {len(self.runs)} jobs ({self.job.type}) in queue {self.job.queue!r}>"
