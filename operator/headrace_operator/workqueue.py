"""A queue of keys with due times: each key is in it once, and is worked on by one worker at a time."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys that are waiting. One event loop. ``clock``: monotonic seconds.

    Adding a key that waits already keeps the earlier time. A key added while it is worked on waits until it is done.
    ``tick``: keys that are due in more than 20 times so many seconds come due at multiples of it, so that those who
    work on them at the same time share round trips; 0: each has a time of its own.
    """

    def __init__(self, clock: Callable[[], float], tick: float = 0.0) -> None:
        self._clock = clock
        self._tick = tick
        self._turn = asyncio.Lock()
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
        if delay > 20 * self._tick > 0:
            due = math.ceil(due / self._tick) * self._tick
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._push(key, due)

    async def take(self) -> Key:
        """Wait for a key whose time has come and that nobody works on. Call `done` with it afterwards."""
        async with self._turn:  # one of those who wait looks at the clock; the next one when that has a key
            while (wait := self._wait()) is None or wait > 0:
                self._changed.clear()
                try:
                    # Not wait_for: before Python 3.12 it may lose a cancellation.
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                except TimeoutError:
                    continue
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._busy.add(key)
            return key

    def _wait(self) -> float | None:
        """Return the seconds until the first key of the heap is due, which nobody works on; None: there is none."""
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due and key not in self._busy:
                return due - self._clock()
            heapq.heappop(self._heap)  # moved, or pushed again by `done`
        return None

    def done(self, key: Key) -> None:
        """Say that the work on ``key`` has ended."""
        self._busy.discard(key)
        if key in self._due:
            self._push(key, self._due[key])

    def _push(self, key: Key, due: float) -> None:
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, key))
        if self._heap[0][1] == self._number:
            self._changed.set()  # for any other one, nobody has to get up earlier
