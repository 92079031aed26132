"""Topology, and the state of the partitions that it lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.topology import Grave, PartitionRef, Topology

PartitionState = Literal["absent", "active", "draining", "closed", "tombstone"]


class Counts(NamedTuple):
    """Sizes of one partition's indexes, its state and facts about its drain, read in one step.

    ``epoch``, ``of``: epoch and stamp of the topology whose settings it goes by; 0 and empty if it has none yet.
    ``incarnation``: of the queue that it belongs to, also if only its tombstone is left; 1 if nothing is.
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
    of: str = ""
    incarnation: int = 1

    def ahead(self, topology: Topology) -> int:
        """Return the epoch of a partition that goes by another topology, and by no older one; 0 if it does not."""
        takes_settings = self.state in ("active", "draining")
        return self.epoch if takes_settings and topology.is_behind(self.epoch, self.of) else 0

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


class Agreed(NamedTuple):
    """A partition's state before it was made to agree with a topology.

    ``ahead``: 0, or its epoch if it stays as it is because it goes by another topology, and by no older one. If the one
    it was to agree with is the stored one, a failover has forgotten the other.
    """

    state: PartitionState
    ahead: int = 0


class TopologySteps(Protocol):
    """Steps on the topology and on a partition as a whole."""

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        ...

    async def write_topology(self, read: Topology | Grave | None, topology: Topology) -> bool:
        """Store ``topology`` if what is stored is still what was ``read``, to the letter; False if it is not.

        ``read``: None if there was nothing; the grave, if there was no topology but that. Not its epoch is compared:
        after a failover that has forgotten a topology, another one may have the same. True also if ``topology`` is
        stored already, as after a call whose answer was lost.
        """
        ...

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int, *, create: bool = True) -> Agreed:
        """INSTALL: prepare a partition of a version that is about to become one of the topology's.

        ``topology``: the one that was read, whose settings the version begins with. Absent: created active with its
        epoch and ``partitions``, if it is to ``create``. Active with an older epoch: both and the settings overwritten.
        Draining with an older epoch: settings only. Others untouched. What an earlier incarnation of the queue has left
        counts as absent, what belongs to a later one is untouched; so it is in `settle`, `mark` and `remove`.
        """
        ...

    async def settle(self, ref: PartitionRef, topology: Topology) -> Agreed:
        """Make a partition agree with ``topology``, which has been written and lists its version.

        Absent: created if its version is the active one. Active with an older epoch, or of this very topology: epoch,
        partition count (its version's) and settings overwritten; this is what undoes the installs of a promoter that
        lost. Draining: the same, settings only. Others untouched, also those that are ahead.
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
