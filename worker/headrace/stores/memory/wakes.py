"""Which queues were woken, in memory, and who waits for that."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from threading import RLock

from headrace.stores.protocols.sleeping import Wakes


class WakeLog:
    """The last wakes, numbered from 1. Any number of listeners, in any event loop; each hears all of them."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._number = 0
        self._entries: deque[tuple[int, str]] = deque(maxlen=1000)
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def add(self, queue: str) -> None:
        """Say that a queue was woken. Call it under the lock."""
        self._number += 1
        self._entries.append((self._number, queue))
        waiting, self._waiting = self._waiting, []
        for loop, told in waiting:
            with contextlib.suppress(RuntimeError):  # its event loop was closed without ending the task
                loop.call_soon_threadsafe(_tell, told)

    def cursor(self) -> bytes:
        """Return the cursor of now."""
        with self._lock:
            return b"%d" % self._number

    async def wait(self, after: bytes, timeout: float) -> Wakes:
        """Return what was added since the cursor ``after``, at once or within ``timeout`` seconds of real time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while (told := self._listen(after)) is not None:
                    await told
        with self._lock:
            queues = dict.fromkeys(queue for number, queue in self._entries if number > int(after))
            return Wakes(b"%d" % self._number if queues else after, tuple(queues))

    def _listen(self, after: bytes) -> asyncio.Future[None] | None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._number > int(after):
                return None
            told: asyncio.Future[None] = loop.create_future()
            self._waiting = [each for each in self._waiting if not each[1].done()]
            self._waiting.append((loop, told))
            return told


def _tell(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
