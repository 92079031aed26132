"""Proves that every job of a queue is in exactly one place, and names - or mends - what a foreign hand has damaged.

No step of Headrace leaves a job without an index, an index entry without a job, or one job in two indexes: each moves a
job in one script, so a crash leaves the one state or the other. Whoever deletes or adds keys by hand, restores half a
backup, or lets a server evict keys, can. An audit looks through a live queue in steps of a few milliseconds, partition
by partition. What it reports was so at one moment, whatever happens beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.errors import DataDamaged, TopologyUnreadable, UnknownQueue
from headrace.known_queue import topology_of
from headrace.pacing import DEFAULT_LOAD, paced
from headrace.stores.base import Counts, Leftover, LeftoverKind, PartitionAudit, PartitionState, Pause, Store
from headrace.topology import MAX_PARTITIONS, PartitionRef, Topology, check_queue_name, labelled

SETTLING_SECONDS = 1.0
"""After so long a state that contradicts the topology is not one that somebody is about to change."""
OLDER_VERSIONS = 100
"""Versions below the highest ever whose keys are looked for, although the topology no longer lists them."""


class Place(NamedTuple):
    """A leftover and where it is: ``version:partition``, or "" for the queue as a whole."""

    label: str
    leftover: Leftover


@dataclass(slots=True)
class QueueAudit:
    """What was found in a queue.

    ``records``: live jobs that were there. ``unproven``: partitions that changed too fast to be followed to the end
    - look again, or pause the queue -, or are damaged so that no step gets past it. ``leftovers`` that were mended say
    so.
    """

    queue: str
    partitions: int = 0
    records: int = 0
    steps: int = 0
    leftovers: list[Place] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)

    @property
    def open(self) -> list[Place]:
        """Leftovers that were not mended."""
        return [each for each in self.leftovers if not each.leftover.repaired]


async def audit(
    store: Store,
    queue: str,
    *,
    repair: bool = False,
    scan: bool = False,
    load: float = DEFAULT_LOAD,
    progress: Callable[[PartitionRef, PartitionAudit], None] = lambda ref, audit: None,
) -> QueueAudit:
    """Look through a queue, all versions and partitions, hints, and keys of versions that are no more.

    ``repair``: mend what is found, each in one step that looks again first; nothing that has a record is lost by it.
    ``scan``: find keys that nothing points to by looking through all keys of the server, which takes as long as it has
    keys. ``load``: share of the time in which it keeps the store busy, above 0 and at most 1. Raises UnknownQueue.
    """
    check_queue_name(queue)
    found = QueueAudit(queue)
    pause = paced(load)
    topology = await _readable_topology(store, queue)
    keys = await store.audit_keys(queue, repair=repair, pause=pause)
    found.leftovers += [Place("", leftover) for leftover in keys]
    topology = topology or await _readable_topology(store, queue)
    if topology is None:  # nobody can say which partitions there should be
        return found
    listed = {ref.label: ref for ref in _listed(topology)}
    spoilt: set[str] = set()
    for ref in listed.values():
        each = await store.audit_partition(ref, repair=repair, pause=pause)
        if repair and await _settled(store, ref, each):
            again = await store.audit_partition(ref, repair=repair, pause=pause)
            each = again._replace(leftovers=[*each.leftovers, *again.leftovers])
        found.partitions += 1
        progress(ref, each)
        _note(found, ref, each)
        if any(left.kind == "key of another kind" for left in each.open):
            spoilt.add(ref.label)
        kind = _misplaced(topology, ref, each.state)
        if kind and each.proven:
            stays, mend = await _stays(store, topology, ref, kind), repair and kind == "partition missing"
            if stays and mend:
                mend = await _settle(store, ref)
            if stays:
                found.leftovers.append(Place(ref.label, Leftover(kind, "meta", ref.label.encode(), mend)))
            if each.records and kind == "partition missing" and (mend or not stays):
                # Now that it has a state, it can be told whether they are all in one place.
                _note(found, ref, await store.audit_partition(ref, repair=repair, pause=pause), again=True)
    strange = {left.key for left in keys if left.kind == "key of another kind" and not left.repaired}
    if "parked" not in strange:
        await _parked(store, found, [ref for ref in listed.values() if ref.label not in spoilt], repair=repair)
    await pause()
    strays = {ref.label: ref for ref in await _hinted(store, topology, found, listed, repair=repair)}
    strays |= {ref.label: ref for ref in await _older(store, topology, pause) if ref.label not in listed}
    if scan:
        refs, unknown = await store.stored_partitions(queue, pause)
        strays |= {ref.label: ref for ref in refs if ref.label not in listed}
        queues, stray = await store.stored_queues(pause)
        found.leftovers += [Place("", Leftover("unknown key", name)) for name in sorted({*unknown, *stray})]
        found.leftovers += await _without_topology(store, queues)
    for ref in strays.values():
        await _stray(store, topology, found, ref, pause, repair=repair)
    return found


async def _without_topology(store: Store, queues: Iterable[str]) -> list[Place]:
    """Return the queues that have partitions, and neither a topology nor a grave, so that nobody knows of them."""
    for wait in (0.0, SETTLING_SECONDS):  # partitions are installed before the topology is written
        await asyncio.sleep(wait)
        queues = [each for each in sorted(queues) if not await _known(store, each)]
        if not queues:
            break
    return [Place("", Leftover("queue without topology", "topology", each.encode())) for each in queues]


async def _known(store: Store, queue: str) -> bool:
    try:
        return await store.read_topology(queue) is not None or await store.read_grave(queue) is not None
    except (DataDamaged, TopologyUnreadable):
        return True  # its own audit says what is wrong with it


async def _readable_topology(store: Store, queue: str) -> Topology | None:
    """Return the topology, None if it cannot be read. Raises UnknownQueue."""
    try:
        return await topology_of(store, queue)
    except (DataDamaged, TopologyUnreadable):
        return None


async def _settled(store: Store, ref: PartitionRef, audit: PartitionAudit) -> bool:
    """Whether fields of a partition's meta had to go, and were made anew."""
    lacking = any(left.kind == "settings unreadable" and left.repaired for left in audit.leftovers)
    return lacking and await _settle(store, ref)


