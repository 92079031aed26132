"""A lock in this process, for tests and queues in memory."""

from __future__ import annotations

from threading import Lock

from headrace.election.errors import Conflict
from headrace.election.record import Record, Version


class MemoryLock:
    """A lock that electors of this process share, in any thread."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.record: Record | None = None
        self.version = 0
        self._mutex = Lock()

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        """See `headrace.election.record.Lock.read`."""
        with self._mutex:
            return None if self.record is None else (self.version, self.record)

    async def create(self, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.create`."""
        with self._mutex:
            if self.record is not None:
                raise Conflict(f"lock {self.name} exists already")
            return self._write(record)

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.cas`."""
        with self._mutex:
            if self.record is None or version != self.version:
                raise Conflict(f"lock {self.name} is not at version {version}")
            return self._write(record)

    async def delete(self) -> None:
        """Remove the record, as an administrator might."""
        with self._mutex:
            self.record = None

    async def close(self) -> None:
        """Nothing to give up."""

    def _write(self, record: Record) -> Version:
        self.record = record
        self.version += 1
        return self.version
