"""What was wanted and done lately: workers are not given up for a moment's lull."""

from __future__ import annotations

from dataclasses import dataclass, replace

WINDOW_MS = 60_000
"""Workers are given up only when none were wanted for so long."""
GAP_MS = 30_000
"""What may have been wanted in a longer time without a look, nobody knows."""


@dataclass(frozen=True, slots=True)
class History:
    """All times in ms of the server.

    ``wanted``: times and numbers of workers wanted within the window, largest first; those that a later one exceeds are
    left out. ``active_ms``: when there was last something to do; of a queue that was never looked at: its first look.
    ``stepped_down_ms``: when workers were last given up. ``watched_ms``, ``looked_ms``: since when it has been looked
    at without a gap, and when last.
    """

    wanted: tuple[tuple[int, int], ...] = ()
    active_ms: int | None = None
    stepped_down_ms: int | None = None
    watched_ms: int | None = None
    looked_ms: int | None = None

    def watched(self, now_ms: int) -> float:
        """Return for how many seconds the queue has been looked at without a gap, be it by several operators."""
        if self.watched_ms is None or self.looked_ms is None or now_ms - self.looked_ms > GAP_MS:
            return 0.0
        return max(0, now_ms - self.watched_ms) / 1000

    def peak(self, now_ms: int) -> int:
        """Return the largest number that was wanted within the window."""
        return max((count for at, count in self.wanted if now_ms - WINDOW_MS < at <= now_ms), default=0)

    def idle(self, now_ms: int) -> float:
        """Return for how many seconds there has been nothing to do; 0 if that is not known."""
        return 0.0 if self.active_ms is None else max(0, now_ms - self.active_ms) / 1000

    def since_step_down(self, now_ms: int) -> float:
        """Return the seconds since workers were last given up."""
        return float("inf") if self.stepped_down_ms is None else max(0, now_ms - self.stepped_down_ms) / 1000

    def noted(self, now_ms: int, *, wanted: int, active: bool, stepped_down: bool) -> History:
        """Return the history after a look at ``now_ms``."""
        kept = [(at, count) for at, count in self.wanted if now_ms - WINDOW_MS < at <= now_ms and count > wanted]
        # A server that was replaced by one whose clock is behind must not make the past last.
        past = None if self.active_ms is None else min(self.active_ms, now_ms)
        return replace(
            self,
            wanted=(*kept, (now_ms, wanted)),
            active_ms=now_ms if active or past is None else past,
            stepped_down_ms=now_ms if stepped_down else self.stepped_down_ms,
            watched_ms=now_ms - round(self.watched(now_ms) * 1000),
            looked_ms=now_ms,
        )
