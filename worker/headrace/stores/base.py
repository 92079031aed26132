"""The Store protocol: every atomic step of a queue, once for all backends.

Each method is one atomic transition on one partition (or on the topology, or on the wake-up hints of one queue) and
is safe to be interrupted before or after it. What the steps mean together is in ``docs/protocol.md``; the sequences
built from them (promote, drain, complete) are in `headrace.lifecycle`, so that they are the same on every backend.

Stored ids carry their priority lane: a *key* is one lane byte (``0``, ``1``, ``2``) plus the stored id of
`headrace.ids`. A *token* names one claim call, ``worker:seq``; a transition on a leased job is accepted only with the
token under which it is leased now, whatever the clock says. Times are milliseconds of the server's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from headrace.errors import InvalidInput
from headrace.topology import PartitionRef, Topology

PartitionState = Literal["absent", "active", "draining", "closed", "tombstone"]

LANE = b"1"
MAX_CLAIM = 256
MAX_CLAIM_BYTES = 2 << 20
"""Records in one claim at most (or a single larger one), so that the reply arrives in time."""
MAX_BATCH = 1000
MAX_RECOVER = 100
MAX_PROMOTE = 1000
MAX_UNPARK = 1000
HISTORY_ENTRIES = 20
NONCE_TTL_MS = 10_000
TOMBSTONE_TTL_MS = 7 * 24 * 3600 * 1000
SUSPECT_RECHECK_MS = 1000
"""A partition whose suspects nobody may take now is hinted again after this time."""
RECHECK_MS = 2000
"""A partition with ready jobs is hinted again after this time, whatever happened to the first hint."""


class NewJob(NamedTuple):
    """A job to insert. ``when``: 0 now, > 0 at that time (ms since the epoch), < 0 after that many ms."""

    key: bytes
    when: int
    body: bytes


class Accepted(NamedTuple):
    """The call was applied. ``existing`` holds the indexes of jobs whose id was live before; they are unchanged.

    If the call had been applied before (same nonce), nothing changed now and ``existing`` is empty.
    """

    existing: frozenset[int]


class Moved(NamedTuple):
    """The partition takes no jobs; nothing was changed.

    ``state`` is that of the partition, or "resized" if it is active with another number of partitions than the caller
    believed. ``successor`` is the topology known to the partition, None where it knows none (read the topology).
    """

    state: Literal["absent", "draining", "closed", "tombstone", "resized"]
    successor: Topology | None


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


class Unknown(NamedTuple):
    """A leased job of a ``type`` that the worker does not know, to be parked."""

    key: bytes
    token: bytes
    type: str


class Claimed(NamedTuple):
    """A leased job, still packed (see `headrace.envelope.decode_record`)."""

    key: bytes
    record: bytes
    changes: bytes


class DeadLetter(NamedTuple):
    """A job that has no further run, still packed. ``letter`` names this death of its id: stored id, ``@``, ms."""

    letter: bytes
    died_at: int
    record: bytes
    changes: bytes

    @property
    def stored_id(self) -> bytes:
        """The job's id in its stored form."""
        return self.letter.rpartition(b"@")[0]

    @property
    def order(self) -> tuple[int, bytes]:
        """Sort key: pages of dead letters are in this order."""
        return self.died_at, self.letter


@dataclass(slots=True)
class Claim:
    """What a claim (or resume) call returned.

    ``refused``: indexes into the call's acks that were not leased under their token. ``gone``: the partition is
    absent, closed or a tombstone. ``next_hint``: another partition of the queue that is worth a claim, if the store
    knows one. ``alarm_ms``: see `Store.tick`.
    """

    token: bytes
    jobs: list[Claimed] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    gone: bool = False
    now: int = 0
    next_hint: PartitionRef | None = None
    alarm_ms: int | None = None


