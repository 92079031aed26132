"""Waiting for replicas on Redis, and what partitions remember."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.stores.bounds import REPLICATION_MS
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef, Topology


class RedisReplication(RedisAccess):
    """Implements `headrace.stores.protocols.replication.ReplicationSteps`."""

    async def replicated(self, queue: str, refs: Sequence[PartitionRef] = ()) -> bool:
        """Wait until a replica has what was written to the queue's topology and to ``refs``; whether it has."""
        keys = [self._keys.queue(queue, "topology"), *(self._keys.partition(ref, "meta") for ref in refs)]
        try:
            return await self._client.barrier(script("barrier"), keys, (1, REPLICATION_MS))
        except HeadraceError:
            return False

    async def successor(self, ref: PartitionRef) -> Topology | None:
        """Return the topology that the partition was marked with; None if it never was."""
        stored = await self._client.command("HGET", self._keys.partition(ref, "meta"), "succ")
        return Topology.from_json(ref.queue, stored) if stored else None
