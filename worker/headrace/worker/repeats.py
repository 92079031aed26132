"""Keeps the same news from filling the log: one line per subject and minute, for a bounded number of subjects."""

from __future__ import annotations

import time
from collections.abc import Callable

INTERVAL_SECONDS = 60.0
MAX_SUBJECTS = 100


class Repeats:
    """Says which news is worth a line: at most ``subjects`` different ones within ``interval`` seconds."""

    def __init__(
        self,
        interval: float = INTERVAL_SECONDS,
        subjects: int = MAX_SUBJECTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._subjects = subjects
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._told_at)

    def tells(self, subject: str) -> bool:
        """Whether to tell it now; if so, not again for an interval. False too if too many subjects were told."""
        now = self._clock()
        told_at = self._told_at.get(subject)
        if told_at is not None and now - told_at < self._interval:
            return False
        if told_at is None and len(self._told_at) >= self._subjects:
            self._told_at = {each: at for each, at in self._told_at.items() if now - at < self._interval}
            if len(self._told_at) >= self._subjects:
                return False
        self._told_at[subject] = now
        return True

    def over(self, subject: str) -> None:
        """Forget a subject: when it comes up again, it is news."""
        self._told_at.pop(subject, None)
