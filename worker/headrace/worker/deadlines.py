"""One timer for the time-outs of all runs, set for the earliest of them.

Nothing is kept per job: the running ones are looked through when the timer fires, which is about once per time-out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from headrace.worker.leases import Execution

log = logging.getLogger("headrace.worker")

RESOLUTION = 0.005
_NEVER = float("inf")


class Deadlines:
    """Calls ``expired`` for each run whose ``check_at`` has passed; that must move ``check_at`` on."""

    def __init__(
        self,
        running: Iterable[Execution],
        expired: Callable[[Execution, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._running = running
        self._expired = expired
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.next = _NEVER
        """When the timer fires; a run with an earlier ``check_at`` needs `arm`."""

    def arm(self, at: float) -> None:
        """Set the timer for ``at`` on the clock."""
        self.close()
        self.next = at
        delay = max(RESOLUTION, at - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.next = _NEVER

    def _fire(self) -> None:
        self._timer = None
        self.next = _NEVER
        now = self._clock()
        for execution in [each for each in self._running if each.check_at <= now]:
            try:
                self._expired(execution, now)
            except BaseException:  # one run must not be the end of all others' time-outs
                log.exception("a time-out could not be taken in")
        earliest = min((each.check_at for each in self._running), default=_NEVER)
        if earliest < self.next:
            self.arm(earliest)
