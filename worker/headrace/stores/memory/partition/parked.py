"""Jobs of one partition in memory whose type no worker knows."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from itertools import chain


class Parked:
    """Type -> keys of the jobs that wait for it."""

    def __init__(self) -> None:
        self._types: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._types.values())

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._types[kind] for kind in sorted(self._types))

    def holds(self, key: bytes) -> bool:
        """Whether a job waits for its type."""
        return any(key in keys for keys in self._types.values())

    def remove(self, key: bytes) -> None:
        """Take a job out, whatever it waits for."""
        for kind, keys in list(self._types.items()):
            if key in keys:
                keys.remove(key)
                if not keys:
                    del self._types[kind]

    def add(self, kind: str, key: bytes) -> None:
        """Let a job wait for its type."""
        bisect.insort(self._types.setdefault(kind, []), key)

    def take(self, kind: str, limit: int) -> list[bytes]:
        """Remove at most ``limit`` jobs of a type, in the order of their keys."""
        parked = self._types.pop(kind, [])
        if left := parked[limit:]:
            self._types[kind] = left
        return parked[:limit]

    def of(self, kind: str) -> list[bytes]:
        """Return the keys of the jobs that wait for a type, in their order."""
        return list(self._types.get(kind, ()))

    def take_any(self) -> tuple[str, bytes] | None:
        """Remove the first job of the first type."""
        kind = min(self._types, default=None)
        return None if kind is None else (kind, self.take(kind, 1)[0])

    def sizes(self, types: int) -> dict[str, int]:
        """Return how many jobs wait for each type, for at most ``types`` of them."""
        return {kind: len(keys) for kind, keys in sorted(self._types.items())[:types]}
