"""What follows a run: a pure decision from the error that ended it."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from traceback import StackSummary, walk_tb
from types import TracebackType

from headrace.control import Dead, Retry, Snooze
from headrace.errors import InvalidPayload, ProcessDied, RaisedInProcess
from headrace.job import Job
from headrace.retry import RetryPolicy, Uniform, decide
from headrace.worker.metrics import Outcome

MAX_ERROR_CHARS = 2000
FRAMES = 3


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
    error: BaseException, job: Job, policy: RetryPolicy, server_now: int, uniform: Uniform = random.uniform
) -> Failed | HandedBack:
    """Decide what follows a handler that raised ``error``; ``server_now`` is the store's time in ms."""
    if isinstance(error, Snooze):
        return HandedBack(error.delay_ms(server_now), "snoozed", "snoozed")
    if isinstance(error, Dead | InvalidPayload):
        return Failed(None, str(error)[:MAX_ERROR_CHARS], "dead")
    decision = decide(policy, job.attempt + 1, max_retries=job.max_retries, uniform=uniform)
    delay_ms = decision.delay_ms
    if isinstance(error, Retry):
        if delay_ms is not None and error.after_ms is not None:
            delay_ms = error.after_ms
        return Failed(delay_ms, str(error)[:MAX_ERROR_CHARS], "failed")
    return Failed(delay_ms, error_text(error), "failed")


def after_timeout(job: Job, policy: RetryPolicy, timeout_ms: int, uniform: Uniform = random.uniform) -> Failed:
    """Decide what follows a run that took longer than ``timeout_ms``."""
    decision = decide(policy, job.attempt + 1, max_retries=job.max_retries, uniform=uniform)
    return Failed(decision.delay_ms, f"timed out after {timeout_ms} ms", "timed out")


def undecodable(error: Exception) -> Failed:
    """Return the end of a job whose record cannot be read: no run of it can ever succeed."""
    return Failed(None, f"the stored record cannot be read: {error_text(error)}"[:MAX_ERROR_CHARS], "dead")


def error_text(error: BaseException) -> str:
    """Return ``Type: message`` and the last frames, at most 2,000 characters; never raises."""
    if isinstance(error, ProcessDied | RaisedInProcess):
        return str(error)[:MAX_ERROR_CHARS]  # that is all of it; the frames here are ours
    kind = type(error).__name__
    try:
        message = str(error)
    except Exception:
        message = "(the error has no readable message)"
    frames = _frames(error.__traceback__)
    head = f"{kind}: {message}" if message else kind
    return head[: MAX_ERROR_CHARS - len(frames)] + frames


def _frames(traceback: TracebackType | None) -> str:
    # The source is not looked up: an error must stay cheap when ten thousand jobs fail at once.
    found = StackSummary.extract(walk_tb(traceback), limit=-FRAMES, lookup_lines=False)
    return "".join(f"\n  {os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}" for frame in found)[:500]
