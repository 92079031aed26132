"""Moving waiting jobs from a draining version to the active one, by a leader; and what keeps two leaders apart.

A job that moves is *set aside* in its partition, inserted in its new one (*adopted*), and then let go. Wherever that
stops, the next round goes on. The sequence is `headrace.migration`; why each step is as it is says
``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from headrace.stores.bounds import MAX_ASIDE
from headrace.topology import PartitionRef

Place = Literal["ready", "suspect", "alone", "scheduled", "retry", "parked"]


class Fence(NamedTuple):
    """Names a leader: the ``epoch`` of its fence, the ``nonce`` of its term, and the ``incarnation`` of the queue.

    A partition obeys the leader with the highest epoch that it has seen; of two with one epoch (after a failover that
    forgot one) the first that came; and none of another queue of this name. Steps of others raise
    `headrace.errors.Fenced` and change nothing.
    """

    epoch: int
    nonce: str
    incarnation: int = 1


class Aside(NamedTuple):
    """A job set aside. ``to``: version it moves to; ``place``: where it waited, until ``at`` (ms) or for ``type``."""

    key: bytes
    to: int
    place: Place
    at: int
    type: str
    record: bytes
    changes: bytes

    @property
    def stored_id(self) -> bytes:
        """The job's id in its stored form."""
        return self.key[1:]


class MovingSteps(Protocol):
    """Steps of a leader; ``ids`` are stored ids. A partition that does not exist has no fence and changes nothing."""

    async def fence(self, ref: PartitionRef, fence: Fence) -> None:
        """Let the partition obey this leader from now on, and hint at it if it has ready jobs. Raises Fenced."""
        ...

    async def set_aside(self, ref: PartitionRef, fence: Fence, to: int, limit: int) -> list[Aside]:
        """Set waiting jobs of a draining partition aside, to move to version ``to``, until ``limit`` (<= 100) are.

        Returns all that are aside: those from before keep their version. Leased jobs stay. Raises Fenced.
        """
        ...

    async def adopt(
        self, ref: PartitionRef, partitions: int, fence: Fence, source: PartitionRef, jobs: Sequence[Aside]
    ) -> list[bool]:
        """Insert jobs that are set aside in ``source``, unless they have been; whether each one is or was here.

        Refused unless the partition is active and its version has ``partitions`` partitions. Raises Fenced.
        """
        ...

    async def bury_waiting(
        self, ref: PartitionRef, reason: str, limit: int = MAX_ASIDE, *, fence: Fence | None = None
    ) -> int:
        """Make at most ``limit`` (<= 100) waiting jobs of a draining partition dead letters; the number of them.

        It costs them no attempt. ``fence``: of the leader that does it, None where no leader does; raises Fenced.
        """
        ...

    async def retarget(self, ref: PartitionRef, fence: Fence, ids: Sequence[bytes], to: int) -> None:
        """Let jobs set aside move to version ``to``, if it is above the one they were to move to. Raises Fenced."""
        ...

    async def let_go(self, ref: PartitionRef, fence: Fence, ids: Sequence[bytes]) -> None:
        """Delete jobs set aside, which have been adopted elsewhere. Raises Fenced."""
        ...

    async def forget_arrived(self, ref: PartitionRef, fence: Fence, source: PartitionRef, ids: Sequence[bytes]) -> None:
        """Forget that jobs were adopted from ``source``, which has let them go. Raises Fenced."""
        ...

    async def arrivals(self, ref: PartitionRef, limit: int = 100) -> list[tuple[bytes, PartitionRef]]:
        """Return at most ``limit`` (<= 1,000) stored ids that were adopted here and where from, in no order."""
        ...

    async def still_aside(self, ref: PartitionRef, ids: Sequence[bytes]) -> list[bool]:
        """Return whether each stored id is set aside here."""
        ...