async def _settle(store: Store, ref: PartitionRef) -> bool:
    """Give a partition the state and the settings that the topology says now; whether it still lists it.

    An audit takes its time: meanwhile the queue may have been paused, or the partition's version superseded.
    """
    try:
        current = await _readable_topology(store, ref.queue)
    except UnknownQueue:
        return False
    if current is None or current.deleting or ref not in _listed(current):
        return False
    if ref.version in current.older:
        await store.mark(ref, current)
    await store.settle(ref, current)
    return True


def _listed(topology: Topology) -> tuple[PartitionRef, ...]:
    return tuple(ref for version in sorted(topology.versions) for ref in topology.refs(version))


def _note(found: QueueAudit, ref: PartitionRef, audit: PartitionAudit, *, again: bool = False) -> None:
    found.records += 0 if again else audit.records
    found.steps += audit.steps
    found.leftovers += [Place(ref.label, leftover) for leftover in audit.leftovers]
    if not audit.proven:
        found.unproven.append(ref.label)


def _misplaced(topology: Topology, ref: PartitionRef, state: PartitionState) -> LeftoverKind | None:
    """Say what is wrong with the state of a listed partition, if the topology is still the stored one."""
    if topology.deleting:
        return None
    match topology.versions[ref.version].state:
        case "active":
            if state == "absent":
                return "partition missing"
            return None if state == "active" else "partition superseded"
        case "draining":
            if state == "absent":
                return "partition missing"
            return "partition gone" if state == "tombstone" else None
    return None


async def _parked(store: Store, found: QueueAudit, refs: Iterable[PartitionRef], *, repair: bool) -> None:
    """Note partitions with parked jobs of which no hint tells, so that no worker would ask for them."""
    unhinted = await _without_hint(store, found.queue, refs)
    if unhinted:  # in a Cluster the hint comes a moment later
        await asyncio.sleep(SETTLING_SECONDS)
        unhinted = await _without_hint(store, found.queue, unhinted)
    for ref, at in unhinted.items():
        if repair:
            await store.hint_parked(ref, at)
        found.leftovers.append(Place(ref.label, Leftover("no hint", "parked", ref.label.encode(), repair)))


