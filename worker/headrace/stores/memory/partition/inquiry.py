"""Looking for a job in one partition in memory."""

from __future__ import annotations

from headrace.stores.memory.partition.contents import Contents
from headrace.stores.protocols.inquiry import Described, Live


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
