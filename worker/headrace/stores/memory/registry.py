"""The registry of workers in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import check_batch
from headrace.stores.memory.access import MemoryAccess
from headrace.stores.protocols.registry import WorkerEntry


class MemoryRegistry(MemoryAccess):
    """Implements `headrace.stores.protocols.registry.RegistrySteps`."""

    async def workers(self, queue: str) -> list[WorkerEntry]:
        """Return the workers that were heard of within a minute."""
        with self._data.lock:
            return self._data.roster(queue).living(self._data.now())

    async def about_workers(self, queue: str, workers: Sequence[str]) -> list[WorkerEntry]:
        """Return what is known of workers, for an hour also of those that are gone."""
        check_batch(workers)
        with self._data.lock:
            return self._data.roster(queue).entries(workers, self._data.now())

    async def stop_claiming(self, queue: str, workers: Sequence[str], ttl_ms: int) -> None:
        """Let workers claim nothing from this queue for ``ttl_ms``; 0: let them claim again."""
        check_batch(workers)
        with self._data.lock:
            self._data.roster(queue).stop_claiming(workers, ttl_ms, self._data.now())
