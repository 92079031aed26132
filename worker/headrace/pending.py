"""Jobs on their way into a queue: what is known of each, and how long its outcome is sought."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.errors import HeadraceError, OutcomeUnknown, StoreUnavailable
from headrace.job import Enqueued
from headrace.stores.base import NewJob, Once
from headrace.topology import PartitionRef

TOO_LATE = "the outcome of the step that carried it was not found out in time"
AGAIN = "enqueue again under the same id, which adds nothing while the job lives"


@dataclass(slots=True)
class Pending:
    """A job on its way, until it has a ``result`` or an ``error``.

    ``once``: lets it be inserted at most once; such a job travels alone. ``nonces``: of the steps that carried it and
    whose outcome is unknown; ``deadline``: until when that can be found out, on the producer's clock.
    """

    id: str
    job: NewJob
    given: bool
    once: Once | None = None
    nonces: tuple[bytes, ...] = ()
    deadline: float = 0.0
    result: Enqueued | None = None
    error: HeadraceError | None = None

    @property
    def open(self) -> bool:
        """Whether nothing is known of it yet."""
        return self.result is None and self.error is None

    def outcome(self) -> Enqueued | HeadraceError:
        """Return the error if there is one, else the result."""
        if self.error is not None:
            return self.error
        if self.result is None:
            raise RuntimeError("a placed job has no result")
        return self.result


class Patience:
    """Pauses between tries of one step, until the time is over in which its outcome can be found out."""

    def __init__(self, clock: Callable[[], float], retry_for: float, jobs: Sequence[Pending]) -> None:
        self._clock = clock
        self.deadline = min([job.deadline for job in jobs if job.nonces], default=clock() + retry_for)
        self._pause = 0.02

    async def pause(self, ref: PartitionRef, jobs: Sequence[Pending], error: StoreUnavailable) -> None:
        """Wait before the next try, or raise ``error``; that there was no answer, if a job may have been enqueued."""
        self._pause = min(self._pause * 2, 0.5)
        if self._clock() + self._pause <= self.deadline:
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
            if self._clock() <= self.deadline:  # else this process slept, and the store may have forgotten the nonce
                return
        if not any(job.nonces for job in jobs):
            raise error
        raise StoreUnavailable(f"queue {ref.queue!r}, partition {ref.label}: no answer in time ({error})") from error


def fail(jobs: Sequence[Pending], error: HeadraceError) -> None:
    """Give ``error`` to the jobs without a result; to each that a lost step may have enqueued an OutcomeUnknown.

    That names the job: a generated id is known to nobody else yet.
    """
    for job in jobs:
        if job.open:
            job.error = _doubt(job, error) if job.nonces else error


def _doubt(job: Pending, error: HeadraceError) -> OutcomeUnknown:
    told = OutcomeUnknown(f"job {job.id!r} may or may not be enqueued: {TOO_LATE} ({error}); {AGAIN}")
    told.__cause__ = error
    return told
