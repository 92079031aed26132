"""Which worker is to make room for a job that must run alone. The same as ``lua/lib/room.lua``."""

from __future__ import annotations

from headrace.stores.bounds import ROOM_MS


class Room:
    """One worker at a time is asked to stop claiming until it runs nothing, so that the others go on."""

    def __init__(self) -> None:
        self._worker = ""
        self._till = 0

    def asked(self, worker: str, now: int, *, wants: bool) -> bool:
        """Whether ``worker`` is the one, while a job waits; it says again and again that it still makes room.

        Another one is asked when it no longer does. ``wants``: the worker wants jobs, so it may be asked.
        """
        if self._worker != worker and (not wants or (self._worker and self._till > now)):
            return False
        self._worker, self._till = worker, now + ROOM_MS
        return True

    def made(self, worker: str) -> None:
        """Take note that this worker need not make room any more."""
        if self._worker == worker:
            self._worker = ""
