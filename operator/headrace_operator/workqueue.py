"""A queue of keys with due times: each key is in it once, and is worked on by one worker at a time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys that are waiting. One event loop. ``clock``: monotonic seconds.

    Adding a key that waits already keeps the earlier time. A key added while it is worked on waits until it is done.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._number = 0
        self._busy: set[Key] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def due(self) -> int:
        """Number of keys whose time has come."""
        now = self._clock()
        return sum(due <= now for due in self._due.values())

    @property
    def lateness(self) -> float:
        """Seconds that the most overdue key has been waiting beyond its time; 0 if none is late."""
        waiting = [due for key, due in self._due.items() if key not in self._busy]
        return max(0.0, self._clock() - min(waiting)) if waiting else 0.0

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Work on ``key`` in ``delay`` seconds, or earlier if that was asked for before."""
        due = self._clock() + delay
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._push(key, due)
        self._changed.set()

    async def take(self) -> Key:
        """Wait for a key whose time has come and that nobody works on. Call `done` with it afterwards."""
        while True:
            self._changed.clear()
            wait: float | None = None
            while self._heap:
                due, _, key = self._heap[0]
                if self._due.get(key) != due or key in self._busy:
                    heapq.heappop(self._heap)  # moved, or pushed again by `done`
                    continue
                if (wait := due - self._clock()) > 0:
                    break
                heapq.heappop(self._heap)
                del self._due[key]
                self._busy.add(key)
                if self._heap:
                    self._changed.set()  # let another worker look at the rest
                return key
            try:
                # Not wait_for: before Python 3.12 it may lose a cancellation.
                async with asyncio.timeout(wait if self._heap else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """Say that the work on ``key`` has ended."""
        self._busy.discard(key)
        if key in self._due:
            self._push(key, self._due[key])
            self._changed.set()

    def _push(self, key: Key, due: float) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, key))
