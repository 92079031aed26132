"""Whether one partition in memory needs a worker."""

from __future__ import annotations

from headrace.stores.memory.partition.contents import Contents


class SleepingRules(Contents):
    """Steps of whoever starts workers."""

    def sleep(self, now: int, horizon_ms: int) -> bool:
        """Fall asleep if nothing needs a worker within ``horizon_ms``; whether it did."""
        due = self.next_waiting()
        held = self._limiter.limits.hold
        soon = due is not None and due <= now + horizon_ms
        if len(self._leases) or self._moving or self._adopted or (not held and (self.ready or soon)):
            return False
        self.asleep = True
        return True
