"""The leases that this process holds: one record per claimed job, grouped by the claim call that brought it.

Written by the handlers' loop, read by the keeper's thread: single dict operations only, which the interpreter makes
atomic, and a copy that is taken again if it collides with one.
"""

from __future__ import annotations

import time
from asyncio import Task
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.context import Context
from headrace.job import Job
from headrace.leader_term import nobody_leads
from headrace.stores.base import Claimed, Report, Settled
from headrace.topology import PartitionRef

if TYPE_CHECKING:
    from headrace.handler import Handler
    from headrace.worker.batches import Group
    from headrace.worker.processes.process import HandlerProcess
    from headrace.worker.settlements import Outbox


_NEVER = float("inf")
K = TypeVar("K")


class State(IntEnum):
    """Where a run is: waiting for a slot, running, ended with its outcome not yet confirmed, or over."""

    WAITING = 0
    RUNNING = 1
    ENDED = 2
    OVER = 3


class EndReason(IntEnum):
    """Why the runtime told a handler to end."""

    NONE = 0
    TIMEOUT = 1
    LOST = 2
    INTERRUPTED = 3


# Looked up once: as attributes of their classes they cost more than the rest of an assignment.
_WAITING = State.WAITING
_NO_REASON = EndReason.NONE


class Batch:
    """The jobs of one claim call. ``held_until`` is the earliest end of their leases, on the monotonic clock.

    ``reported``: those whose progress was reported and is not stored yet; none is stored before ``report_at``.
    """

    __slots__ = (
        "fencing_token",
        "held_until",
        "leader_epoch",
        "lease_ms",
        "open",
        "outbox",
        "ref",
        "renew_at",
        "report_at",
        "reported",
        "server_now",
        "taken_at",
        "token",
    )

    def __init__(
        self,
        outbox: Outbox,
        token: bytes,
        lease_ms: int,
        renew_after_ms: int,
        server_now: int,
        taken_at: float,
        leader_epoch: Callable[[], int | None] = nobody_leads,
        fencing_token: int = 0,
    ) -> None:
        self.ref: PartitionRef = outbox.ref
        self.leader_epoch = leader_epoch
        self.token = token
        self.outbox = outbox
        self.lease_ms = lease_ms
        self.server_now = server_now
        self.taken_at = taken_at
        self.held_until = taken_at + lease_ms / 1000
        self.renew_at = taken_at + renew_after_ms / 1000
        self.fencing_token = fencing_token
        self.open: dict[bytes, Execution] = {}
        self.reported: dict[Execution, None] = {}
        self.report_at = taken_at


