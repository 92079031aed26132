"""Taking jobs out of one partition in memory that nobody wants any more."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.envelope import record_type
from headrace.stores.bounds import number_within
from headrace.stores.memory.partition.contents import TIMES
from headrace.stores.memory.partition.inquiry import InquiryRules
from headrace.stores.memory.partition.lanes import take_out
from headrace.stores.protocols.inquiry import Index
from headrace.stores.protocols.withdrawing import PURGE_WINDOW, SEARCH_WINDOW, Purged, Sought, Withdrawn


class WithdrawingRules(InquiryRules):
    """Steps that remove live jobs without a trace."""

    def withdraw(self, ids: Sequence[bytes], *, running: bool) -> list[Withdrawn]:
        """Remove live jobs by their stored ids; where each one was."""
        places = [self._withdraw(stored_id, running=running) for stored_id in ids]
        self._reopen(places.count("leased"))
        return places

    def _withdraw(self, stored_id: bytes, *, running: bool) -> Withdrawn:
        if (live := self.live(stored_id)) is None:
            return ""
        if stored_id in self._moving:
            return "moving"
        if live.state == "leased" and not running:
            return "running"
        for key in (lane + stored_id for lane in (b"0", b"1", b"2")):
            for index in self._indexes_of(key):
                self._unindex(index, key)
            if self._leases.of(key) is not None:
                self._leases.remove(key)
        self._forget(stored_id)
        return live.state

    def purge(self, index: Index, sought: Sought, passed: int, *, remove: bool) -> Purged:
        """Look at the next jobs of one index, from its end, and remove those that match."""
        keys = self._keys_of(index)
        end = max(0, len(keys) - passed)
        size = PURGE_WINDOW if sought.stored_id is None else SEARCH_WINDOW
        window = keys[max(0, end - size) : end]
        if window and sought.stored_id is None:
            fit = number_within([len(self._jobs[key[1:]]) for key in reversed(window)])
            window = window[-fit:]
        found = [key for key in window if self._matches(key, sought)]
        for key in reversed(found) if remove else ():
            self._unindex(index, key)
            self._forget(key[1:])
        return Purged(len(window), len(found), not window)

    def _matches(self, key: bytes, sought: Sought) -> bool:
        record = self._jobs[key[1:]]
        if sought.stored_id is not None:
            return key[1:] == sought.stored_id
        created, _ = TIMES.unpack_from(record)
        return created < sought.created_before and sought.type in (None, record_type(record))

    def _forget(self, stored_id: bytes) -> None:
        del self._jobs[stored_id]
        self._changes.pop(stored_id, None)

    def _indexes_of(self, key: bytes) -> list[Index]:
        names: tuple[Index, ...] = ("r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "park")
        return [name for name in names if key in self._keys_of(name)]

    def _unindex(self, index: Index, key: bytes) -> None:
        match index:
            case "scheduled":
                self._scheduled.remove(key)
            case "retry":
                self._retry.remove(key)
            case "park":
                self._parked.remove(key)
            case "suspects":
                take_out(self._suspects, key)
            case "alone":
                take_out(self._alone, key)
            case _:
                self._lanes.take_out(key)
