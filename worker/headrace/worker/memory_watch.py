"""Watches the memory of the store's servers, so that readiness turns red before they refuse new jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from headrace.errors import HeadraceError
from headrace.server_facts import MemoryUse
from headrace.stores.base import Store

log = logging.getLogger("headrace.worker")

EVERY_SECONDS = 10.0
RECOVERS = 0.05
"""It is well again when so much less is used than what turned it red, so that it does not flutter."""


class MemoryWatch:
    """Asks each server (of a Cluster each master) every 10 s: one small INFO. ``limit``: share of ``maxmemory``.

    Without an answer it stays as it was: that the store does not answer is told elsewhere.
    """

    def __init__(self, store: Store, limit: float, every: float = EVERY_SECONDS) -> None:
        self._store = store
        self._limit = limit
        self._every = every
        self.ratio: float | None = None
        """Used part of the limit, of the server that is fullest; None before the first answer and without a limit."""
        self.enough = True

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            with suppress(HeadraceError):
                self.note(await self._store.memory())
            await asyncio.sleep(self._every)

    def note(self, servers: Iterable[MemoryUse]) -> None:
        """Decide by what the servers have said."""
        limited = (server for server in servers if server.ratio is not None)
        fullest = max(limited, key=lambda server: server.ratio or 0, default=None)
        self.ratio = fullest.ratio if fullest else None
        bound = self._limit if self.enough else self._limit - RECOVERS
        enough = self.ratio is None or self.ratio < bound
        if enough != self.enough and fullest is not None:
            told = f"{fullest.address} uses {self.ratio:.0%} of its maxmemory"
            if enough:
                log.warning("%s: this worker is ready again", told)
            else:
                log.error(
                    "%s: this worker is not ready. It goes on working; at 100%% new jobs are refused. Add memory or "
                    "workers, purge what nobody needs (`headrace queue purge`), or limit the length of queues",
                    told,
                )
        self.enough = enough
