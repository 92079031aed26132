"""Leasing jobs, and what comes of a lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace.stores.protocols.finished import Success
from headrace.stores.protocols.moving import Fence
from headrace.topology import PartitionRef


class Settled(NamedTuple):
    """Names a leased job by key and token, to acknowledge or renew it."""

    key: bytes
    token: bytes


class Failure(NamedTuple):
    """A run that failed. ``delay_ms`` until the next run, or None: the job is dead."""

    key: bytes
    token: bytes
    delay_ms: int | None
    error: str
    status: str = "failed"


class Release(NamedTuple):
    """A leased job handed back without costing an attempt.

    It goes to the head of its ready lane, or waits ``delay_ms``. ``note``, unless empty, is kept as a history entry
    (for a run that had begun).
    """

    key: bytes
    token: bytes
    delay_ms: int = 0
    note: str = ""


class Report(NamedTuple):
    """The progress of a run: of the ``element``-th (from 0) lease of a renewal. ``note``: at most 200 characters."""

    element: int
    value: float
    note: str


class Claimed(NamedTuple):
    """A leased job, still packed (see `headrace.envelope.decode_record`)."""

    key: bytes
    record: bytes
    changes: bytes


LEASE_LOST = "its worker was killed, crashed, froze, or was cut off from Redis"
"""What is known of the cause where a lease has ended, as the error of that entry of a job's history."""


class Lost(NamedTuple):
    """A job that was taken back because its lease, under ``token``, had ended at ``ended_at`` (ms).

    ``dead``: it was lost once too often and is a dead letter now.
    """

    key: bytes
    token: bytes
    ended_at: int
    dead: bool

    @property
    def worker(self) -> str:
        """Whose lease it was."""
        return self.token.rpartition(b":")[0].decode(errors="replace")


@dataclass(slots=True)
class Claim:
    """What a claim (or resume) call returned.

    ``refused``: indexes into the call's acks that were not leased under their token. ``gone``: the partition is
    absent, closed or a tombstone. ``next_hint``: another partition of the queue that is worth a claim, if the store
    knows one. ``alarm_ms``: see `Store.tick`. ``make_room``: a job waits to be run alone, and this worker is asked to
    claim nothing more until it runs nothing; nothing new was leased. ``fenced``: only a leader gets jobs here, and the
    caller is not it. ``fencing_token``: of its leases, a number above that of every earlier lease of these jobs.
    ``lost``: jobs that the call took back because their lease had ended, whoever held it.
    """

    token: bytes
    jobs: list[Claimed] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    gone: bool = False
    now: int = 0
    next_hint: PartitionRef | None = None
    alarm_ms: int | None = None
    make_room: bool = False
    fenced: bool = False
    fencing_token: int = 0
    lost: list[Lost] = field(default_factory=list)


def token_of(worker: str, seq: int) -> bytes:
    """Return the token of a worker's claim call, ``worker:seq``."""
    return b"%b:%d" % (worker.encode(), seq)


class WorkingSteps(Protocol):
    """Steps of workers on leases, and what keeps jobs moving."""

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspects: int = 1,
        alone: bool = False,
        successes: Sequence[Success] = (),
        fence: Fence | None = None,
    ) -> Claim:
        """Acknowledge ``acks``, recover expired leases, promote due jobs, and lease up to ``limit`` ready jobs.

        ``limit`` <= MAX_CLAIM; 0 only acknowledges, at most MAX_FUSED jobs, and does the housekeeping. ``worker:seq``
        must be new for each call.
        ``suspects``: how many suspects (jobs whose lease was lost before) may be among them. ``alone``: this worker
        runs nothing else, and will not as long as it runs a job that must run alone (a suspect that was lost again);
        then it gets that one if there is one, and nothing beside it. ``successes``: see `ack`. ``fence``: the leader
        that claims; of a queue in which only the leader runs jobs nobody else gets any.
        """
        ...

    async def resume(self, ref: PartitionRef, worker: str, seq: int, lease_ms: int) -> Claim:
        """Return again the batch of an earlier claim whose reply was lost, its leases renewed.

        Empty if the call was never applied; it then never will be.
        """
        ...

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled], successes: Sequence[Success] = ()) -> list[int]:
        """Remove finished jobs. Returns the indexes that were not leased under their token.

        ``successes``: what is to be kept of each of them if the queue keeps finished jobs, none or as many as ``acks``,
        with 256 KiB of results at most. The acks are one worker's.
        """
        ...

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failed runs (<= 250): each job waits for its retry or is a dead letter. Returns refused indexes."""
        ...

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand jobs (<= 250) back without costing an attempt. Returns refused indexes."""
        ...

    async def renew(
        self, ref: PartitionRef, leases: Sequence[Settled], lease_ms: int, reports: Sequence[Report] = ()
    ) -> list[int]:
        """Extend leases to now + ``lease_ms``. Returns refused indexes.

        ``reports`` (<= 250) of runs among them are kept with their jobs, each in the place of the one before; those of
        refused ones are dropped.
        """
        ...

    async def recover(self, ref: PartitionRef) -> int:
        """Take back at most MAX_RECOVER jobs with expired leases; the number of them. Claims do this too.

        They become suspects. A suspect whose lease is lost again is to be run alone; only a job that is lost then is
        charged with a crash, and is a dead letter at the queue's crash limit.
        """
        ...

    async def promote_due(self, ref: PartitionRef) -> int:
        """Move at most MAX_PROMOTE due jobs to ready; the number of them. Claims do this too."""
        ...
