"""MemoryStore: the Store protocol over partitions in this process."""

from __future__ import annotations

from headrace.stores.memory.auditing import MemoryAuditing
from headrace.stores.memory.dead_letters import MemoryDeadLetters
from headrace.stores.memory.deletion import MemoryDeletion
from headrace.stores.memory.finished import MemoryFinished
from headrace.stores.memory.inquiry import MemoryInquiry
from headrace.stores.memory.moving import MemoryMoving
from headrace.stores.memory.parking import MemoryParking
from headrace.stores.memory.producing import MemoryProducing
from headrace.stores.memory.registry import MemoryRegistry
from headrace.stores.memory.replication import MemoryReplication
from headrace.stores.memory.schedules import MemorySchedules
from headrace.stores.memory.server import MemoryServer
from headrace.stores.memory.sleeping import MemorySleeping
from headrace.stores.memory.statistics import MemoryStatistics
from headrace.stores.memory.topology import MemoryTopology
from headrace.stores.memory.waking import MemoryWaking
from headrace.stores.memory.withdrawing import MemoryWithdrawing
from headrace.stores.memory.working import MemoryWorking


class MemoryStore(
    MemoryTopology,
    MemoryDeletion,
    MemoryAuditing,
    MemoryProducing,
    MemoryWorking,
    MemoryParking,
    MemoryMoving,
    MemoryDeadLetters,
    MemoryFinished,
    MemoryInquiry,
    MemoryWithdrawing,
    MemoryStatistics,
    MemoryWaking,
    MemoryRegistry,
    MemorySchedules,
    MemorySleeping,
    MemoryReplication,
    MemoryServer,
):
    """A store in the memory of this process, with the behaviour of the Redis one; nothing outlives the process.

    ``clock`` returns milliseconds since the epoch and stands for the server's clock (default: the system's): nothing
    becomes due before it says so. Only the time-out of `wait_hint` is real time. May be used from several threads and
    event loops; clones share the data.
    """

    def clone(self) -> MemoryStore:
        """Return a store on the same data."""
        other = MemoryStore(self._data.clock)
        other._data, other._waiters = self._data, self._waiters
        return other
