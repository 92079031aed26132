"""One worker's part in the leadership of one queue: it campaigns, works while it leads, and tells the application."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headrace.app import ElectedHook, ResignedHook
from headrace.election.elector import Elector
from headrace.election.fence import Token
from headrace.election.metrics import Metrics
from headrace.election.states import Reason, Status
from headrace.election.tenure import Term
from headrace.election.thread import ElectorThread
from headrace.election.timings import Timings
from headrace.leader_term import LeaderTerm
from headrace.leadership.hooks import call_hook
from headrace.leadership.locks import Place, open_locks
from headrace.leadership.settings import LeaderSettings

log = logging.getLogger("headrace.leadership")

Duties = Callable[[Callable[[], Token | None], Callable[[int, int], None]], Coroutine[Any, Any, None]]
"""The housekeeping of a leader, for one term; runs until it is cancelled.

Given what says which token to show now, and whom to tell of a step that was refused: its epoch, and the newer one.
"""


class _Resigned(Exception):
    """Ends the work of a term beside the one that failed."""


class Candidacy:
    """Campaigns to lead ``queue`` from `start` to `stop`, in a thread of its own. Construct it in the worker's loop.

    ``identity``: unique per process. ``duties``: what the leader does. Hooks run in the worker's loop, each once per
    term. ``is_leader``, ``leader_epoch``, ``token``, ``fenced`` and ``healthy`` may be called from any thread.
    """

    def __init__(
        self,
        queue: str,
        identity: str,
        place: Place,
        settings: LeaderSettings,
        timings: Timings,
        duties: Duties,
        elected: Sequence[ElectedHook],
        resigned: Sequence[ResignedHook],
        metrics: Metrics,
    ) -> None:
        self.queue = queue
        self.identity = identity
        self.timings = timings
        self._place = place
        self._settings = settings
        self._duties = duties
        self._elected = tuple(elected)
        self._resigned = tuple(resigned)
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._thread = ElectorThread(self._build)
        self._term: LeaderTerm | None = None

    def start(self) -> None:
        """Begin to campaign."""
        self._thread.start()

    def resign(self) -> None:
        """Begin to step down for good; returns at once."""
        self._thread.resign()

    async def stop(self) -> None:
        """Step down and wait until the leadership was handed over, 5 s at most."""
        if not await self._thread.stop():
            log.warning("queue %s: the election does not end; its lock runs out by itself", self.queue)

    def is_leader(self) -> bool:
        """Return whether this process leads now."""
        return self._thread.is_leader()

    def leader_epoch(self) -> int | None:
        """Return the epoch under which this process leads now, None if it does not."""
        token = self._thread.token()
        return None if token is None else token.epoch

    def token(self) -> Token | None:
        """Return what leader scripts show to the fence now, None: this process does not lead."""
        return self._thread.token()

    def fenced(self, epoch: int, newer: int) -> None:
        """Report that a step under ``epoch`` was refused, where the epoch ``newer`` rules."""
        token = self._thread.token()
        if token is not None and token.epoch == epoch:
            log.warning("queue %s: a partition obeys epoch %d, not %d: standing for election", self.queue, newer, epoch)
            self._thread.fenced(token, newer)

    def healthy(self) -> bool:
        """Return whether the election goes on and no work of a leader outlived its term."""
        return self._thread.healthy()

    def status(self) -> Status | None:
        """Return where this process stands; None before `start`."""
        return self._thread.status()

    # ---- callbacks of the elector, in the worker's loop -------------------------------------------------------------

    async def on_started(self, term: Term) -> None:
        """Run the application's hooks and the duties."""
        log.info("queue %s: this worker leads through %s (epoch %d)", self.queue, term.backend, term.epoch)
        told = self._term = LeaderTerm(self.queue, term.backend, term.epoch, self.leader_epoch)
        try:
            async with asyncio.TaskGroup() as work:
                for hook in self._elected:
                    work.create_task(self._or_resign(call_hook(hook, told), term))
                work.create_task(self._or_resign(self._keep_house(term), term))
        except* _Resigned:
            pass  # `on_started` returns, and the reason has been told

    async def _keep_house(self, term: Term) -> None:
        await self._duties(term.token, self.fenced)
        raise RuntimeError("the duties of the leader ended by themselves")

    async def _or_resign(self, work: Coroutine[Any, Any, None], term: Term) -> None:
        try:
            await work
        except Exception:
            log.exception("queue %s: the work of the leader failed; resigning", self.queue)
            term.resign()  # whatever else goes on still
            raise _Resigned from None

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        """Tell the application; the leadership is handed over afterwards."""
        log.info("queue %s: this worker leads no more (%s)", self.queue, reason)
        told, self._term = self._term, None
        if told is None:  # cancelled before it began: nobody has been told
            return
        for hook in self._resigned:
            try:
                await call_hook(hook, told, str(reason))
            except Exception:
                log.exception("queue %s: a function for the end of a term failed", self.queue)

    def on_new_leader(self, identity: str) -> None:
        """Log it."""
        log.debug("queue %s: %s leads", self.queue, identity)

    # ---- the elector's thread ---------------------------------------------------------------------------------------

    def _build(self) -> Elector:
        opened = open_locks(self._settings, self._place, self.queue, self.timings)
        return Elector(
            opened.locks,
            opened.fence,
            self,
            self.timings,
            identity=self.identity,
            application=self._loop,
            metrics=self._metrics,
            on_wedged=self._on_wedged,
        )

    def _on_wedged(self) -> None:
        if self._settings.leader_on_wedged == "exit":
            log.critical("queue %s: the work of the leader does not end; ending this process", self.queue)
            logging.shutdown()
            os._exit(1)
