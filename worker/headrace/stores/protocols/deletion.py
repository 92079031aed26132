"""Deleting a whole queue, see `headrace.deletion`."""

from __future__ import annotations

from typing import Protocol

from headrace.topology import Grave, PartitionRef, Topology


class DeletionSteps(Protocol):
    """Steps at the end of a queue, and what is left of it."""

    async def delete_partition(self, ref: PartitionRef, incarnation: int) -> bool:
        """Delete a partition of a queue that is being deleted, whatever it holds; leave a tombstone for 7 days.

        False, and nothing changed, if it belongs to a later incarnation of the queue.
        """
        ...

    async def bury_queue(self, topology: Topology) -> bool:
        """Delete ``topology`` and every other key of the queue but its partitions; leave its grave for 8 days.

        False, and nothing changed, if another topology is stored by now.
        """
        ...

    async def unlist_queue(self, queue: str) -> None:
        """Take a queue without a topology off the list of all queues: whoever buried it may have died before."""
        ...

    async def read_grave(self, queue: str) -> Grave | None:
        """Return what is left of a deleted queue, None if there was none, or there is one again."""
        ...