class Execution(Context):
    """One run, from its claim to the confirmation of its outcome. The handler sees it as its Context."""

    __slots__ = (
        "batch",
        "beat_at",
        "check_at",
        "claimed",
        "ended_at",
        "ending",
        "group",
        "handler",
        "process",
        "report",
        "resent",
        "result",
        "returned",
        "settled",
        "state",
        "task",
        "timeout_ms",
        "unaware",
    )

    claimed: Claimed
    process: HandlerProcess
    """Both are there only where the handler runs in a process."""
    beat_at: float
    """When the code last said that it is alive; there only if it did."""
    report: tuple[float, str]
    """Its last progress; there only if it reported any."""
    group: Group
    """The batch that it runs in; there only where its handler takes batches."""
    returned: Any
    """What the handler returned; there only if it was not None."""
    result: bytes
    """The same, packed; there only if it is to be kept."""
    unaware: bool
    """Set where the code was told to end and could not notice: it was in a thread."""

    def __init__(self, job: Job, batch: Batch, settled: Settled, handler: Handler, timeout_ms: int) -> None:
        # Not through the base class: a claim makes one per job.
        self.job = job
        self.deadline = self.check_at = _NEVER
        self.lost = self._unwanted = self._was_told = False
        # Kept only where metrics are, see `measuring`.
        self.ended_at = _NEVER
        self.batch = batch
        self.settled = settled
        self.handler = handler
        self.timeout_ms = timeout_ms
        self.state = _WAITING
        self.ending = _NO_REASON
        # Whether an earlier call with its outcome may have been applied: a refusal then proves no loss.
        self.resent = False
        self.task: Task[Any] | None = None

    @property
    def fencing_token(self) -> int:
        """A number above that of every earlier run of this job."""
        return self.batch.fencing_token

    def heartbeat(self) -> None:
        """Say that the code is alive."""
        self.beat_at = now = time.monotonic()
        if now > self.deadline:
            self._was_told = True  # as if it had looked: it has timed out, also if it returns in the end

    def _report(self, value: float, note: str) -> None:
        # First what is reported and then that it is: the keeper's thread takes them in the other order.
        self.report = value, note
        self.batch.reported[self] = None

    def given_up_at(self, grace: float) -> float:
        """Return when code that goes on is given up: ``grace`` seconds after its time-out or its last heartbeat."""
        return max(self.deadline, getattr(self, "beat_at", self.deadline)) + grace

    @property
    def members(self) -> tuple[Execution, ...]:
        """The runs of single jobs that have an outcome of their own: this one, or those of a batch."""
        return (self,)

    def time_out_at(self, deadline: float) -> None:
        """Set the deadline, infinity for none."""
        self.deadline = self.check_at = deadline

    def leader_epoch(self) -> int | None:
        """See `headrace.context.Context.leader_epoch`."""
        return self.batch.leader_epoch()

    def withdraw(self) -> None:
        """Let the handler see that its run is no longer wanted."""
        self._unwanted = True

    @property
    def withdrawn(self) -> bool:
        """Whether the run is no longer wanted, without telling the handler."""
        return self._unwanted

    @property
    def was_told(self) -> bool:
        """Whether the handler knows that its run is no longer wanted, or late: it looked, or it was cancelled."""
        return self._was_told or (self._unwanted and not getattr(self, "unaware", False))

    @property
    def seconds(self) -> float | None:
        """Seconds that the handler ran, up to the recorded outcome; None if it did not start."""
        if self.deadline == _NEVER:
            return None
        limit = self.timeout_ms / 1000
        return limit if self.ended_at == _NEVER else self.ended_at - self.deadline + limit

    @property
    def start_delay(self) -> float | None:
        """Seconds between the time when the job was due and its first start; None if this is a later run."""
        job, batch = self.job, self.batch
        if job.history or self.deadline == _NEVER:
            return None
        due = job.run_at if job.run_at > job.created_at else job.created_at
        waited = (batch.server_now - due - self.timeout_ms) / 1000 + self.deadline - batch.taken_at
        return waited if waited > 0 else 0.0


class LeaseTable:
    """Every batch with jobs whose outcome is not confirmed.

    ``held`` counts these jobs, ``suspects`` those among them whose lease was lost before, ``alone`` those among these
    that must run alone.
    """

    def __init__(self) -> None:
        self._batches: dict[Batch, None] = {}
        self.held = 0
        self.suspects = 0
        self.alone = 0

    def add(self, batch: Batch) -> None:
        """Note a batch, its jobs in ``open``."""
        if batch.open:
            self._batches[batch] = None
            self.held += len(batch.open)
            for execution in batch.open.values():
                if execution.job.suspect:
                    self.suspects += 1
                    self.alone += execution.job.alone

    def drop(self, execution: Execution) -> None:
        """Forget one job: its outcome is confirmed, or its lease is lost. Idempotent."""
        batch = execution.batch
        if batch.open.pop(execution.settled.key, None) is not None:
            self.held -= 1
            if execution.job.suspect:
                self.suspects -= 1
                self.alone -= execution.job.alone
            if not batch.open:
                self._batches.pop(batch, None)

    def by_queue(self) -> dict[str, int]:
        """Return how many jobs of each queue are held."""
        found: dict[str, int] = {}
        for batch in self._batches:
            queue = batch.ref.queue
            found[queue] = found.get(queue, 0) + len(batch.open)
        return found

    def batches(self) -> list[Batch]:
        """Return the batches now; safe from another thread."""
        return copied(self._batches)


def open_executions(batch: Batch) -> list[Execution]:
    """Return the jobs of a batch whose outcome is not confirmed; safe from another thread."""
    while True:
        try:
            return list(batch.open.values())
        except RuntimeError:  # the other thread added or removed one in between
            continue


def copied(elements: dict[K, None]) -> list[K]:
    """Return the keys of a dictionary that another thread may be changing."""
    while True:
        try:
            return list(elements)
        except RuntimeError:
            continue


@contextmanager
def reports_of(leases: Sequence[Execution]) -> Iterator[list[Report]]:
    """Take what some of these runs have reported, as a renewal of ``leases`` takes it; safe from another thread.

    It is kept for another try if the block raises.
    """
    taken = [(n, execution) for n, execution in enumerate(leases) if execution in execution.batch.reported]
    for _, execution in taken:
        execution.batch.reported.pop(execution, None)
    try:
        yield [Report(n, *execution.report) for n, execution in taken]
    except BaseException:
        for _, execution in taken:
            execution.batch.reported[execution] = None
        raise
