"""The job: an immutable envelope, written once, and the few facts that change while it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.retry import RetryPolicy

Payload = Any

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 2**32 - 1
MAX_NOTE = 200
"""Characters of the note of a progress report."""


class HistoryEntry(NamedTuple):
    """One thing that happened to a job: what, when (ms of server time), on which worker, and the error if any."""

    status: str
    at: int
    worker: str
    error: str


class Progress(NamedTuple):
    """What a run reported last of how far it is: a number and a note of its own, and when (ms of server time)."""

    value: float
    note: str
    at: int


class Enqueued(NamedTuple):
    """Where a job is.

    ``existing``: the id was live already; the job that it names is unchanged. ``partition`` and ``version`` are those
    of the job.
    """

    id: str
    version: int
    partition: int
    existing: bool


@dataclass(slots=True)
class Job:
    """A job as a worker sees it. Times are milliseconds since the epoch, of server time.

    ``attempt`` counts the runs that ended in a failure so far (0 on the first run), ``expiries`` the leases that were
    lost. ``suspect``: a lease was lost, and no run has ended by itself since; ``alone``: more than one, so that the job
    runs as the only one of its worker; ``crashes``: how often it was lost then. ``max_retries``, ``timeout_ms`` and
    ``retry`` are None where the job follows the queue's live settings. ``progress``: the last report of a run, perhaps
    of an earlier one.
    """

    id: str
    queue: str
    type: str
    payload: Payload
    created_at: int
    run_at: int
    version: int
    partition: int
    headers: dict[str, str] = field(default_factory=dict)
    max_retries: int | None = None
    timeout_ms: int | None = None
    priority: int = 1
    attempt: int = 0
    expiries: int = 0
    crashes: int = 0
    suspect: bool = False
    alone: bool = False
    last_error: str = ""
    history: tuple[HistoryEntry, ...] = ()
    progress: Progress | None = None
    retry: RetryPolicy | None = None
