"""Notices that the store has forgotten a version, or settings, as a failover may let it, and writes them again."""

from __future__ import annotations

import asyncio
import random

from headrace.agreement import surpass_epoch
from headrace.lifecycle import reassert
from headrace.stores.base import Store
from headrace.topology import Topology


class Recall:
    """Remembers the topology of one queue as it was read last.

    In a Cluster, where partitions may know of a newer topology than the one that is stored, it also asks one partition
    after the other.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: Topology | None = None
        self._asked = random.randrange(1 << 16)  # workers begin at different partitions

    async def look(self, topology: Topology) -> Topology:
        """Return the topology that counts: the one just read, or the one that was written again."""
        if self._known is not None and self._known.versions.keys() - topology.versions.keys():
            topology = await reassert(self._store, self._known) or topology
        if self._store.hints_may_be_lost:  # the mark of a Cluster
            refs = [ref for version in topology.versions for ref in topology.refs(version)]
            self._asked += 1
            ref = refs[self._asked % len(refs)]
            successor, (counts,) = await asyncio.gather(self._store.successor(ref), self._store.counts([ref]))
            if successor is not None and successor.versions.keys() - topology.versions.keys():
                topology = await reassert(self._store, successor, proven=True) or topology
            topology = await surpass_epoch(self._store, topology, counts.ahead(topology), known=self._known)
        self._known = topology
        return topology