class Counts(NamedTuple):
    """Sizes of one partition's indexes, its state and facts about its drain, read in one step."""

    state: PartitionState
    ready: int
    scheduled: int
    retry: int
    leased: int
    parked: int
    moving: int
    arrived: int
    dead: int
    oldest_ready_at: int | None
    next_due_at: int | None
    marked_at: int | None
    now: int

    @property
    def live(self) -> int:
        """Jobs that keep a version from draining (everything but dead letters)."""
        return self.ready + self.scheduled + self.retry + self.leased + self.parked + self.moving + self.arrived

    def nonempty(self) -> dict[str, int]:
        """Return the sizes that are not zero, by state name."""
        names = ("ready", "scheduled", "retry", "leased", "parked", "moving", "arrived", "dead")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def check_batch(batch: Sequence[object]) -> None:
    """Raise InvalidInput if one call is given more than MAX_BATCH elements."""
    if len(batch) > MAX_BATCH:
        raise InvalidInput("batch", f"has {len(batch)} elements", f"send at most {MAX_BATCH} in one call")


def check_limit(limit: int) -> None:
    """Raise InvalidInput if a claim asks for more than MAX_CLAIM jobs, or for fewer than none."""
    if not 0 <= limit <= MAX_CLAIM:
        raise InvalidInput("limit", f"is {limit}", f"claim 0 to {MAX_CLAIM} jobs at once")


def check_page(limit: int) -> None:
    """Raise InvalidInput if a page of fewer than 1 or more than MAX_BATCH elements is asked for."""
    if not 1 <= limit <= MAX_BATCH:
        raise InvalidInput("limit", f"is {limit}", f"ask for 1 to {MAX_BATCH} at once")


def no_worker_knows(type: str) -> str:
    """Return the error of a dead letter that was parked."""
    return f"no worker knows type {type}"


