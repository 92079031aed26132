"""The Redis server behind a store."""

from __future__ import annotations

from headrace.server_facts import MemoryUse, ServerFacts
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.beside import BesideQueue


class RedisServer(RedisAccess):
    """Implements `headrace.stores.protocols.server.ServerSteps`."""

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    def beside(self, queue: str) -> BesideQueue:
        """Return where the fence and the lock of the queue's leader lie."""
        return BesideQueue(
            self._keys.tag(queue), self._client.server, self._keys.queue(queue, "topology"), self._url, self._client
        )

    async def check(self) -> None:
        """Prove that the server answers and is new enough; raise StoreUnavailable or UnsupportedServer."""
        await self._client.check()

    async def facts(self) -> list[ServerFacts]:
        """Return what each server says of itself; of a Cluster, each master."""
        return await self._client.facts()

    async def memory(self) -> list[MemoryUse]:
        """Return how much memory each server uses; of a Cluster, each master."""
        return await self._client.memory()

    async def queues(self) -> list[str]:
        """Return the names of the queues, sorted."""
        return sorted(
            name.decode(errors="replace")
            for name in await self._client.command("ZRANGE", self._keys.shared("queues"), 0, -1)
        )

    async def read_marker(self) -> str | None:
        """Return the mark that says which data set this is; None on an empty or flushed server."""
        stored = await self._client.command("GET", self._keys.shared("marker"))
        return None if stored is None else stored.decode()

    async def write_marker(self, marker: str) -> str:
        """Set the mark if there is none; return the one that counts."""
        await self._client.command("SET", self._keys.shared("marker"), marker, "NX")
        stored = await self._client.command("GET", self._keys.shared("marker"))
        return str(stored.decode())