async def _without_hint(store: Store, queue: str, refs: Iterable[PartitionRef]) -> dict[PartitionRef, int]:
    """Return the partitions with parked jobs that no hint names, with the time (ms)."""
    counts = {ref: each for ref in refs if (each := await _counted(store, ref)) is not None}
    hinted = await store.parked_partitions(queue)
    return {ref: each.now for ref, each in counts.items() if each.parked and ref not in hinted}


async def _counted(store: Store, ref: PartitionRef) -> Counts | None:
    """Return the counts of a partition, None if a key of it is of another kind."""
    try:
        (counts,) = await store.counts([ref])
    except DataDamaged:
        return None
    return counts


async def _stays(store: Store, topology: Topology, ref: PartitionRef, kind: LeftoverKind) -> bool:
    """Whether it stays so: a promoter between two steps, or whoever meets the partition next, may put it right."""
    await asyncio.sleep(SETTLING_SECONDS)
    counts = await _counted(store, ref)
    return counts is not None and _misplaced(topology, ref, counts.state) == kind and await _still(store, topology)


async def _still(store: Store, topology: Topology) -> bool:
    """Whether the topology has not changed, so that what was seen since it was read contradicts it."""
    current = await store.read_topology(topology.queue)
    return current == topology


async def _hinted(
    store: Store, topology: Topology, found: QueueAudit, listed: Mapping[str, PartitionRef], *, repair: bool
) -> list[PartitionRef]:
    """Note the hints of partitions that are not listed; return those partitions."""
    refs = []
    for label in await store.hinted_labels(topology.queue):
        if label.decode(errors="replace") in listed:
            continue
        if (ref := labelled(topology.queue, label)) is not None:
            refs.append(ref)
        if await _still(store, topology):
            mended = repair and await store.forget_hints(topology, label)
            if repair and not mended and not await _still_hinted(store, topology, label):
                continue  # a worker has taken it meanwhile, and met nothing there
            found.leftovers.append(Place("", Leftover("hint without partition", "due", label, mended)))
    return refs


async def _still_hinted(store: Store, topology: Topology, label: bytes) -> bool:
    return label in await store.hinted_labels(topology.queue) and await _still(store, topology)


async def _older(store: Store, topology: Topology, pause: Pause) -> list[PartitionRef]:
    """Return partitions that exist of versions which are not listed, and beyond the partitions of those which are."""
    found = []
    for version in range(max(1, topology.highest - OLDER_VERSIONS), topology.highest + 1):
        first = topology.versions[version].partitions if version in topology.versions else 0
        for number in range(first, MAX_PARTITIONS):
            ref = PartitionRef(topology.queue, version, number)
            counts = await _counted(store, ref)
            await pause()
            if counts is not None and counts.state == "absent" and not counts.nonempty():
                break
            found.append(ref)
    return found


async def _stray(
    store: Store, topology: Topology, found: QueueAudit, ref: PartitionRef, pause: Pause, *, repair: bool
) -> None:
    """Look at a partition that is not listed: it may be a tombstone, and nothing else."""
    each = await store.audit_partition(ref, repair=False, pause=pause)
    counts = await _counted(store, ref)
    states = counts.nonempty() if counts is not None else {}
    empty = counts is not None and not (each.records or each.leftovers or states)
    if (each.state in ("absent", "tombstone") and empty) or not await _still(store, topology):
        return
    holds = ", ".join(f"{number} {state}" for state, number in states.items())
    mended = repair and empty and await store.delete_partition(ref, topology.incarnation)
    if repair and empty and not mended:
        counts = await _counted(store, ref)
        if counts is not None and counts.state in ("absent", "tombstone") and not counts.nonempty():
            return  # somebody else has removed it meanwhile
    kind: LeftoverKind = "partition not listed"
    found.leftovers.append(Place(ref.label, Leftover(kind, holds or "meta", ref.label.encode(), mended)))