class Store(Protocol):
    """A backend. Errors: StoreUnavailable (outcome unknown), StoreFull (nothing applied), as in `headrace.errors`."""

    @property
    def hints_may_be_lost(self) -> bool:
        """Whether a partition may be worth a claim with no hint of it, so that workers have to look now and then."""
        ...

    def clone(self) -> Store:
        """Return a store on the same data with connections of its own, for use in another event loop."""
        ...

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        ...

    async def check(self) -> None:
        """Prove that the server answers and can do what Headrace needs.

        Raises StoreUnavailable or UnsupportedServer.
        """
        ...

    # ---- topology -------------------------------------------------------------------------------------------------

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        ...

    async def write_topology(self, expected_epoch: int, topology: Topology) -> bool:
        """Store ``topology`` if the stored one has ``expected_epoch`` (0: there is none); False if it has not."""
        ...

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int) -> PartitionState:
        """INSTALL: prepare a partition for ``topology``, which is about to be written with this version active.

        Absent: created active with ``topology.epoch`` and ``partitions``. Active with an older epoch: both and the
        settings overwritten. Draining with an older epoch: settings only. Closed or tombstone: untouched. Returns the
        state before.
        """
        ...

    async def settle(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Make a partition agree with ``topology``, which has been written and lists its version.

        Absent: created if its version is the active one. Active and not newer than ``topology.epoch``: epoch, partition
        count (its version's) and settings overwritten; this is what undoes the installs of a promoter that lost.
        Draining with an older epoch: settings only. Others untouched. Returns the state before.
        """
        ...

    async def mark(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """MARK: a partition of an older version becomes draining, with ``topology`` as its successor.

        Active: draining; its epoch and settings stay. Absent: created so, lest a promoter that slept creates it active.
        Any other state is untouched. Returns the state afterwards.
        """
        ...

    async def close_partition(self, ref: PartitionRef) -> Counts:
        """CLOSE: a draining partition without live jobs becomes closed. Returns the counts, state afterwards."""
        ...

    async def remove(self, ref: PartitionRef) -> bool:
        """Delete a closed (or absent) partition's keys and leave a tombstone for 7 days.

        False, and nothing changed, if the partition is active or draining.
        """
        ...

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an active partition that never became part of a promoted version, without a tombstone.

        False, and nothing changed, if it is not active or holds anything, be it the nonce of a call.
        """
        ...

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition, each read in one step."""
        ...

    # ---- producing ------------------------------------------------------------------------------------------------

    async def enqueue(
        self, ref: PartitionRef, partitions: int, nonce: bytes, jobs: Sequence[NewJob]
    ) -> Accepted | Moved:
        """Insert at most MAX_BATCH jobs into an active partition of a version with ``partitions`` partitions.

        The nonce names this call: the same call sent again within 10 s is applied once. Raises QueueFull or QueueHeld.
        """
        ...

    async def probe(self, ref: PartitionRef, topology: Topology, jobs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """PROBE: MARK the partition of an older version and tell for each (key, nonce) whether it is known there.

        Known means: the id is live in the partition, or the call of that nonce (b"" for none) was applied.
        """
        ...

    # ---- working --------------------------------------------------------------------------------------------------

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspect: bool = True,
    ) -> Claim:
        """Acknowledge ``acks``, recover expired leases, promote due jobs, and lease up to ``limit`` ready jobs.

        ``limit`` <= MAX_CLAIM; 0 only acknowledges and does the housekeeping. ``worker:seq`` must be new for each call.
        ``suspect``: this worker runs no suspect now (a job whose lease was lost before) and may take one.
        """
        ...

    async def resume(self, ref: PartitionRef, worker: str, seq: int, lease_ms: int) -> Claim:
        """Return again the batch of an earlier claim whose reply was lost, its leases renewed.

        Empty if the call was never applied; it then never will be.
        """
        ...

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled]) -> list[int]:
        """Remove finished jobs. Returns the indexes that were not leased under their token."""
        ...

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failed runs: each job waits for its retry or becomes a dead letter. Returns refused indexes."""
        ...

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand jobs back without costing an attempt. Returns refused indexes."""
        ...

    async def renew(self, ref: PartitionRef, leases: Sequence[Settled], lease_ms: int) -> list[int]:
        """Extend leases to now + ``lease_ms``. Returns refused indexes."""
        ...

    async def recover(self, ref: PartitionRef) -> int:
        """Take back at most MAX_RECOVER jobs with expired leases; the number of them. Claims do this too.

        They become suspects, which workers run one at a time; a suspect whose lease is lost again is charged with a
        crash, and is a dead letter at the queue's crash limit.
        """
        ...

    async def promote_due(self, ref: PartitionRef) -> int:
        """Move at most MAX_PROMOTE due jobs to ready; the number of them. Claims do this too."""
        ...

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Let jobs wait by type until a worker knows it; no attempt is burned. Returns refused indexes."""
        ...

    async def unpark(self, ref: PartitionRef, types: Sequence[str]) -> int:
        """Make parked jobs of these types ready, at most 1,000; the number of them."""
        ...

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        """Return how many jobs wait for each type, at most 100 types."""
        ...

    async def parked_partitions(self, queue: str) -> dict[PartitionRef, int]:
        """Return the partitions of the queue that hold parked jobs, with the time (ms) when one was parked last."""
        ...

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_UNPARK) -> int:
        """Make at most ``limit`` (<= 1,000) parked jobs of this type dead letters; the number of them.

        For a type that no worker will know again; it costs the jobs no attempt. Their error is `no_worker_knows`.
        """
        ...

    # ---- dead letters ---------------------------------------------------------------------------------------------

    async def dead_letters(
        self, ref: PartitionRef, after: DeadLetter | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return at most ``limit`` (<= 1,000) dead letters, oldest first, beginning after one that was seen.

        An empty page is the end.
        """
        ...

    async def remove_dead(self, ref: PartitionRef, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        ...

    # ---- waking ---------------------------------------------------------------------------------------------------

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait at most ``timeout`` seconds until a partition of one of the queues is worth a claim.

        Returns the partition (only one waiter gets it), or the name of a queue whose timer must be set anew (call
        `tick`), or None.
        """
        ...

    async def hint(self, ref: PartitionRef) -> None:
        """Give a hint back, or raise one, so that some worker claims from the partition."""
        ...

    async def tick(self, queue: str, worker: str) -> int | None:
        """Turn what is due into hints and record that ``worker`` lives.

        Returns the milliseconds until the next due time if this worker holds the queue's alarm (it then calls again at
        that time), None if another one holds it. Every worker calls at least every 5 s.
        """
        ...

    async def leave(self, queue: str, worker: str) -> None:
        """Forget a worker that stops; if it held the queue's alarm, one that waits for hints is to set its timer."""
        ...

    # ---- the server ------------------------------------------------------------------------------------------------

    async def read_marker(self) -> str | None:
        """Return the mark that says which data set this is; None on an empty or flushed server."""
        ...

    async def write_marker(self, marker: str) -> str:
        """Set the mark if there is none; return the one that counts."""
        ...
