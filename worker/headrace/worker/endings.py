"""Records what follows the end of a run: decides by `outcomes`, tells `settlements`, once for each job."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from headrace.context import log_fields
from headrace.worker.failures import FailureLog
from headrace.worker.leases import EndReason, Execution, State
from headrace.worker.outcomes import INTERRUPTED, NOT_STARTED, after_error, after_timeout, undecided
from headrace.worker.policies import Policies
from headrace.worker.settlements import Settlements

log = logging.getLogger("headrace.worker")

Item = tuple[Execution, BaseException | None]
"""A run of a single job and its error, None for a success."""


class Endings:
    """Takes ended runs; a job whose outcome is recorded, or whose lease is lost, is left alone."""

    def __init__(self, policies: Policies, settlements: Settlements, failures: FailureLog) -> None:
        self._policies = policies
        self._settlements = settlements
        self._failures = failures

    def ended(self, execution: Execution, error: BaseException | None, items: Iterable[Item]) -> None:
        """Record what follows a run that did not simply succeed.

        ``error`` None: it returned after it was told to end, or saw that it is late. If it knew, its return does not
        say that its work is done. ``items``: what it says of each of its jobs, if it is not over for all of them.
        """
        if execution.state != State.RUNNING or execution.lost:
            return
        late = execution.ending == EndReason.NONE and error is None  # it saw that before the timer did
        if late or execution.ending == EndReason.TIMEOUT:
            self.timed_out(execution)
        elif execution.ending == EndReason.INTERRUPTED and (error is not None or execution.was_told):
            self.interrupted(execution)
        else:
            self.concluded(items)

    def concluded(self, items: Iterable[Item]) -> None:
        """Record the outcome of jobs by their errors."""
        for execution, error in items:
            if execution.state != State.RUNNING or execution.lost:
                continue
            if error is None:
                self._settlements.succeeded(execution)
                continue
            job, batch = execution.job, execution.batch
            server_now = batch.server_now + round((time.monotonic() - batch.taken_at) * 1000)
            policy = self._policies.retry(job, execution.handler)
            self._settlements.end(execution, after_error(error, job, policy, server_now))

    def timed_out(self, execution: Execution, *, goes_on: bool = False) -> None:
        """Record a run that took too long; ``goes_on``: its code has not ended."""
        for member in execution.members:
            if member.state != State.RUNNING or member.lost:
                continue
            policy = self._policies.retry(member.job, member.handler)
            self._failures.timed_out(member.job, execution.timeout_ms, goes_on=goes_on)
            self._settlements.end(member, after_timeout(member.job, policy, execution.timeout_ms))
        execution.state = State.ENDED

    def interrupted(self, execution: Execution) -> None:
        """Hand a run back that was told to end before its time was over."""
        for member in execution.members:
            if member.state == State.RUNNING and not member.lost:
                self._settlements.end(member, INTERRUPTED)

    def not_begun(self, execution: Execution) -> None:
        """Hand a run back that has its slot and was told to end before its code began."""
        for member in execution.members:
            if member.state == State.RUNNING and not member.lost:
                self._settlements.end(member, NOT_STARTED)
        execution.state = State.ENDED

    def undecided(self, execution: Execution, wrong: BaseException) -> None:
        """Record a run as failed because ``wrong`` was raised while it was recorded what follows its end."""
        job = execution.job
        log.error(
            "queue %s: what follows a run of job %s (%s) could not be decided; it counts as failed",
            job.queue,
            job.id,
            job.type,
            exc_info=wrong,
            extra=log_fields(job),
        )
        for member in execution.members:
            if member.state == State.RUNNING and not member.lost:
                policy = self._policies.retry(member.job, member.handler)
                self._settlements.end(member, undecided(wrong, member.job, policy))
        execution.state = State.ENDED
