"""Moves the waiting jobs of draining versions to the active one: a sequence of a leader's steps.

It may stop between any two steps; the next round, of this leader or of a later one, goes on. The steps and why each is
needed are in ``docs/protocol.md``; ``tests/simulation`` checks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from headrace.agreement import mark_older
from headrace.ids import decode_id, partition_of
from headrace.settings import DrainSettings
from headrace.stores.base import MAX_ASIDE, Aside, Counts, Fence, Store
from headrace.topology import PartitionRef, Topology

T = TypeVar("T")


async def move_jobs(store: Store, source: PartitionRef, fence: Fence, *, limit: int = MAX_ASIDE) -> int:
    """Move at most ``limit`` (<= 100) waiting jobs of a draining partition to the active version; how many have moved.

    Jobs that are leased stay. Raises Fenced if a newer leader has been at work, and what the store raises.
    """
    topology = await store.read_topology(source.queue)
    if topology is None or source.version not in topology.older:
        return 0
    # An older partition that still took jobs could take one with the id of a job that has left another one.
    await mark_older(store, topology)
    return await move_marked(store, topology, source, fence, limit=limit)


async def move_marked(
    store: Store, topology: Topology, source: PartitionRef, fence: Fence, *, limit: int = MAX_ASIDE
) -> int:
    """As `move_jobs`, for one who has marked every partition of the older versions of ``topology``.

    A topology that was replaced meanwhile does no harm: its active version refuses, and what is aside is moved later.
    """
    adopted: dict[PartitionRef, list[bytes]] = {}
    groups, refused = _by_target(topology, await store.set_aside(source, fence, topology.active, limit))
    for target, jobs in _in_order(groups):
        partitions = topology.versions[target.version].partitions
        answers = await store.adopt(target, partitions, fence, source, jobs)
        for job, taken in zip(jobs, answers, strict=True):
            if taken:
                adopted.setdefault(target, []).append(job.stored_id)
            else:
                refused.append(job)
    if overtaken := [job.stored_id for job in refused if job.to < topology.active]:
        await store.retarget(source, fence, overtaken, topology.active)
    if adopted:
        await store.let_go(source, fence, [stored_id for ids in adopted.values() for stored_id in ids])
    for target, ids in adopted.items():
        await store.forget_arrived(target, fence, source, ids)
    return sum(map(len, adopted.values()))


def _by_target(topology: Topology, jobs: Iterable[Aside]) -> tuple[dict[PartitionRef, list[Aside]], list[Aside]]:
    """Group jobs set aside by the partition they move to; and those whose version is gone, hence without them."""
    groups: dict[PartitionRef, list[Aside]] = {}
    homeless = []
    for job in jobs:
        if version := topology.versions.get(job.to):
            target = PartitionRef(topology.queue, job.to, partition_of(decode_id(job.stored_id), version.partitions))
            groups.setdefault(target, []).append(job)
        else:
            homeless.append(job)
    return groups, homeless


def _in_order(groups: Mapping[PartitionRef, T]) -> list[tuple[PartitionRef, T]]:
    return sorted(groups.items(), key=lambda group: (group[0].version, group[0].partition))


def drain_action(drain: DrainSettings, counts: Counts) -> Literal["wait", "migrate", "dead_letter"]:
    """Return what is to become of the jobs that wait in a draining partition with these counts.

    The time-out begins when the partition was marked.
    """
    if drain.policy == "migrate":
        return "migrate"
    if drain.timeout_ms is None or counts.marked_at is None or counts.now - counts.marked_at < drain.timeout_ms:
        return "wait"
    return drain.on_timeout


async def bury_jobs(
    store: Store, source: PartitionRef, drain: DrainSettings, *, limit: int = MAX_ASIDE, fence: Fence | None = None
) -> int:
    """Make at most ``limit`` (<= 100) waiting jobs of a partition whose drain has timed out dead letters; how many.

    ``fence``: of the leader that does it; raises Fenced.
    """
    seconds = (drain.timeout_ms or 0) / 1000
    return await store.bury_waiting(
        source, f"drain timed out: version {source.version} drains for {seconds:g} s", limit, fence=fence
    )


async def tidy_arrivals(store: Store, ref: PartitionRef, fence: Fence, *, limit: int = 100) -> int:
    """Forget marks of arrival that a leader left when it stopped in the middle; the number of those forgotten.

    A version with such marks cannot be completed. Raises as `move_jobs`.
    """
    sources: dict[PartitionRef, list[bytes]] = {}
    for stored_id, source in await store.arrivals(ref, min(limit, MAX_ASIDE)):
        sources.setdefault(source, []).append(stored_id)
    forgotten = 0
    for source, ids in _in_order(sources):
        aside = await store.still_aside(source, ids)
        if gone := [stored_id for stored_id, still in zip(ids, aside, strict=True) if not still]:
            await store.forget_arrived(ref, fence, source, gone)
            forgotten += len(gone)
    return forgotten
