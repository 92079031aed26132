"""Jobs of one partition in memory that wait for their time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Waiting:
    """Keys with the time (ms) at which they are due; iterated in no order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return iter(self._heap)

    def first(self) -> int | None:
        """Return the earliest time."""
        return self._heap[0][0] if self._heap else None

    def add(self, at: int, key: bytes) -> None:
        """Let a job wait until ``at``."""
        heapq.heappush(self._heap, (at, key))

    def take_first(self) -> tuple[int, bytes] | None:
        """Remove the key that is due first, whenever that is."""
        return heapq.heappop(self._heap) if self._heap else None

    def remove(self, key: bytes) -> None:
        """Take a key out, whatever its time."""
        self._heap = [each for each in self._heap if each[1] != key]
        heapq.heapify(self._heap)

    def take_due(self, now: int, limit: int) -> list[bytes]:
        """Remove at most ``limit`` keys that are due, earliest first."""
        keys: list[bytes] = []
        while self._heap and self._heap[0][0] <= now and len(keys) < limit:
            keys.append(heapq.heappop(self._heap)[1])
        return keys


def earliest(*times: int | None) -> int | None:
    """Return the earliest of the times that there are."""
    return min((at for at in times if at is not None), default=None)
