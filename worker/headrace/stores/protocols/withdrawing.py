"""Taking jobs out of a queue that nobody wants any more: some by their ids, or all that match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

from headrace.errors import InvalidInput
from headrace.topology import PartitionRef

Withdrawn = Literal["", "scheduled", "ready", "retry", "parked", "leased", "running", "moving"]
"""Where a job was that is gone now; or "" it is not live here, "running" or "moving": it was left alone."""

Waiting = Literal["scheduled", "ready", "retry", "parked"]
Index = Literal["r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "park"]
INDEXES: Final[dict[Waiting, tuple[Index, ...]]] = {
    "scheduled": ("scheduled",),
    "ready": ("r0", "r1", "r2", "suspects", "alone"),
    "retry": ("retry",),
    "parked": ("park",),
}
"""Where jobs of each state wait."""
MAX_WITHDRAW: Final = 100
PURGE_WINDOW: Final = 250
"""Jobs that one step of a purge looks at."""


class Sought(NamedTuple):
    """Which jobs a purge is for. ``type``: None for any; ``created_before``: ms, of the server's clock."""

    created_before: int
    type: str | None = None


class Purged(NamedTuple):
    """What one step of a purge has seen: ``seen`` jobs, of which ``matching`` match. ``end``: there are no more."""

    seen: int
    matching: int
    end: bool


class WithdrawingSteps(Protocol):
    """Steps that remove live jobs without a trace."""

    async def withdraw(self, ref: PartitionRef, ids: Sequence[bytes], *, running: bool) -> list[Withdrawn]:
        """Remove live jobs by their stored ids (<= 100), wherever they wait; where each one was.

        ``running``: leased ones too. Their leases end with them: renewals and results of their workers are refused.
        Those that are set aside, on their way to another version, are left alone.
        """
        ...

    async def purge(
        self, ref: PartitionRef, index: Index, sought: Sought, passed: int, *, remove: bool = True
    ) -> Purged:
        """Look at the next 250 jobs of one index, from its end, and remove those that match.

        ``passed``: how many were seen and left there by the calls before; without ``remove``, all that were seen.
        """
        ...


def check_withdraw(ids: Sequence[bytes]) -> None:
    """Raise InvalidInput if one call is to remove more than MAX_WITHDRAW jobs."""
    if len(ids) > MAX_WITHDRAW:
        raise InvalidInput("ids", f"are {len(ids)}", f"name at most {MAX_WITHDRAW} in one call")
