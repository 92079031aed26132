"""Jobs that have no further run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.stores.protocols.moving import Fence
from headrace.topology import PartitionRef


class DeadLetter(NamedTuple):
    """A job that has no further run, still packed. ``letter`` names this death of its id: stored id, ``@``, ms."""

    letter: bytes
    died_at: int
    record: bytes
    changes: bytes

    @property
    def stored_id(self) -> bytes:
        """The job's id in its stored form."""
        return self.letter.rpartition(b"@")[0]

    @property
    def order(self) -> tuple[int, bytes]:
        """Sort key: pages of dead letters are in this order."""
        return self.died_at, self.letter


class FoundDead(NamedTuple):
    """``letters``: by stored id; ``go_on``: with what to call again, None at the end."""

    letters: dict[bytes, DeadLetter]
    go_on: tuple[int, int] | None


class DeadLetterSteps(Protocol):
    """Steps on dead letters."""

    async def dead_letters(
        self, ref: PartitionRef, after: DeadLetter | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return at most ``limit`` (<= 1,000) dead letters, oldest first, beginning after one that was seen.

        An empty page is the end.
        """
        ...

    async def find_dead(
        self, ref: PartitionRef, ids: Sequence[bytes], *, since: int = 0, go_on: tuple[int, int] | None = None
    ) -> FoundDead:
        """Look for the newest dead letter of each stored id (<= 200), among those that died at ``since`` ms or later.

        Looks at at most 1,000 letters, newest first, and says where to go on.
        """
        ...

    async def adopt_dead(
        self, ref: PartitionRef, letters: Sequence[DeadLetter], incarnation: int = 1, *, fence: Fence | None = None
    ) -> bool:
        """Copy dead letters (<= 250) of an older version into an active partition; the same again changes nothing.

        False, and nothing changed, if it is not active, or of another incarnation of the queue. ``fence``: of the
        leader that does it, so that a former one brings back nothing that was put back or deleted meanwhile; raises
        Fenced.
        """
        ...

    async def remove_dead(self, ref: PartitionRef, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        ...
