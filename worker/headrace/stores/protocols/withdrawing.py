"""Taking jobs out of a queue that nobody wants any more: some by their ids, or all that match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

from headrace.errors import InvalidInput
from headrace.stores.protocols.inquiry import Index
from headrace.topology import PartitionRef

Withdrawn = Literal["", "scheduled", "ready", "retry", "parked", "leased", "running", "moving", "deep"]
"""Where a job was that is gone now; or "" it is not live here, "running", "moving" or "deep": it was left alone.

deep: it is ready, in the middle of a list too long to be searched in one step.
"""

Waiting = Literal["scheduled", "ready", "retry", "parked"]
MAX_WITHDRAW: Final = 100
PURGE_WINDOW: Final = 100
"""Jobs that one step of a purge looks at."""
SEARCH_WINDOW: Final = 2000
"""Entries that one step looks at for one job."""


class Sought(NamedTuple):
    """Which jobs a purge is for: enqueued before a time (ms, of the server's clock), of a type or of any.

    ``stored_id``: this one only, whatever the others say.
    """

    created_before: int = 0
    type: str | None = None
    stored_id: bytes | None = None


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
        Those that are set aside, on their way to another version, are left alone, and so are ready ones far from both
        ends of their list: `purge` finds those in several steps.
        """
        ...

    async def purge(
        self, ref: PartitionRef, index: Index, sought: Sought, passed: int, *, remove: bool = True
    ) -> Purged:
        """Look at the next 100 jobs of one index (2,000 for a single one), from its end; remove those that match.

        At fewer, if their records are larger than 256 KiB together: at one in any case. ``passed``: how many were seen
        and left there by the calls before; without ``remove``, all that were seen.
        """
        ...


def check_withdraw(ids: Sequence[bytes]) -> None:
    """Raise InvalidInput if one call is to remove more than MAX_WITHDRAW jobs."""
    if len(ids) > MAX_WITHDRAW:
        raise InvalidInput("ids", f"are {len(ids)}", f"name at most {MAX_WITHDRAW} in one call")


def check_waiting(index: Index) -> None:
    """Raise InvalidInput for jobs that run, which are not purged."""
    if index == "leased":
        raise InvalidInput("index", "is leased", "purge jobs that wait, and cancel those that run")
