"""Taking jobs out of a queue that nobody wants any more, on Redis."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.protocols.inquiry import Index
from headrace.stores.protocols.withdrawing import (
    PURGE_WINDOW,
    SEARCH_WINDOW,
    Purged,
    Sought,
    Withdrawn,
    check_waiting,
    check_withdraw,
)
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.inquiry import NUMBERS
from headrace.stores.redis.parts import one_part
from headrace.topology import PartitionRef


class RedisWithdrawing(RedisAccess):
    """Implements `headrace.stores.protocols.withdrawing.WithdrawingSteps`."""

    async def withdraw(self, ref: PartitionRef, ids: Sequence[bytes], *, running: bool) -> list[Withdrawn]:
        """Remove live jobs by their stored ids, wherever they wait; where each one was."""
        check_withdraw(ids)
        found: list[Withdrawn] = []
        while len(found) < len(ids):
            with one_part(begun=bool(found)):
                places, parked, ready = await self._run("withdraw", ref, ref.label, int(running), *ids[len(found) :])
            if self._hints is not None and not parked and b"parked" in places:
                with one_part(begun=True):
                    await self._hints.unparked(ref)
            await self._hint(ref, ready=ready)
            found += [place.decode() for place in places]
        return found

    async def purge(
        self, ref: PartitionRef, index: Index, sought: Sought, passed: int, *, remove: bool = True
    ) -> Purged:
        """Look at the next jobs of one index, from its end, and remove those that match."""
        check_waiting(index)
        of_any_type, kind = int(sought.type is None), sought.type or ""
        window = PURGE_WINDOW if sought.stored_id is None else SEARCH_WINDOW
        which = (NUMBERS[index], passed, window)
        asked = (*which, sought.created_before, of_any_type, kind, int(remove), sought.stored_id or b"")
        seen, matching, parked = await self._run("purge", ref, ref.label, *asked)
        if self._hints is not None and index == "park" and matching and not parked:
            with one_part(begun=True):
                await self._hints.unparked(ref)
        return Purged(seen, matching, seen == 0)
