"""The application's side of one term: its hooks, run on the application's event loop, each exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.election.fence import Token
from headrace.election.states import Reason

log = logging.getLogger("headrace.election")


@dataclass(frozen=True, slots=True)
class Term:
    """What a leader's work needs. ``epoch``: the first of the term; it grows when the backend changes meanwhile."""

    identity: str
    backend: str
    epoch: int
    current: Callable[[], Token | None]
    give_up: Callable[[], None] = lambda: None

    def resign(self) -> None:
        """End the term although some work of it goes on still; any thread may ask."""
        self.give_up()

    def token(self) -> Token | None:
        """Return what to show to the fence now; None: do not write. Ask before every script; any thread may."""
        return self.current()


class Callbacks(Protocol):
    """What the application does with leadership. Called on its own event loop."""

    async def on_started(self, term: Term) -> None:
        """Work as leader until cancelled. Whoever returns or raises resigns."""
        ...

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        """The work of `on_started` has ended; called once for each time that it began, and never otherwise.

        Others take over when it has returned.
        """
        ...

    def on_new_leader(self, identity: str) -> None:
        """Somebody leads now, maybe this process."""
        ...


class Tenure:
    """One term. `start`, `end` and `resign` may be called from any thread.

    ``finished`` is called on the application's loop when the work has ended, ``resigned`` when the work asks for the
    end.
    """

    def __init__(
        self,
        term: Callable[[Callable[[], None]], Term],
        callbacks: Callbacks,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[], None],
        resigned: Callable[[], None],
    ) -> None:
        self.term = term(self.resign)
        self.reason: Reason | None = None
        self.done = self.gave_up = False
        self._resigned = resigned
        self._callbacks = callbacks
        self._loop = loop
        self._finished = finished
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the work."""
        self._on_loop(self._begin)

    def end(self, reason: Reason) -> None:
        """Cancel the work, unless it has ended."""
        if self.reason is None:
            self.reason = reason
        self._on_loop(self._cancel)

    def resign(self) -> None:
        """Let the term end, as after work that failed."""
        if self.reason is None:
            self.reason = Reason.DUTY_RAISED
        self.gave_up = True
        self._resigned()

    def _on_loop(self, step: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:  # the loop is closed: the application has gone, and its tasks with it
            self.done = True
            self._finished()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._serve(), name="leader")
        self._task.add_done_callback(self._close)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        ended_by = Reason.DUTY_RAISED
        try:
            await self._callbacks.on_started(self.term)
            ended_by = Reason.DUTY_RETURNED
        except asyncio.CancelledError:
            ended_by = Reason.TERMINATED
        except Exception:
            log.exception("the work of the leader failed; resigning")
        if self.reason is None:
            self.reason = ended_by
        try:
            await self._callbacks.on_stopped(self.term, self.reason)
        except Exception:
            log.exception("the hook for the end of a term failed")

    def _close(self, task: asyncio.Task[None]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()
        self.done = True
        self._finished()
