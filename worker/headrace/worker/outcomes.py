"""What follows a run: a pure decision from the error that ended it."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from traceback import StackSummary, walk_tb
from types import TracebackType

from headrace.control import Dead, Retry, Snooze
from headrace.errors import InvalidPayload, ProcessDied, RaisedInProcess
from headrace.job import Job
from headrace.retry import RetryBy, RetryDecision, RetryPolicy, Uniform, decide, decide_by
from headrace.worker.metrics import Outcome

MAX_ERROR_CHARS = 2000
MAX_PROBLEM_CHARS = 500
FRAMES = 3
_OURS = f"{Path(__file__).parents[1]}{os.sep}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The run counts as failed: again after ``delay_ms``, or dead if that is None."""

    delay_ms: int | None
    error: str
    status: str

    @property
    def outcome(self) -> Outcome:
        """Name for the metrics."""
        return "dead" if self.delay_ms is None else "retried"


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The run costs no attempt: again after ``delay_ms``. ``note`` goes into the job's history unless empty."""

    delay_ms: int
    note: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Parked:
    """Nobody here knows the job's type: it waits for a worker that does, and costs no attempt."""

    outcome: Outcome = "parked"


PARKED = Parked()
NOT_STARTED = HandedBack(0, "", "handed_back")
INTERRUPTED = HandedBack(0, "interrupted", "interrupted")


def after_error(
    error: BaseException, job: Job, retry: RetryPolicy | RetryBy, server_now: int, uniform: Uniform = random.uniform
) -> Failed | HandedBack:
    """Decide what follows a handler that raised ``error``; ``server_now`` is the store's time in ms.

    Where a retry function fails, its policy decides, and the text of the error says so.
    """
    if isinstance(error, Snooze):
        return HandedBack(error.delay_ms(server_now), "snoozed", "snoozed")
    if isinstance(error, Dead | InvalidPayload):
        return Failed(None, _message(error)[:MAX_ERROR_CHARS], "dead")
    decision, problem = _decided(error, job, retry, uniform)
    delay_ms = decision.delay_ms
    if isinstance(error, Retry):
        if delay_ms is not None and error.after_ms is not None:
            delay_ms = error.after_ms
        return Failed(delay_ms, _with(_message(error), problem), "failed")
    return Failed(delay_ms, _with(error_text(error), problem), "failed")


def _decided(
    error: BaseException, job: Job, retry: RetryPolicy | RetryBy, uniform: Uniform
) -> tuple[RetryDecision, str]:
    """Return the decision, and what was wrong with the retry function if its policy had to decide."""
    failed_runs = job.attempt + 1
    if isinstance(retry, RetryPolicy):
        return decide(retry, failed_runs, max_retries=job.max_retries, uniform=uniform), ""
    try:
        return decide_by(retry.function, failed_runs, error, max_retries=job.max_retries), ""
    except BaseException as wrong:  # SystemExit too: it is asked where nobody may be ended by it
        problem = f"\n(the retry function failed: {error_text(wrong)[:MAX_PROBLEM_CHARS]})"
    return decide(retry.policy, failed_runs, max_retries=job.max_retries, uniform=uniform), problem


def _with(text: str, problem: str) -> str:
    return text[: MAX_ERROR_CHARS - len(problem)] + problem


def after_timeout(job: Job, retry: RetryPolicy | RetryBy, timeout_ms: int, uniform: Uniform = random.uniform) -> Failed:
    """Decide what follows a run that took longer than ``timeout_ms``; for a retry function that is a TimeoutError."""
    text = f"timed out after {timeout_ms} ms"
    decision, problem = _decided(TimeoutError(text), job, retry, uniform)
    return Failed(decision.delay_ms, _with(text, problem), "timed out")


def undecided(wrong: BaseException, job: Job, retry: RetryPolicy | RetryBy) -> Failed:
    """Decide what follows a run if ``wrong`` was raised when that should have been decided: it has failed."""
    policy = retry if isinstance(retry, RetryPolicy) else retry.policy
    decision = decide(policy, job.attempt + 1, max_retries=job.max_retries)
    text = f"what follows the run could not be decided: {error_text(wrong)}"
    return Failed(decision.delay_ms, text[:MAX_ERROR_CHARS], "failed")


def undecodable(error: Exception) -> Failed:
    """Return the end of a job whose record cannot be read: no run of it can ever succeed."""
    return Failed(None, f"the stored record cannot be read: {error_text(error)}"[:MAX_ERROR_CHARS], "dead")


def error_text(error: BaseException) -> str:
    """Return ``Type: message`` and the last frames, at most 2,000 characters; never raises."""
    if isinstance(error, ProcessDied | RaisedInProcess):
        return str(error)[:MAX_ERROR_CHARS]  # that is all of it; the frames here are ours
    kind = type(error).__name__
    message = _message(error)
    frames = _frames(error.__traceback__)
    head = f"{kind}: {message}" if message else kind
    return head[: MAX_ERROR_CHARS - len(frames)] + frames


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # whatever an error does to tell what it is
        return "(the error has no readable message)"


def _frames(traceback: TracebackType | None) -> str:
    # The source is not looked up: an error must stay cheap when ten thousand jobs fail at once.
    begin = traceback
    while begin is not None and begin.tb_frame.f_code.co_filename.startswith(_OURS):
        begin = begin.tb_next
    # Ours are what called the handler, and tell its author nothing; an error all of ours keeps them.
    found = StackSummary.extract(walk_tb(begin or traceback), limit=-FRAMES, lookup_lines=False)
    return "".join(f"\n  {os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}" for frame in found)[:500]
