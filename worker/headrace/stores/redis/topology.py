"""Topology and states of partitions on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from headrace.errors import StoreUnavailable
from headrace.redis.client import Argument
from headrace.redis.damage import damage_of
from headrace.settings import PartitionLimits
from headrace.stores.bounds import TOMBSTONE_TTL_MS
from headrace.stores.protocols.topology import Agreed, Counts, PartitionState
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.scripts import script
from headrace.topology import Grave, PartitionRef, Topology

STATES: Final[dict[bytes, PartitionState]] = {
    b"absent": "absent",
    b"A": "active",
    b"D": "draining",
    b"C": "closed",
    b"T": "tombstone",
}
"""States of a partition, by how they are stored."""


def state_of(stored: bytes, meta: bytes) -> PartitionState:
    """Return a partition's state by what its ``meta`` says. Raises DataDamaged, which names that key."""
    state = STATES.get(stored)
    if state is None:
        raise damage_of(meta, f"says that the partition is {stored[:20]!r}")
    return state


def _limits(limits: PartitionLimits) -> tuple[Argument, ...]:
    """Return a partition's limits as the fields and values that lua/install.lua keeps in its meta."""
    flags = ("hold", limits.hold), ("shut", limits.shut), ("only", limits.leader_only)
    rate = "" if limits.rate is None else repr(limits.rate)
    in_flight = "" if limits.in_flight is None else limits.in_flight
    length = "" if limits.length is None else limits.length
    dead = "" if limits.dead is None else limits.dead
    keep = "" if limits.finished is None else "{}:{}:{}".format(*limits.finished)
    return (
        *(part for name, flag in flags for part in (name, "1" if flag else "")),
        *("rate", rate, "cap", in_flight, "len", length, "crash", limits.crashes),
        *("deadmax", dead, "hist", limits.history, "keep", keep),
    )


class RedisTopology(RedisAccess):
    """Implements `headrace.stores.protocols.topology.TopologySteps`."""

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        stored = await self._client.command("GET", self._keys.queue(queue, "topology"))
        return None if stored is None else Topology.from_json(queue, stored)

    async def write_topology(self, read: Topology | Grave | None, topology: Topology) -> bool:
        """Store ``topology`` if what was ``read`` (None: nothing) is still stored; False if it is not."""
        keys = self._keys.of_queue_script("write_topology", topology.queue)
        texts = ("" if read is None else read.to_json(), topology.to_json())
        written = await self._client.run(script("write_topology"), keys, texts)
        if written:
            with suppress(StoreUnavailable):  # the next write names it
                await self._client.command("ZADD", self._keys.shared("queues"), 0, topology.queue)
        return bool(written)

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int, *, create: bool = True) -> Agreed:
        """INSTALL: prepare a partition of a version that is about to become one of the topology's."""
        return await self._agree(ref, topology, partitions, "install", create=create)

    async def settle(self, ref: PartitionRef, topology: Topology) -> Agreed:
        """Make a partition agree with ``topology``, which has been written."""
        create = ref.version == topology.active
        return await self._agree(ref, topology, topology.versions[ref.version].partitions, "settle", create=create)

    async def _agree(
        self, ref: PartitionRef, topology: Topology, partitions: int, step: str, *, create: bool
    ) -> Agreed:
        limits = _limits(topology.limits(ref.version, partitions))
        wanted = (topology.epoch, partitions, step, int(create), ref.label, topology.incarnation, topology.stamp)
        reply = await self._run("install", ref, *wanted, *limits)
        await self._hint(ref, ready=reply[1])
        return Agreed(state_of(reply[0], self._meta(ref)), int(reply[2]))

    async def mark(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """MARK: a partition becomes draining, with ``topology`` as its successor. Returns the state after."""
        return state_of(await self._run("mark", ref, topology.to_json(), topology.incarnation), self._meta(ref))

    async def close_partition(self, ref: PartitionRef) -> Counts:
        """CLOSE: a draining partition without live jobs becomes closed. Returns the counts, state afterwards."""
        return counts_of(await self._run("close", ref), self._meta(ref))

    async def remove(self, ref: PartitionRef, incarnation: int = 1) -> bool:
        """Delete a closed (or absent) partition's keys and leave a tombstone."""
        return await self._remove(ref, incarnation, whatever=False)

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an empty active partition that never became part of a promoted version."""
        return bool(await self._run("discard", ref, TOMBSTONE_TTL_MS))

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition, each read in one step."""
        counting = script("counts")
        replies = [self._client.run(counting, self._keys.of_script("counts", ref), ()) for ref in refs]
        # Gathered, so that no failure of a later one goes unread when an earlier one has failed.
        found = zip(refs, await asyncio.gather(*replies), strict=True)
        return [counts_of(reply, self._meta(ref)) for ref, reply in found]

    def _meta(self, ref: PartitionRef) -> bytes:
        return self._keys.partition(ref, "meta")


def counts_of(reply: list[Any], meta: bytes) -> Counts:
    """Return what lib/counts.lua read of the partition with this ``meta`` key. Raises DataDamaged."""
    ready, scheduled, retry, leased, parked, moving, arrived, dead = (int(size) for size in reply[1:9])
    oldest, due, marked = (None if value < 0 else int(value) for value in reply[9:12])
    return Counts(
        state_of(reply[0], meta),
        ready,
        scheduled,
        retry,
        leased,
        parked,
        moving,
        arrived,
        dead,
        oldest,
        due,
        marked,
        int(reply[12]),
        int(reply[13]),
        reply[14].decode(errors="replace"),
        int(reply[15]),
    )
