"""What happens to a queue's versions: promote, drain, close, complete - sequences of atomic steps of a Store.

Every sequence may stop between any two steps; whoever comes next (operator, leader, a producer's probe, the same call
again) finishes it. The steps and why each is needed are in ``docs/protocol.md``; ``tests/simulation`` checks them.

What one phase of a sequence does to each partition is done to many at a time, in any order; a phase begins when all of
the one before has been answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from headrace.errors import NotDrained, TopologyConflict, UnknownQueue
from headrace.finished import carry_over
from headrace.ids import decode_id, partition_of
from headrace.settings import QueueSettings
from headrace.stores.base import Counts, DeadLetter, Fence, Store
from headrace.topology import PartitionRef, Topology, check_queue_name

log = logging.getLogger("headrace.lifecycle")

ASKED_FOR_TYPES, SHOWN_TYPES = 8, 20
"""Partitions that are asked for their parked types, and types that are told."""

AT_ONCE = 64
"""Partitions that a phase works on at the same time: a round trip carries so many calls."""

LETTERS_AT_ONCE = 100

CLIENT_RETRY_MS = 5000
"""A client resends a call whose outcome it does not know for at most this time (then OutcomeUnknown)."""

ASKED_FOR_STATES = 8
"""Partitions of a version that are looked at to know whether it exists."""

T = TypeVar("T")


class Each(Protocol):
    """How one step is done on many partitions, such as `each_partition`."""

    def __call__(
        self, refs: Sequence[PartitionRef], step: Callable[[PartitionRef], Awaitable[T]], /
    ) -> Awaitable[list[T]]:
        """Do ``step`` on every partition; the replies in order."""
        ...


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
    lost = False
    while True:
        current = await store.read_topology(queue)
        if lost and current is not None:
            await _discard_surplus(store, current, version, partitions)
        if current is not None and current.check_alive().is_promoted(version, partitions):
            await finish_promote(store, current)
            return current
        if current is not None and await _recall(store, current, current.active):
            continue
        if current is None:
            grave = await store.read_grave(queue)
            target = Topology.created(queue, version, partitions, settings, owner, grave)
        else:
            target = current.promoted(version, partitions)
        await _install(store, target)
        if await _write(store, target.epoch - 1, target):
            await finish_promote(store, target)
            return target
        lost = True


async def _install(store: Store, target: Topology) -> None:
    await each_partition(target.refs(target.active), lambda ref: store.install(ref, target, target.partitions))


async def finish_promote(store: Store, topology: Topology) -> None:
    """Make every partition agree with ``topology``: the active version's settled, the older ones' marked."""
    await each_partition(topology.refs(topology.active), lambda ref: store.settle(ref, topology))
    await mark_older(store, topology)


async def mark_older(store: Store, topology: Topology, each: Each | None = None) -> None:
    """Let every partition of the older versions drain. ``each``: as `each_partition`, for those who take their time."""
    older = [ref for version in topology.older for ref in topology.refs(version)]
    await (each or each_partition)(older, lambda ref: store.mark(ref, topology))


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

    Raises UnknownQueue or QueueDeleting.
    """
    return await change_settings(store, queue, lambda current: settings, owner)


async def change_settings(
    store: Store, queue: str, change: Callable[[Topology], QueueSettings], owner: Mapping[str, str] | None = None
) -> Topology:
    """Give the queue the settings that ``change`` makes of its topology, and install them into every partition.

    ``change`` is called again if others write in between, so that no change of theirs is lost. Raises what it raises,
    UnknownQueue or QueueDeleting.
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
            if not await _write(store, current.epoch, target):
                continue
        await settle_all(store, target)
        return await surpass(store, target)


async def surpass(
    store: Store, topology: Topology, *, known: Topology | None = None, each: Each | None = None
) -> Topology:
    """See to it that no partition goes by settings that a failover has forgotten; the topology that counts then.

    Such a partition has a newer epoch than the stored ``topology``, so it would take neither its settings nor those of
    the next epoch. The topology is written again, above. ``known``: see `Topology.surpassing`; ``each``: `mark_older`.
    """

    async def count(ref: PartitionRef) -> Counts:
        return (await store.counts([ref]))[0]

    refs = [ref for version in topology.versions for ref in topology.refs(version)]
    counts = await (each or each_partition)(refs, count)
    newest = max((count.epoch for count in counts if count.state in ("active", "draining")), default=0)
    return await surpass_epoch(store, topology, newest, known=known, each=each)


async def surpass_epoch(
    store: Store, topology: Topology, newest: int, *, known: Topology | None = None, each: Each | None = None
) -> Topology:
    """As `surpass`, for one who has seen a partition with the epoch ``newest``."""
    if newest <= topology.epoch or topology.deleting:
        return topology
    raised = topology.surpassing(newest, known)
    if not await _write(store, topology.epoch, raised):
        return topology  # it is not the stored one any more, so nothing was forgotten
    await settle_all(store, raised, each)
    told = "queue %s: the store had forgotten settings that its partitions have; written again as epoch %d"
    log.warning(told, topology.queue, raised.epoch)
    return raised


async def settle_all(store: Store, target: Topology, each: Each | None = None) -> None:
    """Let every partition of every version agree with ``target``. ``each``: see `mark_older`."""
    refs = [ref for version in target.versions for ref in target.refs(version)]
    await (each or each_partition)(refs, lambda ref: store.settle(ref, target))


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
            await _secure(store, current, current.refs(version))
            if not await _write(store, current.epoch, target):
                continue
            current = target
        if current.settings.drain.order == "strict":
            await settle_all(store, current)  # the next version's turn
        if await _recall(store, current, version):  # the last who know may be removed now
            continue
        if not await _remove(store, current, version):
            # A failover has forgotten that a partition was closed, and perhaps how its jobs had ended.
            await _emptied(store, current, version, client_retry_ms, fence)
            continue
        if await _write(store, current.epoch, target := current.dropped(version)):
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
        if await _write(store, stored.epoch, target):
            await settle_all(store, target)
            await finish_promote(store, target)
            shown = ", ".join(f"v{number}" for number in sorted(forgotten))
            log.warning("queue %s: the store had forgotten %s of its topology; written again", known.queue, shown)
            return target


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
    known = {successor.epoch: successor for successor in found if successor is not None}
    for _, successor in sorted(known.items(), reverse=True):
        if await _forgotten(store, topology, successor, proven=True):
            await reassert(store, successor, proven=True)
            return True
    return False


async def _write(store: Store, expected_epoch: int, topology: Topology) -> bool:
    """Write a topology, and wait a moment for a replica to have it: a failover could forget it until then."""
    if not await store.write_topology(expected_epoch, topology):
        return False
    await _secure(store, topology)
    return True


async def _secure(store: Store, topology: Topology, refs: Sequence[PartitionRef] = ()) -> None:
    if not await store.replicated(topology.queue, refs):
        what = f"the closed partitions of v{refs[0].version}" if refs else f"topology epoch {topology.epoch}"
        told = "queue %s: no replica has confirmed %s in time; a failover now may forget it"
        log.warning(told, topology.queue, what)


async def each_partition(refs: Sequence[PartitionRef], step: Callable[[PartitionRef], Awaitable[T]]) -> list[T]:
    """Do one step on every partition, many at a time; the replies in order.

    All that were begun have ended when this returns or raises the first error, so that none is applied later.
    """
    replies: list[T] = []
    for start in range(0, len(refs), AT_ONCE):
        outcomes = await asyncio.gather(*map(step, refs[start : start + AT_ONCE]), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            replies.append(outcome)
    return replies
