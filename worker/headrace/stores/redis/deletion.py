"""Deleting a queue on Redis."""

from __future__ import annotations

from contextlib import suppress

from headrace.errors import StoreUnavailable
from headrace.stores.bounds import GRAVE_TTL_MS
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.scripts import script
from headrace.topology import Grave, PartitionRef, Topology


class RedisDeletion(RedisAccess):
    """Implements `headrace.stores.protocols.deletion.DeletionSteps`."""

    async def delete_partition(self, ref: PartitionRef, incarnation: int) -> bool:
        """Delete a partition's keys whatever they hold, and leave a tombstone."""
        return await self._remove(ref, incarnation, whatever=True)

    async def bury_queue(self, topology: Topology) -> bool:
        """Delete a topology and the queue's other keys, and leave its grave."""
        keys = self._keys.of_queue_script("bury_queue", topology.queue)
        args = (topology.to_json(), topology.grave.to_json(), GRAVE_TTL_MS)
        buried = await self._client.run(script("bury_queue"), keys, args)
        if buried:
            with suppress(StoreUnavailable):  # whoever deletes the queue again does it
                await self.unlist_queue(topology.queue)
        return bool(buried)

    async def unlist_queue(self, queue: str) -> None:
        """Take a queue without a topology off the list of all queues."""
        listed, topology = self._keys.shared("queues"), self._keys.queue(queue, "topology")
        if await self._client.command("EXISTS", topology):
            return
        await self._client.command("ZREM", listed, queue)
        # One that is created at this moment is listed after its topology is written: by its creator, or here.
        if await self._client.command("EXISTS", topology):
            await self._client.command("ZADD", listed, 0, queue)

    async def read_grave(self, queue: str) -> Grave | None:
        """Return what is left of a deleted queue."""
        stored = await self._client.command("GET", self._keys.queue(queue, "grave"))
        return None if stored is None else Grave.from_json(queue, stored)
