"""An elector in a thread of its own: jobs that block the application's event loop must not stop renewals."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from headrace.election.elector import DRAIN_SECONDS, HANDOVER_SECONDS, Elector
from headrace.election.fence import Token
from headrace.election.states import Status

log = logging.getLogger("headrace.election")


class ElectorThread:
    """Runs one elector beside an application.

    ``build``: makes the elector; called in the new thread for each `start`. Give the elector the application's loop as
    ``application``, on which its callbacks run then.
    """

    def __init__(self, build: Callable[[], Elector]) -> None:
        self._build = build
        self._elector: Elector | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to campaign; may be called again after `stop`. Raises RuntimeError if it runs."""
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the elector runs already; stop it first")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="elector", daemon=True)
        self._thread.start()

    def resign(self) -> None:
        """Begin to step down and end; returns at once."""
        self._stopping = True
        elector = self._elector
        if elector is not None:
            elector.stop()

    async def stop(self, timeout: float = DRAIN_SECONDS + HANDOVER_SECONDS + 2) -> bool:
        """Resign and wait for the end, without blocking the caller's loop. False: it goes on after ``timeout`` s."""
        self.resign()
        thread = self._thread
        if thread is None:
            return True
        # The callbacks of the application run meanwhile on the caller's loop.
        await asyncio.to_thread(thread.join, timeout)
        return not thread.is_alive()

    def is_leader(self) -> bool:
        """Return whether this process may act as leader now."""
        elector = self._elector
        return elector is not None and elector.is_leader()

    def token(self) -> Token | None:
        """Return what leader scripts show to the fence; None: this process does not lead."""
        elector = self._elector
        return elector.token() if elector is not None else None

    def fenced(self, token: Token, newer: int = 0) -> None:
        """Report that a leader script with ``token`` was refused; see `Elector.fenced`."""
        elector = self._elector
        if elector is not None:
            elector.fenced(token, newer)

    def healthy(self) -> bool:
        """Return whether the elector runs, or ended as asked, and no work of a leader is wedged."""
        elector = self._elector
        alive = self._thread is not None and self._thread.is_alive()
        return (alive or self._stopping) and (elector is None or elector.healthy())

    def status(self) -> Status | None:
        """Return where this process stands; None before the first start."""
        elector = self._elector
        return elector.status() if elector is not None else None

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        elector = self._elector = self._build()
        try:
            if self._stopping:
                elector.stop()
            await elector.run()
        except Exception:
            log.exception("the elector ended unexpectedly")
        finally:
            await elector.close()
