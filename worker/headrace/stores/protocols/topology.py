"""Topology, and the state of the partitions that it lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.topology import PartitionRef, Topology

PartitionState = Literal["absent", "active", "draining", "closed", "tombstone"]


class Counts(NamedTuple):
    """Sizes of one partition's indexes, its state and facts about its drain, read in one step.

    ``epoch``: of the topology whose settings it goes by; 0 if it has none yet.
    """

    state: PartitionState
    ready: int
    scheduled: int
    retry: int
    leased: int
    parked: int
    moving: int
    arrived: int
    dead: int
    oldest_ready_at: int | None
    next_due_at: int | None
    marked_at: int | None
    now: int
    epoch: int = 0

    @property
    def live(self) -> int:
        """Jobs that keep a version from draining (everything but dead letters)."""
        return self.ready + self.scheduled + self.retry + self.leased + self.parked + self.moving + self.arrived

    @property
    def waiting(self) -> int:
        """Jobs that neither run nor are on their way to another version."""
        return self.ready + self.scheduled + self.retry + self.parked

    def nonempty(self) -> dict[str, int]:
        """Return the sizes that are not zero, by state name."""
        names = ("ready", "scheduled", "retry", "leased", "parked", "moving", "arrived", "dead")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class TopologySteps(Protocol):
    """Steps on the topology and on a partition as a whole."""

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        ...

    async def write_topology(self, expected_epoch: int, topology: Topology) -> bool:
        """Store ``topology`` if the stored one has ``expected_epoch`` (0: there is none); False if it has not."""
        ...

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int) -> PartitionState:
        """INSTALL: prepare a partition for ``topology``, which is about to be written with this version active.

        Absent: created active with ``topology.epoch`` and ``partitions``. Active with an older epoch: both and the
        settings overwritten. Draining with an older epoch: settings only. Closed or tombstone: untouched. What an
        earlier incarnation of the queue has left counts as absent, what belongs to a later one is untouched; so it is
        in `settle`, `mark` and `remove`. Returns the state before.
        """
        ...

    async def settle(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Make a partition agree with ``topology``, which has been written and lists its version.

        Absent: created if its version is the active one. Active and not newer than ``topology.epoch``: epoch, partition
        count (its version's) and settings overwritten; this is what undoes the installs of a promoter that lost.
        Draining and not newer: settings only. Others untouched. Returns the state before.
        """
        ...

    async def mark(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """MARK: a partition of an older version becomes draining, with ``topology`` as its successor.

        Active: draining; its epoch and settings stay. Absent: created so, lest a promoter that slept creates it active.
        Any other state is untouched. Returns the state afterwards.
        """
        ...

    async def close_partition(self, ref: PartitionRef) -> Counts:
        """CLOSE: a draining partition without live jobs becomes closed. Returns the counts, state afterwards."""
        ...

    async def remove(self, ref: PartitionRef, incarnation: int = 1) -> bool:
        """Delete a closed (or absent) partition's keys and leave a tombstone for 7 days.

        False, and nothing changed, if the partition is active or draining.
        """
        ...

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an active partition that never became part of a promoted version, without a tombstone.

        False, and nothing changed, if it is not active or holds anything, be it the nonce of a call.
        """
        ...

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition, each read in one step."""
        ...
