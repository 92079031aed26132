"""What the application is told when its process becomes, or is no longer, the leader of a queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


def nobody_leads() -> int | None:
    """Return no epoch: where no election takes place."""
    return None


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """One term of this process as leader of ``queue``.

    ``backend``: the lock that it was won with: ``lease``, ``mongo``, ``redis`` or ``memory``. ``epoch``: its first
    number; each leader has a higher one than those before it.
    """

    queue: str
    backend: str
    epoch: int
    current: Callable[[], int | None] = field(default=nobody_leads, repr=False, compare=False)

    def is_leader(self) -> bool:
        """Return whether this process leads now. It ends by itself, also before anybody has been told."""
        return self.current() is not None

    def leader_epoch(self) -> int | None:
        """Return the epoch to act under now, None: do not act.

        Another system that remembers the highest epoch it has seen, and refuses lower ones, is safe from a leader that
        was paused. It grows when the leader changes its lock meanwhile.
        """
        return self.current()
