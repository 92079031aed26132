"""What replicas have, and what partitions remember when a failover to one of them has forgotten it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.topology import PartitionRef, Topology


class Replicas(NamedTuple):
    """How many replicas must have a write, and for how many ms that is waited for."""

    number: int
    within_ms: int


class ReplicationSteps(Protocol):
    """Steps for stores whose servers have replicas."""

    async def replicated(self, queue: str, refs: Sequence[PartitionRef] = ()) -> bool:
        """Wait until a replica has what was written to the queue's topology and to ``refs``, at most 1 s.

        True also if no replica is connected, since none could take over then. False: the time was over, or a server
        did not answer; nothing was changed by that.
        """
        ...

    async def successor(self, ref: PartitionRef) -> Topology | None:
        """Return the topology that the partition was marked with; None if it never was."""
        ...
