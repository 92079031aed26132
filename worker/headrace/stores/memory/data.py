"""What all clones of a store in memory share: the data, their lock and the clock."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Literal, NamedTuple

from headrace.schedules.mark import ScheduleMark
from headrace.stores.bounds import TOMBSTONE_TTL_MS
from headrace.stores.memory.hints import QueueHints
from headrace.stores.memory.partition import Partition
from headrace.stores.memory.roster import Roster
from headrace.stores.memory.wakes import WakeLog
from headrace.stores.protocols.statistics import Depth, Growth
from headrace.topology import Grave, PartitionRef, Topology


def system_clock() -> int:
    """Return the system's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Tombstone(NamedTuple):
    """What is left of a removed partition until a time (ms)."""

    until: int
    incarnation: int


@dataclass(slots=True)
class StoredStats:
    """Statistics of one queue. ``seen``: the counters of each version as measured last."""

    measured_at: int = 0
    epoch: int = 0
    depths: dict[int, Depth] = field(default_factory=dict)
    seen: dict[int, Growth] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    scaling: bytes = b""


@dataclass(slots=True)
class StoredSchedules:
    """What is noted of the schedules of one queue, and the leader that is obeyed."""

    epoch: int = 0
    nonce: str = ""
    marks: dict[str, ScheduleMark] = field(default_factory=dict)


@dataclass(slots=True)
class Data:
    """What all clones share; every access holds ``lock``."""

    clock: Callable[[], int]
    lock: RLock = field(default_factory=RLock)
    latest: int = 0
    marker: str | None = None
    topologies: dict[str, Topology] = field(default_factory=dict)
    partitions: dict[PartitionRef, Partition] = field(default_factory=dict)
    tombstones: dict[PartitionRef, Tombstone] = field(default_factory=dict)
    graves: dict[str, tuple[int, Grave]] = field(default_factory=dict)
    hints: dict[str, QueueHints] = field(default_factory=dict)
    stats: dict[str, StoredStats] = field(default_factory=dict)
    schedules: dict[str, StoredSchedules] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)
    rosters: dict[str, Roster] = field(default_factory=dict)
    wakes: WakeLog = field(init=False)

    def __post_init__(self) -> None:
        self.wakes = WakeLog(self.lock)

    def now(self) -> int:
        """Return the time; it never goes back, whatever the clock does."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    def queue(self, name: str) -> QueueHints:
        """Return the hints of a queue."""
        return self.hints.setdefault(name, QueueHints())

    def gone(self, ref: PartitionRef, incarnation: int = 1) -> Literal["absent", "tombstone"]:
        """State of a partition that does not exist; what an earlier incarnation of the queue has left is absent."""
        tombstone = self.tombstones.get(ref)
        if tombstone is None or tombstone.until <= self.now() or tombstone.incarnation < incarnation:
            return "absent"
        return "tombstone"

    def entomb(self, ref: PartitionRef, incarnation: int) -> None:
        """Leave a tombstone instead of a partition."""
        self.tombstones[ref] = Tombstone(self.now() + TOMBSTONE_TTL_MS, incarnation)

    def grave(self, queue: str) -> Grave | None:
        """What is left of a deleted queue, if it is not forgotten yet."""
        until, grave = self.graves.get(queue, (0, None))
        return grave if until > self.now() else None

    def buried(self, queue: str) -> bool:
        """Whether a queue was deleted and nobody has created it again: nothing is noted of it any more."""
        return queue not in self.topologies and self.grave(queue) is not None

    def roster(self, name: str) -> Roster:
        """Return the registry of a queue's workers."""
        return self.rosters.setdefault(name, Roster())
