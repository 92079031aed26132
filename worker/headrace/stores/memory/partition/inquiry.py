"""Looking for a job in one partition in memory."""

from __future__ import annotations

from headrace.stores.bounds import number_within
from headrace.stores.memory.partition.contents import Contents
from headrace.stores.protocols.inquiry import MAX_BROWSE, MAX_BROWSE_BYTES, Described, Entry, Index, Live


class InquiryRules(Contents):
    """Steps that look for a job by its id."""

    def live(self, stored_id: bytes) -> Live | None:
        """Say where a job is; None if it is not live."""
        if stored_id not in self._jobs:
            return None
        if (move := self._moving.get(stored_id)) is not None:
            if move.place in ("scheduled", "retry"):
                return Live(move.place, move.at, "")
            return Live("parked" if move.place == "parked" else "ready", None, "")
        keys = {lane + stored_id for lane in (b"0", b"1", b"2")}
        for key in keys:
            if (lease := self._leases.of(key)) is not None:
                return Live("leased", lease.until, lease.token.decode(errors="replace").rpartition(":")[0])
        for at, key in self._scheduled:
            if key in keys:
                return Live("scheduled", at, "")
        for at, key in self._retry:
            if key in keys:
                return Live("retry", at, "")
        return Live("parked" if any(self._parked.holds(key) for key in keys) else "ready", None, "")

    def describe(self, stored_id: bytes) -> Described | None:
        """Return a live job with all that is known of it."""
        if (live := self.live(stored_id)) is None:
            return None
        changes = self._changes.get(stored_id)
        return Described(live, self._jobs[stored_id], changes.packed() if changes else b"")

    def browse(self, index: Index, skip: int) -> list[Entry]:
        """Return the next jobs of one index, in its order."""
        page = [self._entry(index, key) for key in self._keys_of(index)[skip : skip + MAX_BROWSE]]
        return page[: number_within([len(each.record) + len(each.changes) for each in page], MAX_BROWSE_BYTES)]

    def _entry(self, index: Index, key: bytes) -> Entry:
        lease = self._leases.of(key)
        waiting = {"scheduled": self._scheduled, "retry": self._retry}.get(index, ())
        at = lease.until if lease else next((when for when, each in waiting if each == key), None)
        worker = lease.token.decode(errors="replace").rpartition(":")[0] if lease else ""
        changes = self._changes.get(key[1:])
        return Entry(key[1:], at, self._jobs[key[1:]], changes.packed() if changes else b"", worker)

    def _keys_of(self, index: Index) -> list[bytes]:
        match index:
            case "scheduled":
                return [key for _, key in sorted(self._scheduled)]
            case "retry":
                return [key for _, key in sorted(self._retry)]
            case "leased":
                return sorted(self._leases, key=lambda key: (self._until(key), key))
            case "park":
                return list(self._parked)
            case "suspects":
                return list(self._suspects)
            case "alone":
                return list(self._alone)
            case _:
                return [key for key in self._lanes if key[:1] == index[1:].encode()]

    def _until(self, key: bytes) -> int:
        lease = self._leases.of(key)
        return lease.until if lease else 0
