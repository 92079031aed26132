"""What happens to a queue's versions: promote, drain, close, complete - sequences of atomic steps of a Store.

Every sequence may stop between any two steps; whoever comes next (operator, leader, a producer's probe, the same call
again) finishes it. The steps and why each is needed are in ``docs/protocol.md``; ``tests/simulation`` checks them.

What one phase of a sequence does to each partition is done to many at a time, in any order; a phase begins when all of
the one before has been answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from headrace.errors import NotDrained, TopologyConflict, UnknownQueue
from headrace.finished import carry_over
from headrace.ids import decode_id, partition_of
from headrace.settings import QueueSettings
from headrace.stores.base import Counts, DeadLetter, Store
from headrace.topology import PartitionRef, Topology, check_queue_name

ASKED_FOR_TYPES, SHOWN_TYPES = 8, 20
"""Partitions that are asked for their parked types, and types that are told."""

AT_ONCE = 64
"""Partitions that a phase works on at the same time: a round trip carries so many calls."""

LETTERS_AT_ONCE = 100

CLIENT_RETRY_MS = 5000
"""A client resends a call whose outcome it does not know for at most this time (then OutcomeUnknown)."""

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
        if current is None:
            grave = await store.read_grave(queue)
            target = Topology.created(queue, version, partitions, settings, owner, grave)
        else:
            target = current.promoted(version, partitions)
        await _install(store, target)
        if await store.write_topology(target.epoch - 1, target):
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
    while True:
        current = await store.read_topology(queue)
        if current is None:
            raise UnknownQueue(queue)
        if current.check_alive().settings == settings and (owner is None or dict(owner) == dict(current.owner)):
            target = current
        else:
            target = current.configured(settings, owner)
            if not await store.write_topology(current.epoch, target):
                continue
        await settle_all(store, target)
        return target


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


async def _moved_dead_letters(store: Store, topology: Topology, version: int, counts: Mapping[int, Counts]) -> bool:
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
                if not await store.adopt_dead(home, group, topology.incarnation):
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


async def complete(store: Store, queue: str, version: int, *, client_retry_ms: int = CLIENT_RETRY_MS) -> Topology:
    """Remove a drained version: prove that every partition is closed, delete its keys, leave tombstones.

    Its dead letters and finished jobs move to the active version first. Raises UnknownQueue, UnknownVersion,
    VersionActive, QueueDeleting, NotDrained with the counts (nothing was changed then, except that empty partitions
    are closed), or TopologyConflict if another promotion came in between. A completion that was interrupted goes on.
    """
    while True:
        current = await store.read_topology(queue)
        if current is None:
            raise UnknownQueue(queue)
        target = current.removing(version)
        if current.versions[version].state != "removing":
            counts = await close_drained(store, current, version)
            if await _moved_dead_letters(store, current, version, counts):
                continue
            if reason := undrained_reason(counts, client_retry_ms):
                remaining = {number: count.nonempty() for number, count in counts.items() if count.nonempty()}
                wait_ms = _wait_ms(counts, client_retry_ms) if reason == "ClientsMayRetry" else 0
                parked = await _parked_types(store, queue, version, counts)
                raise NotDrained(queue, version, remaining, reason, parked_types=parked, wait_ms=wait_ms)
            await carry_over(store, current, version)
            if not await store.write_topology(current.epoch, target):
                continue
            current = target
        if current.settings.drain.order == "strict":
            await settle_all(store, current)  # the next version's turn
        await _remove(store, current, version)
        if await store.write_topology(current.epoch, target := current.dropped(version)):
            return target


async def _remove(store: Store, topology: Topology, version: int) -> None:
    refs = topology.refs(version)
    removed = await each_partition(refs, lambda ref: store.remove(ref, topology.incarnation))
    if not all(removed):
        kept = refs[removed.index(False)]
        raise TopologyConflict(topology.queue, f"partition {kept.label} is being removed but not closed", topology)


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
