"""Inserting jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.stores.protocols.replication import Replicas
from headrace.topology import PartitionRef, Topology

LANE = b"1"


class NewJob(NamedTuple):
    """A job to insert. ``when``: 0 now, > 0 at that time (ms since the epoch), < 0 after that many ms."""

    key: bytes
    when: int
    body: bytes


class Once(NamedTuple):
    """Lets a call be applied at most once to a partition, however late it is repeated, and by whomever.

    ``series`` names what it belongs to; ``number`` grows in it. A partition remembers the highest number of each series
    that it has applied, for as long as it exists.
    """

    series: str
    number: int


class Accepted(NamedTuple):
    """The call was applied. ``existing`` holds the indexes of jobs whose id was live before; they are unchanged.

    If the call had been applied before (same nonce), nothing changed now and ``existing`` is empty. ``replicas``: how
    many have it, if that was asked for; ``problem``: why none can be told.
    """

    existing: frozenset[int]
    replicas: int = 0
    problem: str = ""


class Moved(NamedTuple):
    """The partition takes no jobs; nothing was changed.

    ``state`` is that of the partition, or "resized" if it is active with another number of partitions than the caller
    believed. ``successor`` is the topology known to the partition, None where it knows none (read the topology).
    """

    state: Literal["absent", "draining", "closed", "tombstone", "resized"]
    successor: Topology | None


class ProducingSteps(Protocol):
    """Steps of producers."""

    async def enqueue(
        self,
        ref: PartitionRef,
        partitions: int,
        nonce: bytes,
        jobs: Sequence[NewJob],
        incarnation: int = 1,
        replicas: Replicas | None = None,
        once: Once | None = None,
    ) -> Accepted | Moved:
        """Insert at most MAX_ENQUEUE jobs into an active partition of a version with ``partitions`` partitions.

        A partition of another number of partitions, or of another incarnation of the queue, refuses them as "resized".
        ``replicas``: afterwards wait until so many have it; whether they have is told, and is no error.

        The nonce names this call: the same call sent again within 10 s is applied once. With ``once``, a call whose
        number is not above the highest one changes nothing, and reports all of its jobs as existing. Raises QueueFull
        or QueueHeld.
        """
        ...

    async def probe(self, ref: PartitionRef, topology: Topology, jobs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """PROBE: MARK the partition of an older version and tell for each (key, nonce) whether it is known there.

        Known means: the id is live in the partition, or the call of that nonce (b"" for none) was applied.
        """
        ...
