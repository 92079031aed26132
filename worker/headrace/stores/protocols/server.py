"""The server behind a store, and the data set that it holds."""

from __future__ import annotations

from typing import Protocol

from headrace.server_facts import MemoryUse, ServerFacts


class ServerSteps(Protocol):
    """The connection, and the mark of the data set."""

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        ...

    async def check(self) -> None:
        """Prove that the server answers and can do what Headrace needs.

        Raises StoreUnavailable or UnsupportedServer.
        """
        ...

    async def facts(self) -> list[ServerFacts]:
        """Return what each server says of itself: its memory, persistence, replicas and time to answer.

        None for memory. Raises StoreUnavailable or AccessDenied.
        """
        ...

    async def memory(self) -> list[MemoryUse]:
        """Return how much memory each server uses, of a Cluster each master; one small call each. None for memory.

        Raises StoreUnavailable or AccessDenied.
        """
        ...

    async def queues(self) -> list[str]:
        """Return the names of the queues that have a topology, sorted.

        One whose writer died in the moment after its first topology is missing until the next one is written.
        """
        ...

    async def read_marker(self) -> str | None:
        """Return the mark that says which data set this is; None on an empty or flushed server."""
        ...

    async def write_marker(self, marker: str) -> str:
        """Set the mark if there is none; return the one that counts."""
        ...
