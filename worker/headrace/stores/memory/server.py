"""What stands for the server of a store in memory."""

from __future__ import annotations

from headrace.server_facts import MemoryUse, ServerFacts
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.memory.beside import BesideQueue


class MemoryServer(MemoryAccess):
    """Implements `headrace.stores.protocols.server.ServerSteps`."""

    def beside(self, queue: str) -> BesideQueue:
        """Return where the fence and the lock of the queue's leader lie."""
        return BesideQueue(queue, self._data.beside, self._data.lock)

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    async def check(self) -> None:
        """Do nothing: memory answers."""

    async def facts(self) -> list[ServerFacts]:
        """Return none: there is no server."""
        return []

    async def memory(self) -> list[MemoryUse]:
        """Return none: there is no server."""
        return []

    async def queues(self) -> list[str]:
        """Return the names of the queues, sorted."""
        with self._data.lock:
            return sorted(self._data.topologies)

    async def read_marker(self) -> str | None:
        """Return the mark that says which data set this is; None if there is none yet."""
        with self._data.lock:
            return self._data.marker

    async def write_marker(self, marker: str) -> str:
        """Set the mark if there is none; return the one that counts."""
        with self._data.lock:
            self._data.marker = self._data.marker or marker
            return self._data.marker
