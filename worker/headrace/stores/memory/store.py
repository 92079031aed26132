"""MemoryStore: the Store protocol over partitions in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock

from headrace.stores.base import (
    MAX_BATCH,
    MAX_CLAIM,
    RECHECK_MS,
    TOMBSTONE_TTL_MS,
    Accepted,
    Claim,
    Counts,
    Failure,
    Moved,
    NewJob,
    PartitionState,
    Release,
    Settled,
)
from headrace.stores.memory.hints import QueueHints, Waiters
from headrace.stores.memory.partition import Partition
from headrace.topology import PartitionRef, Topology


def system_clock() -> int:
    """Return the system's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Data:
    """What all clones share; every access holds ``lock``."""

    clock: Callable[[], int]
    lock: RLock = field(default_factory=RLock)
    latest: int = 0
    marker: str | None = None
    topologies: dict[str, str] = field(default_factory=dict)
    partitions: dict[PartitionRef, Partition] = field(default_factory=dict)
    tombstones: dict[PartitionRef, int] = field(default_factory=dict)
    hints: dict[str, QueueHints] = field(default_factory=dict)

    def now(self) -> int:
        """Return the time; it never goes back, whatever the clock does."""
        self.latest = max(self.latest, self.clock())
        return self.latest

    def queue(self, name: str) -> QueueHints:
        return self.hints.setdefault(name, QueueHints())


class MemoryStore:
    """A store in the memory of this process, with the behaviour of the Redis one; nothing outlives the process.

    ``clock`` returns milliseconds since the epoch and stands for the server's clock (default: the system's); time only
    passes when it says so, except for the time-out of `wait_hint`. Safe to use from several threads and event loops:
    clones share the data.
    """

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self._use(_Data(clock or system_clock))

    def _use(self, data: _Data) -> None:
        self._data = data
        self._waiters = Waiters(data.lock, data.queue)

    def clone(self) -> MemoryStore: ...
