"""Inserting jobs on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import QueueFull, QueueHeld
from headrace.redis.pipeline import Confirmed
from headrace.stores.bounds import MAX_ENQUEUE, check_batch
from headrace.stores.protocols.producing import Accepted, Moved, NewJob, Once
from headrace.stores.protocols.replication import Replicas
from headrace.stores.redis.access import RedisAccess, pack
from headrace.stores.redis.scripts import script
from headrace.stores.redis.topology import state_of
from headrace.topology import PartitionRef, Topology


class RedisProducing(RedisAccess):
    """Implements `headrace.stores.protocols.producing.ProducingSteps`."""

    async def enqueue(
        self,
        ref: PartitionRef,
        partitions: int,
        nonce: bytes,
        jobs: Sequence[NewJob],
        incarnation: int = 1,
        replicas: Replicas | None = None,
        once: Once | None = None,
    ) -> Accepted | Moved:
        """Insert jobs into an active partition; the same nonce within 10 s is applied once."""
        check_batch(jobs, MAX_ENQUEUE)
        packed = pack([part for job in jobs for part in job])
        args = (ref.label, partitions, nonce, packed, ref.queue, incarnation, *(once or ()))
        confirmed = Confirmed(None, 0)
        if replicas is None:
            reply = await self._run("enqueue", ref, *args)
        else:
            keys = self._keys.of_script("enqueue", ref)
            confirmed = await self._client.run(script("enqueue"), keys, args, replicas)
            reply = confirmed.reply
        if reply[0] == b"ok":
            await self._hint(ref, ready=reply[2], due=reply[3])
            if reply[4]:
                await self._wake(ref.queue)
            return Accepted(frozenset(reply[1]), confirmed.replicas, str(confirmed.problem or ""))
        if reply[0] == b"full":
            raise QueueFull(ref.queue, ref.label, reply[1], reply[2])
        if reply[0] == b"held":
            raise QueueHeld(ref.queue)
        state: Any = "resized" if reply[1] == b"resized" else state_of(reply[1], self._keys.partition(ref, "meta"))
        return Moved(state, Topology.from_json(ref.queue, reply[2]) if reply[2] else None)

    async def probe(self, ref: PartitionRef, topology: Topology, jobs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """PROBE: MARK the partition of an older version and tell for each (key, nonce) whether it is known there."""
        check_batch(jobs)
        packed = pack([part for job in jobs for part in job])
        marked = (topology.to_json(), topology.incarnation)
        found = [bool(known) for known in await self._run("probe", ref, *marked, packed)]
        if any(known and nonce for known, (_, nonce) in zip(found, jobs, strict=True)):
            # The reply that would have asked for both was lost.
            await self._hint(ref, ready=1)
            await self._wake(ref.queue)
        return found
