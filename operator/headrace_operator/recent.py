"""The objects of each Queue as they were read last, until something says that they have changed.

So that looking at a thousand Queues twice a minute costs the API server nothing while nothing happens. What is kept may
be old all the same; before anything is changed, it is read again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from headrace_operator.api.names import QueueKey

T = TypeVar("T")
What = Literal["queue", "versions", "workers"]
KEPT_SECONDS = 300.0
"""Longest time, in case that nobody says so."""
_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A value, with the resourceVersions of the objects in it."""

    value: T
    versions: frozenset[str]
    until: float


class Packed:
    """An object of the API in little memory."""

    __slots__ = ("_data",)

    def __init__(self, body: dict[str, Any]) -> None:
        self._data = zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)

    def unpacked(self) -> dict[str, Any]:
        """Return it as a new dict."""
        body: dict[str, Any] = json.loads(zlib.decompress(self._data))
        return body


class Recent:
    """By Queue and kind of object. One event loop. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[QueueKey, dict[What, Kept[Any]]] = {}
        self._number = 0
        self._changed: dict[QueueKey, int] = {}
        self._forgotten = 0

    def get(self, key: QueueKey, what: What) -> Kept[Any] | None:
        """Return what is kept; None: read it."""
        kept = self._kept.get(key, {}).get(what)
        return kept if kept is not None and self._clock() < kept.until else None

    def queues(self) -> list[Any]:
        """Return every Queue that is kept, however old what is kept is."""
        return [kept["queue"].value for kept in self._kept.values() if "queue" in kept]

    def ticket(self) -> int:
        """Return what `put` wants of a moment before the value was asked for."""
        return self._number

    def put(self, key: QueueKey, what: What, ticket: int, value: Any, versions: Iterable[str]) -> None:
        """Keep a value that was asked for after ``ticket`` was taken, unless a change was told of since."""
        if ticket >= max(self._changed.get(key, 0), self._forgotten):
            until = self._clock() + KEPT_SECONDS
            self._kept.setdefault(key, {})[what] = Kept(value, frozenset(versions), until)

    def changed(self, key: QueueKey, what: What, version: str | None = None) -> bool:
        """Say that an object has now ``version`` (None: unknown, or it is gone).

        Returns whether something else was kept, which is forgotten.
        """
        kept = self._kept.get(key, {}).get(what)
        if kept is not None and version is not None and version in kept.versions:
            return False  # that is what was read
        self._note(key)
        if kept is not None:
            del self._kept[key][what]
        return kept is not None

    def forget(self, key: QueueKey) -> None:
        """Forget everything about a Queue: it is gone, or something of it was just written."""
        self._note(key)
        self._kept.pop(key, None)

    def _note(self, key: QueueKey) -> None:
        self._number += 1
        if len(self._changed) >= _REMEMBERED and key not in self._changed:
            # Those of Queues that are long gone are among them: begin anew, and mistrust what is being read now.
            self._changed.clear()
            self._forgotten = self._number
        self._changed[key] = self._number
