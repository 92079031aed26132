"""The topology of a queue that has to be there."""

from __future__ import annotations

from headrace.errors import UnknownQueue
from headrace.stores.base import Store
from headrace.topology import Topology


async def topology_of(store: Store, queue: str) -> Topology:
    """Return the topology of a queue as it is now. Raises UnknownQueue, StoreUnavailable."""
    topology = await store.read_topology(queue)
    if topology is None:
        raise UnknownQueue(queue)
    return topology
