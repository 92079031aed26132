"""The place beside a queue in memory, for those who keep more there than the store does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BesideQueue:
    """Where fence and lock of a queue's leader lie: beside the queue, for everybody who has this store."""

    tag: str
    things: dict[str, Any] = field(repr=False)
    lock: RLock = field(repr=False)

    def shared(self, make: Callable[[], T]) -> T:
        """Return what the first caller made here; any thread."""
        with self.lock:
            if self.tag not in self.things:
                self.things[self.tag] = make()
            found: T = self.things[self.tag]
            return found
