"""Tells those who wait for a queue that it was woken."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headrace.stores.base import Store
from headrace_operator.scaling.wakes import listen


class Wakes:
    """Listens while `run` runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Event]] = {}

    @contextmanager
    def of(self, queue: str) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever the queue may have been woken."""
        woken = asyncio.Event()
        self._waiting.setdefault(queue, []).append(woken)
        try:
            yield woken
        finally:
            self._waiting[queue].remove(woken)

    async def run(self) -> None:
        """Listen until cancelled."""
        await listen(self._store, self._tell)

    def _tell(self, queues: Collection[str] | None) -> None:
        for queue in self._waiting if queues is None else queues:
            for woken in self._waiting.get(queue, ()):
                woken.set()
