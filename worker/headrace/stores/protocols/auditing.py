"""Proving that every job of a partition is in one place, and mending what a foreign hand has damaged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.stores.protocols.topology import PartitionState
from headrace.topology import PartitionRef, Topology

LeftoverKind = Literal[
    "record without index",
    "index without record",
    "several indexes",
    "twice in the lists",
    "leased without lease",
    "lease without job",
    "changes without record",
    "parked under another type",
    "letter without time",
    "time without letter",
    "record in a closed partition",
    "sizes differ",
    "no hint",
    "hint without partition",
    "partition missing",
    "partition gone",
    "partition superseded",
    "partition not listed",
    "unknown key",
    "key of another kind",
    "record unreadable",
    "changes unreadable",
    "letter unreadable",
    "entry unreadable",
    "settings unreadable",
    "contents unreadable",
    "topology unreadable",
    "queue without topology",
]

Pause = Callable[[], Awaitable[None]]
"""Awaited between two steps of an audit, so that whoever calls decides what it may cost."""


class Leftover(NamedTuple):
    """Something that no step leaves behind.

    ``key``: where it is, for example ``r1``; ``member``: as stored there, or what else tells which; of a key of another
    kind, which one that is.
    """

    kind: LeftoverKind
    key: str
    member: bytes = b""
    repaired: bool = False


class PartitionAudit(NamedTuple):
    """What an audit of one partition found.

    ``records``: jobs at its beginning. ``proven``: every one of them is in one place, and every entry of an index has
    its record, but for the ``leftovers``; not so if the partition changed too fast to be followed. ``steps``: calls of
    the store, each of a few milliseconds at most.
    """

    state: PartitionState
    incarnation: int
    records: int
    leftovers: Sequence[Leftover]
    proven: bool
    steps: int

    @property
    def open(self) -> Sequence[Leftover]:
        """Leftovers that were not repaired."""
        return [each for each in self.leftovers if not each.repaired]


class AuditSteps(Protocol):
    """Looking through what is stored. Safe on a live queue: what is reported was so at one moment."""

    async def audit_partition(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        """Look through one partition in bounded steps.

        ``repair``: mend what was found, each in one step that looks again first: a job without an index becomes ready,
        uncharged, or a dead letter where no worker comes any more; an index entry without a job goes.
        """
        ...

    async def audit_keys(self, queue: str, *, repair: bool, pause: Pause, other_queues: bool = True) -> list[Leftover]:
        """Look at the queue's own keys, and at those of all queues: their kinds, and whether their entries can be read.

        Hints are not compared with the topology, see `hinted_labels`. ``repair``: a key of another kind is renamed, an
        entry that cannot be read is removed; nothing is done about a topology. ``other_queues``: judge the names of all
        queues, too, which takes as long as there are queues.
        """
        ...

    async def stored_partitions(self, queue: str, pause: Pause) -> tuple[set[PartitionRef], list[str]]:
        """Return the partitions of which any key exists, and the names of the queue's keys that are not of Headrace.

        It looks through all keys of the server, page by page.
        """
        ...

    async def stored_queues(self, pause: Pause) -> tuple[set[str], list[str]]:
        """Return the queues of which a partition has any key, and the names of keys that belong to no queue.

        It looks through all keys of the server, page by page. What else a queue has is its own audit's business.
        """
        ...

    async def hinted_labels(self, queue: str) -> list[bytes]:
        """Return the labels of the partitions that hints of any kind name, at most 3,000."""
        ...

    async def forget_hints(self, topology: Topology, label: bytes) -> bool:
        """Remove the hints of a partition that the topology does not list.

        False, and nothing changed, if there are none, or another topology is stored by now.
        """
        ...
