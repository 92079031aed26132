"""How a topology is written, and made to hold in every partition: what promotions, edits and completions share.

What one phase of a sequence does to each partition is done to many at a time, in any order; a phase begins when all of
the one before has been answered. Why each step is needed is in ``docs/protocol.md``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from headrace.errors import TopologyConflict
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Grave, PartitionRef, Topology

log = logging.getLogger("headrace.agreement")

AT_ONCE = 64
"""Partitions that a phase works on at the same time: a round trip carries so many calls."""

REPLACED = "others have written other settings, or a failover forgot these, before all partitions had them; edit again"

T = TypeVar("T")


class Each(Protocol):
    """How one step is done on many partitions, such as `each_partition`."""

    def __call__(
        self, refs: Sequence[PartitionRef], step: Callable[[PartitionRef], Awaitable[T]], /
    ) -> Awaitable[list[T]]:
        """Do ``step`` on every partition; the replies in order."""
        ...


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


async def write_topology(store: Store, read: Topology | Grave | None, topology: Topology) -> bool:
    """Write a topology, and wait a moment for a replica to have it: a failover could forget it until then."""
    if not await store.write_topology(read, topology):
        return False
    await secure(store, topology)
    return True


async def secure(store: Store, topology: Topology, refs: Sequence[PartitionRef] = ()) -> None:
    """Wait a moment for replicas to have the topology and the states of ``refs``, all of one version; warn if not."""
    if not await store.replicated(topology.queue, refs):
        what = f"the closed partitions of v{refs[0].version}" if refs else f"topology epoch {topology.epoch}"
        told = "queue %s: no replica has confirmed %s in time; a failover now may forget it"
        log.warning(told, topology.queue, what)


async def settle_all(store: Store, target: Topology, each: Each | None = None) -> int:
    """Let every partition of every version agree with ``target``; the epoch of one that is ahead of it, else 0.

    ``each``: see `mark_older`.
    """
    refs = [ref for version in target.versions for ref in target.refs(version)]
    agreed = await (each or each_partition)(refs, lambda ref: store.settle(ref, target))
    return max(one.ahead for one in agreed)


async def mark_older(store: Store, topology: Topology, each: Each | None = None) -> None:
    """Let every partition of the older versions drain. ``each``: as `each_partition`, for those who take their time."""
    older = [ref for version in topology.older for ref in topology.refs(version)]
    await (each or each_partition)(older, lambda ref: store.mark(ref, topology))


async def make_agree(store: Store, topology: Topology, each: Each | None = None) -> Topology:
    """Make every partition agree with ``topology``, whatever was left of it; the topology that counts then."""
    ahead = await settle_all(store, topology, each)
    await mark_older(store, topology, each)
    return await surpass_epoch(store, topology, ahead, each=each)


async def surpass_epoch(
    store: Store, topology: Topology, ahead: int, *, known: Topology | None = None, each: Each | None = None
) -> Topology:
    """See to it that no partition goes by settings that a failover has forgotten; the topology that counts then.

    ``ahead``: epoch of a partition that is ahead of ``topology`` (see `headrace.stores.base.Agreed`), 0: of none. It
    would take neither its settings nor, perhaps, those of the next epoch. So the topology is written again, above, if
    it is still the stored one. ``known``: see `Topology.surpassing`; ``each``: `mark_older`.
    """
    while ahead and (raised := await _raise(store, topology, ahead, known)):
        ahead, topology = await settle_all(store, raised, each), raised
    return topology


async def _raise(store: Store, topology: Topology, ahead: int, known: Topology | None = None) -> Topology | None:
    """Write a topology again, above that of a partition; None if it is not stored any more: nothing was forgotten."""
    raised = topology.surpassing(ahead, known)
    if topology.deleting or not await write_topology(store, topology, raised):
        return None
    told = "queue %s: the store had forgotten a topology that its partitions go by; written again as epoch %d"
    log.warning(told, topology.queue, raised.epoch)
    return raised


async def settle_firmly(store: Store, edited: Topology, change: Callable[[Topology], QueueSettings]) -> Topology:
    """Let every partition agree with edited settings, whatever is written meanwhile; the topology that counts then.

    ``change`` is what was made of a topology: an edit that others have built upon is in force. Raises what it raises,
    or TopologyConflict if the topology that counts is not what ``change`` makes of it.
    """
    target = edited
    while ahead := await settle_all(store, target):
        found = await _raise(store, target, ahead) or await store.read_topology(target.queue)
        if found is None or found.deleting:
            break
        if change(found) != found.settings:
            raise TopologyConflict(edited.queue, REPLACED, found)
        target = found  # it has replaced what was written here, and may not have reached each partition
    return target
