"""What one partition in memory holds: its state, its indexes, and the moves that several steps share.

Nothing here waits, locks or reads a clock. Each step is a method of a class in a file beside this one.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final, NamedTuple

from headrace.settings import PartitionLimits
from headrace.stores.bounds import LETTER_WEIGHT
from headrace.stores.memory.partition.changes import Changes
from headrace.stores.memory.partition.dead_letters import DeadLetters
from headrace.stores.memory.partition.finished import Finished
from headrace.stores.memory.partition.lanes import Lanes
from headrace.stores.memory.partition.leases import Leases
from headrace.stores.memory.partition.limits import Limiter
from headrace.stores.memory.partition.news import News, Noticeboard
from headrace.stores.memory.partition.nonces import Nonces
from headrace.stores.memory.partition.parked import Parked
from headrace.stores.memory.partition.room import Room
from headrace.stores.memory.partition.waiting import Waiting, earliest
from headrace.stores.protocols.moving import Fence, Place
from headrace.stores.protocols.statistics import Growth
from headrace.stores.protocols.topology import Counts, PartitionState
from headrace.stores.protocols.working import Claimed
from headrace.topology import PartitionRef, Topology


class Move(NamedTuple):
    """A job set aside: its key, the version it moves to, and where it waited, until when or for which type."""

    key: bytes
    to: int
    place: Place
    at: int
    type: str


TIMES: Final = struct.Struct(">QQ")
"""How a record begins: when it was enqueued and when it was to run, in ms."""


class Contents:
    """Keys are lane byte + stored id; ids (keys without their lane) are unique while live."""

    def __init__(
        self, ref: PartitionRef, epoch: int, partitions: int, limits: PartitionLimits, incarnation: int = 1
    ) -> None:
        self.ref = ref
        self.incarnation = incarnation
        self.state: PartitionState = "active"
        self.epoch = epoch
        self.of = ""
        self.partitions = partitions
        self.successor: Topology | None = None
        self.dead = DeadLetters()
        self.finished = Finished()
        self.asleep = False
        self._marked_at: int | None = None
        self._jobs: dict[bytes, bytes] = {}
        self._changes: dict[bytes, Changes] = {}
        self._lanes = Lanes()
        # Keys of jobs whose lease was lost before, of which a worker runs a few at a time; and of those that were lost
        # again, which run alone.
        self._suspects: deque[bytes] = deque()
        self._alone: deque[bytes] = deque()
        self._room = Room()
        self._scheduled = Waiting()
        self._retry = Waiting()
        self._leases = Leases()
        self._parked = Parked()
        self._nonces = Nonces()
        self._applied: dict[str, int] = {}
        self._limiter = Limiter(limits)
        self._news = Noticeboard()
        self._enqueued = self._arrived = self._expired = self._dead_dropped = 0
        self._moving: dict[bytes, Move] = {}
        # Stored id -> where it came from.
        self._adopted: dict[bytes, PartitionRef] = {}
        self._fence: Fence | None = None
        self._fencing_token = 0

    @property
    def ready(self) -> int:
        """Number of ready jobs in all lanes, of suspects, and of those that run alone."""
        return len(self._lanes) + len(self._suspects) + len(self._alone)

    def next_waiting(self) -> int | None:
        """Return the earliest time at which a waiting job becomes ready."""
        return earliest(self._scheduled.first(), self._retry.first())

    def next_due(self) -> int | None:
        """Return the earliest time at which a waiting or leased job needs attention."""
        return earliest(self.next_waiting(), self._leases.next_end())

    def counts(self, now: int) -> Counts:
        """Return the sizes of all indexes and the facts about the drain."""
        heads = self._lanes.heads()
        return Counts(
            state=self.state,
            ready=self.ready,
            scheduled=len(self._scheduled),
            retry=len(self._retry),
            leased=len(self._leases),
            parked=len(self._parked),
            moving=len(self._moving),
            arrived=len(self._adopted),
            dead=len(self.dead),
            oldest_ready_at=min((TIMES.unpack_from(self._jobs[key[1:]])[1] for key in heads), default=None),
            next_due_at=self.next_waiting(),
            marked_at=self._marked_at,
            now=now,
            epoch=self.epoch,
            of=self.of,
            incarnation=self.incarnation,
        )

    @property
    def unhinted(self) -> bool:
        """Whether it needs a worker, now or later, so that there must be a hint."""
        waits = bool(self._scheduled or self._retry or self._leases)
        return self.state in ("active", "draining") and (waits or (bool(self.ready) and not self._limiter.limits.hold))

    @property
    def growth(self) -> Growth:
        """What has been counted since the partition exists."""
        return Growth(self._enqueued, self._arrived, self._expired, self._dead_dropped)

    def due_until(self, at: int) -> int:
        """Return how many delayed jobs become due until ``at`` (ms)."""
        return sum(when <= at for when, _ in (*self._scheduled, *self._retry))

    def waiting(self) -> list[tuple[int, Claimed]]:
        """Return the jobs that wait for their time (ms), with it, in no order."""
        return [(at, self._claimed(key)) for at, key in (*self._scheduled, *self._retry)]

    def newer_leader(self, fence: Fence) -> int | None:
        """Return None if the partition obeys this leader, from now on; else the epoch of the one that it obeys.

        Of two with one epoch the first that came counts: after a failover an epoch may be minted again.
        """
        known = self._fence
        if fence.incarnation != self.incarnation:
            return known.epoch if known else 0
        if known is not None and (fence.epoch < known.epoch or (fence.epoch == known.epoch and fence != known)):
            return known.epoch
        self._fence = fence
        return None

    def take_news(self) -> News:
        """Return what was added since the last call, for the hints."""
        return self._news.take()

    def _reopen(self, freed: int) -> None:
        """After leases ended early, hint at jobs that the in-flight limit held back."""
        if freed and self._limiter.limits.in_flight is not None and bool(self._lanes):
            self._news.became_ready()

    def _rouse(self) -> None:
        """Say that there is a job, if the partition was asleep."""
        if self.asleep:
            self.asleep = False
            self._news.woke()

    def _push(self, key: bytes, *, head: bool = False) -> None:
        if self._lanes.push(key, head=head):
            self._news.became_ready()

    def _wait(self, waiting: Waiting, at: int, key: bytes) -> None:
        waiting.add(at, key)
        self._news.waits_until(at)

    def _claimed(self, key: bytes) -> Claimed:
        changes = self._changes.get(key[1:])
        return Claimed(key, self._jobs[key[1:]], changes.packed() if changes else b"")

    def _weight(self, key: bytes) -> int:
        """Return what a job counts in a step that may make it a dead letter: the bytes that it copies, and more."""
        _, record, changes = self._claimed(key)
        return LETTER_WEIGHT + len(record) + len(changes)

    def _bury(self, key: bytes, now: int) -> None:
        record, changes = self._jobs.pop(key[1:]), self._changes.pop(key[1:])
        self.dead.add(key[1:], now, record, changes.packed())

    def _trim_after(self, died: int) -> None:
        """Drop dead letters beyond the limit, after a step has added some: a few more than it added."""
        if died:
            self._trim_dead(died + 100)

    def _trim_dead(self, most: int) -> int:
        dropped = self.dead.drop_beyond(self._limiter.limits.dead, most)
        self._dead_dropped += dropped
        return dropped

    def _note(self, changes: Changes, status: str, now: int, token: bytes, error: str = "") -> None:
        changes.note(status, now, token, error, self._limiter.limits.history)
