"""What happens to a queue's versions: promote, drain, close, complete - sequences of atomic steps of a Store.

Every sequence may stop between any two steps; whoever comes next (operator, leader, a producer's probe, the same call
again) finishes it. The steps and why each is needed are in ``docs/protocol.md``; ``tests/simulation`` checks them. What
the sequences share is in `headrace.agreement`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from headrace.agreement import (
    each_partition,
    make_agree,
    mark_older,
    secure,
    settle_all,
    settle_firmly,
    surpass_epoch,
    write_topology,
)
from headrace.errors import NotDrained, TopologyConflict, UnknownQueue
from headrace.finished import carry_over
from headrace.ids import decode_id, partition_of
from headrace.settings import QueueSettings
from headrace.stores.base import Agreed, Counts, DeadLetter, Fence, Store
from headrace.topology import PartitionRef, Topology, check_queue_name

log = logging.getLogger("headrace.lifecycle")

ASKED_FOR_TYPES, SHOWN_TYPES = 8, 20
"""Partitions that are asked for their parked types, and types that are told."""

LETTERS_AT_ONCE = 100

CLIENT_RETRY_MS = 5000
"""A client resends a call whose outcome it does not know for at most this time (then OutcomeUnknown)."""

ASKED_FOR_STATES = 8
"""Partitions of a version that are looked at to know whether it exists."""


AGAIN_SECONDS = 0.01
"""How long `promote` waits before it begins anew, since others have written."""


async def promote(
    store: Store,
    queue: str,
    version: int,
    partitions: int,
    *,
    settings: QueueSettings | None = None,
    owner: Mapping[str, str] | None = None,
) -> Topology:
    """Make ``version`` with ``partitions`` partitions the active one; the others begin to drain.

    Creates the queue if it has no topology; only then ``settings`` and ``owner`` are taken (see `configure`). The same
    request again is a success and finishes what an earlier one left. Raises InvalidInput, VersionNotHigher, or
    TopologyConflict (the version is active with another number of partitions, e.g. promoted by somebody else), or
    QueueDeleting.
    """
    check_queue_name(queue)
    lost, pause = False, 0.0
    while True:
        await asyncio.sleep(pause)
        pause = AGAIN_SECONDS
        current = await store.read_topology(queue)
        if lost and current is not None:
            await _discard_surplus(store, current, version, partitions)
        if current is not None and current.check_alive().is_promoted(version, partitions):
            return await finish_promote(store, current)
        if current is not None and await _recall(store, current, current.active):
            continue
        grave = await store.read_grave(queue) if current is None else None
        if current is None:
            target = Topology.created(queue, version, partitions, settings, owner, grave)
        else:
            target = current.promoted(version, partitions)
        ahead = await provision(store, target, current)
        if ahead and current is not None:
            await surpass_epoch(store, current, ahead)
        elif await write_topology(store, current or grave, target):
            return await finish_promote(store, target)
        lost = True


async def provision(store: Store, target: Topology, read: Topology | None) -> int:
    """INSTALL the partitions of the active version of ``target``, which is about to replace what was ``read``.

    They begin with the settings of that; nobody can see them before. Returns the epoch of one that is ahead of it, else
    0. Where nothing was read the settings are those of ``target``, and none is ahead of what is to be the first.
    """
    basis = read or replace(target, epoch=target.epoch - 1)
    refs = target.refs(target.active)
    agreed = await each_partition(refs, lambda ref: store.install(ref, basis, target.partitions))
    return max(one.ahead for one in agreed)


async def finish_promote(store: Store, topology: Topology) -> Topology:
    """Make partitions agree with ``topology``: the active version's settled, the older ones' marked.

    Returns the topology that counts then, see `surpass_epoch`.
    """
    refs = topology.refs(topology.active)
    agreed = await each_partition(refs, lambda ref: store.settle(ref, topology))
    await mark_older(store, topology)
    return await surpass_epoch(store, topology, max(one.ahead for one in agreed))


async def _discard_surplus(store: Store, winner: Topology, version: int, partitions: int) -> None:
    """Remove what was installed in vain: somebody promoted the version, or one above it, or deletes the queue."""
    if winner.highest < version and not winner.deleting:
        return
    kept = winner.versions[version].partitions if version in winner.versions else 0
    surplus = [PartitionRef(winner.queue, version, number) for number in range(kept, partitions)]
    await each_partition(surplus, store.discard)


async def configure(
    store: Store, queue: str, settings: QueueSettings, owner: Mapping[str, str] | None = None
) -> Topology:
    """Change the queue's settings (and owner) and install them into every partition.

    Raises UnknownQueue, QueueDeleting or TopologyConflict, see `change_settings`.
    """
    return await change_settings(store, queue, lambda current: settings, owner)


async def change_settings(
    store: Store, queue: str, change: Callable[[Topology], QueueSettings], owner: Mapping[str, str] | None = None
) -> Topology:
    """Give the queue the settings that ``change`` makes of its topology, and install them into every partition.

    ``change`` is called again if others write in between, so that no change of theirs is lost: it has to leave alone
    what it has changed already. Raises what it raises, UnknownQueue, QueueDeleting, or TopologyConflict: the change was
    replaced or forgotten before every partition had it. What others have built upon it is no conflict.
    """
    while True:
        current = await store.read_topology(queue)
        if current is None:
            raise UnknownQueue(queue)
        settings = change(current.check_alive())
        if current.settings == settings and (owner is None or dict(owner) == dict(current.owner)):
            target = current
        else:
            target = current.configured(settings, owner)
            if not await write_topology(store, current, target):
                continue
        return await settle_firmly(store, target, change)


async def close_drained(store: Store, topology: Topology, version: int) -> dict[int, Counts]:
    """Mark and close what can be closed of a draining version; the counts of each partition, by its number."""
    refs = topology.refs(version)
    await each_partition(refs, lambda ref: store.mark(ref, topology))
    counts = await each_partition(refs, store.close_partition)
    return {ref.partition: count for ref, count in zip(refs, counts, strict=True)}


def undrained_reason(counts: Mapping[int, Counts], client_retry_ms: int = CLIENT_RETRY_MS) -> str | None:
    """Say why a version with these counts cannot be completed yet; None if it can.

    Reasons: ``JobsRemain``, ``ClientsMayRetry`` (a producer may still resend a call from before
    the mark; it ends by itself after ``client_retry_ms``, which no producer may exceed).
    """
    if any(count.state not in ("closed", "tombstone") for count in counts.values()):
        return "JobsRemain"
    if _wait_ms(counts, client_retry_ms) > 0:
        return "ClientsMayRetry"
    return None


def drain_look_ms(counts: Iterable[Counts], timeout_ms: int | None = None) -> int:
    """Return after how many milliseconds a draining version with these counts is worth another look.

    Between 1.5 and 30 s: soon while jobs run or could, later if everything that is left is due later.
    ``timeout_ms``: how long it may drain.
    """
    soonest = 30_000
    for count in counts:
        if timeout_ms and count.waiting and count.marked_at is not None:
            soonest = min(soonest, max(1_500, count.marked_at + timeout_ms - count.now))
        if count.live - count.scheduled - count.retry - count.parked > 0 or count.state == "active":
            return 1_500
        if count.parked:
            soonest = min(soonest, 5_000)
        if count.next_due_at is not None and count.live:
            soonest = min(soonest, max(1_500, count.next_due_at - count.now))
    return soonest


def _wait_ms(counts: Mapping[int, Counts], client_retry_ms: int) -> int:
    """Return how long producers may still resend a call from before the mark."""
    waits = (count.marked_at + client_retry_ms - count.now for count in counts.values() if count.marked_at is not None)
    return max(waits, default=0)


async def _moved_dead_letters(
    store: Store, topology: Topology, version: int, counts: Mapping[int, Counts], fence: Fence | None
) -> bool:
    """Move the dead letters of a version whose jobs are gone to the active one; whether to count anew.

    Each is copied, then removed: whoever repeats that finds it in both at worst, and copies it over itself.
    """
    if any(count.state not in ("closed", "tombstone") for count in counts.values()):
        return False
    holding = [number for number, count in counts.items() if count.dead]
    for number in holding:
        ref = PartitionRef(topology.queue, version, number)
        while letters := await store.dead_letters(ref, limit=LETTERS_AT_ONCE):
            targets: dict[int, list[DeadLetter]] = {}
            for letter in letters:
                target = partition_of(decode_id(letter.stored_id), topology.partitions)
                targets.setdefault(target, []).append(letter)
            for target, group in sorted(targets.items()):
                home = PartitionRef(topology.queue, topology.active, target)
                if not await store.adopt_dead(home, group, topology.incarnation, fence=fence):
                    raise TopologyConflict(
                        topology.queue,
                        f"partition {topology.active}:{target} takes no dead letters; ask again",
                        topology,
                    )
            await store.remove_dead(ref, [letter.letter for letter in letters])
    return bool(holding)


async def _parked_types(store: Store, queue: str, version: int, counts: Mapping[int, Counts]) -> list[str]:
    """Return the types that are parked in a version, of its first few partitions that hold any."""
    holding = [number for number, count in counts.items() if count.parked][:ASKED_FOR_TYPES]
    found = [await store.parked(PartitionRef(queue, version, number)) for number in holding]
    return sorted({type for types in found for type in types})[:SHOWN_TYPES]


async def complete(
    store: Store, queue: str, version: int, *, client_retry_ms: int = CLIENT_RETRY_MS, fence: Fence | None = None
) -> Topology:
    """Remove a drained version: prove that every partition is closed, delete its keys, leave tombstones.

    Its dead letters and finished jobs move to the active version first; ``fence``: of the leader that does it, so that
    a former one moves none. Raises Fenced, UnknownQueue, UnknownVersion,
    VersionActive, QueueDeleting, NotDrained with the counts (nothing was changed then, except that empty partitions
    are closed), or TopologyConflict if another promotion came in between. A completion that was interrupted goes on.
    """
    while True:
        current = await store.read_topology(queue)
        if current is None:
            raise UnknownQueue(queue)
        target = current.removing(version)
        if current.versions[version].state != "removing":
            if not await _emptied(store, current, version, client_retry_ms, fence):
                continue
            await secure(store, current, current.refs(version))
            if not await write_topology(store, current, target):
                continue
            current = target
        if current.settings.drain.order == "strict":  # the next version's turn
            current = await surpass_epoch(store, current, await settle_all(store, current))
        if await _recall(store, current, version):  # the last who know may be removed now
            continue
        if not await _remove(store, current, version):
            # A failover has forgotten that a partition was closed, and perhaps how its jobs had ended.
            await _emptied(store, current, version, client_retry_ms, fence)
            continue
        if await write_topology(store, current, target := current.dropped(version)):
            return target


async def _emptied(store: Store, topology: Topology, version: int, client_retry_ms: int, fence: Fence | None) -> bool:
    """Close the partitions of a drained version, and move what is kept of its jobs; False if it must look again."""
    counts = await close_drained(store, topology, version)
    if await _moved_dead_letters(store, topology, version, counts, fence):
        return False
    await _check_drained(store, topology.queue, version, counts, client_retry_ms)
    await carry_over(store, topology, version)
    return True


async def _check_drained(
    store: Store, queue: str, version: int, counts: Mapping[int, Counts], client_retry_ms: int
) -> None:
    reason = undrained_reason(counts, client_retry_ms)
    if reason is not None:
        remaining = {number: count.nonempty() for number, count in counts.items() if count.nonempty()}
        wait_ms = _wait_ms(counts, client_retry_ms) if reason == "ClientsMayRetry" else 0
        parked = await _parked_types(store, queue, version, counts)
        raise NotDrained(queue, version, remaining, reason, parked_types=parked, wait_ms=wait_ms)


async def _remove(store: Store, topology: Topology, version: int) -> bool:
    refs = topology.refs(version)
    return all(await each_partition(refs, lambda ref: store.remove(ref, topology.incarnation)))


# ---- what a failover may lose ---------------------------------------------------------------------------------------


async def reassert(store: Store, known: Topology, *, proven: bool = False) -> Topology | None:
    """Write again what the store has forgotten of ``known``, a topology that was stored once; the one that counts then.

    A failover may lose the last writes of one server, and a promotion with them, while partitions on others go by it.
    ``proven``: a partition of the queue has remembered ``known``. None if the queue has no topology: none is created.
    """
    while True:
        stored = await store.read_topology(known.queue)
        if stored is None or stored.deleting or stored.incarnation != known.incarnation:
            return stored
        forgotten = await _forgotten(store, stored, known, proven=proven)
        if not forgotten:
            return stored
        target = stored.recalling(known, forgotten)
        # Before anybody sees them: they may go by settings from before an edit.
        if ahead := await _prepare(store, target, known if known.epoch > stored.epoch else stored, forgotten):
            await surpass_epoch(store, stored, ahead)
        elif await write_topology(store, stored, target):
            shown = ", ".join(f"v{number}" for number in sorted(forgotten))
            log.warning("queue %s: the store had forgotten %s of its topology; written again", known.queue, shown)
            return await make_agree(store, target)


async def _prepare(store: Store, target: Topology, newer: Topology, forgotten: Collection[int]) -> int:
    """Give the partitions of versions that are to be in ``target`` again the settings that they will have."""

    async def install(ref: PartitionRef) -> Agreed:
        partitions, create = target.versions[ref.version].partitions, ref.version == target.active
        return await store.install(ref, newer, partitions, create=create)

    agreed = await each_partition([ref for number in forgotten for ref in target.refs(number)], install)
    return max(one.ahead for one in agreed)


async def _forgotten(store: Store, stored: Topology, known: Topology, *, proven: bool) -> set[int]:
    """Return the versions of ``known`` that are not in the stored topology although they should be.

    Above the highest ever that is certain, if ``known`` is proven: that number never falls. Else a version may have
    been completed since, or be gone with the whole data set; then no partition of it is in use.
    """
    missing = known.versions.keys() - stored.versions.keys()
    certain = {number for number in missing if proven and number > stored.highest}
    refs = [ref for number in missing - certain for ref in known.refs(number)[:ASKED_FOR_STATES]]
    counts = await store.counts(refs) if refs else []
    in_use = {ref for ref, count in zip(refs, counts, strict=True) if count.state in ("active", "draining")}
    return certain | {ref.version for ref in in_use}


async def _recall(store: Store, topology: Topology, version: int) -> bool:
    """Ask the partitions of a version which successor they know; whether ``topology`` lacks something of one.

    If so, the store had forgotten it, and it is written again - or ``topology`` is not the stored one any more.
    """
    found = await each_partition(topology.refs(version), store.successor)
    known = {each.stamp: each for each in found if each is not None and each.incarnation == topology.incarnation}
    for successor in sorted(known.values(), key=lambda each: each.epoch, reverse=True):
        if await _forgotten(store, topology, successor, proven=True):
            await reassert(store, successor, proven=True)
            return True
    return False
