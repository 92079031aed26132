"""Parked jobs of a queue, over all its versions and partitions: count them by type, give a type up."""

from __future__ import annotations

from collections import Counter

from headrace.known_queue import topology_of
from headrace.stores.base import Store
from headrace.topology import PartitionRef


async def parked_types(store: Store, queue: str) -> Counter[str]:
    """Return how many jobs wait for each type (of each partition at most 100 types). Raises UnknownQueue."""
    found: Counter[str] = Counter()
    for ref in await _partitions(store, queue):
        found.update(await store.parked(ref))
    return found


async def bury_type(store: Store, queue: str, type: str) -> int:
    """Make the parked jobs of a type dead letters; the number of them. Raises UnknownQueue.

    A worker that knows the type may take some of them meanwhile: each job ends in one place.
    """
    dead = 0
    for ref in await _partitions(store, queue):
        while step := await store.bury_parked(ref, type):
            dead += step
    return dead


async def _partitions(store: Store, queue: str) -> list[PartitionRef]:
    """Return the partitions that hold parked jobs."""
    topology = await topology_of(store, queue)
    refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
    counts = await store.counts(refs)
    return [ref for ref, count in zip(refs, counts, strict=True) if count.parked]
