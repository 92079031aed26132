"""Deleting a whole queue for good: its jobs, its dead letters, all its versions.

The topology says first that the queue is being deleted, so that nothing else changes it any more. Then each partition
becomes a tombstone in one step, whatever it holds; from then on nothing can be added to it, leased from it or settled
in it. The topology goes last and leaves a grave: a queue that is created under the name again is another *incarnation*,
with later epochs, so that neither an actor that still knows the old queue nor a tombstone of it can touch the new one.
Whoever calls again goes on where an earlier call was interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from headrace.agreement import each_partition
from headrace.errors import QueueNotEmpty, TopologyConflict, UnknownQueue
from headrace.stores.base import Counts, Store
from headrace.topology import PartitionRef, Topology, check_queue_name


class Deletion(NamedTuple):
    """What a deletion removed: partitions, and jobs by state as they were counted just before."""

    queue: str
    partitions: int
    jobs: Mapping[str, int]


async def delete_queue(
    store: Store, queue: str, *, owner: Mapping[str, str] | None = None, only_if_empty: bool = False
) -> Deletion:
    """Delete a queue with everything that it holds; the same call again finishes an interrupted one.

    Jobs that run meanwhile run to their end, and their results are refused like those of a lost lease. ``owner``:
    delete it only if it belongs to this one, else TopologyConflict. ``only_if_empty``: raise QueueNotEmpty, and change
    nothing, if any version holds a live job or a dead letter; hold the producers first (stop policy HoldAndDrain), for
    what they add after the look is deleted. Raises UnknownQueue if there is no such queue and none was deleted in the
    last 8 days.
    """
    check_queue_name(queue)
    topology = await _condemned(store, queue, owner, only_if_empty=only_if_empty)
    if topology is None:
        return Deletion(queue, 0, {})
    refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
    held = await held_jobs(store, topology)
    deleted = await each_partition(refs, lambda ref: store.delete_partition(ref, topology.incarnation))
    await store.bury_queue(topology)  # False: somebody else, who deletes it too, was faster
    return Deletion(queue, sum(deleted), held)


async def _condemned(
    store: Store, queue: str, owner: Mapping[str, str] | None, *, only_if_empty: bool
) -> Topology | None:
    """Return the topology, which says now that the queue is being deleted; None if it has been deleted."""
    while True:
        topology = await store.read_topology(queue)
        if topology is None:
            await store.unlist_queue(queue)  # whoever has deleted it may have died before
            if await store.read_grave(queue) is None:
                raise UnknownQueue(queue)
            return None
        if owner is not None and dict(owner) != dict(topology.owner):
            raise TopologyConflict(queue, "it belongs to another owner and is not deleted", topology)
        if topology.deleting:
            return topology
        if only_if_empty and (held := await held_jobs(store, topology)):
            raise QueueNotEmpty(queue, held)
        if await store.write_topology(topology, condemned := topology.condemned()):
            return condemned


async def held_jobs(store: Store, topology: Topology) -> dict[str, int]:
    """Return how many jobs a queue holds, by state: of those states that are not empty, over all versions."""
    refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
    held = Counter[str]()
    for counts in await each_partition(refs, partial(_counts, store)):
        held.update(counts.nonempty())
    return dict(held)


async def _counts(store: Store, ref: PartitionRef) -> Counts:
    (counts,) = await store.counts([ref])
    return counts
