"""Makes the dependencies of an app before a worker takes jobs, and closes them after its last handler has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from headrace.dependencies import Dependency
from headrace.errors import DependencyFailed
from headrace.worker.outcomes import error_text

log = logging.getLogger("headrace.worker")

CLOSE_SECONDS = 2.0
"""How long closing may take where nobody says otherwise."""
CANCEL_SECONDS = 0.5


class Lifespans:
    """The dependencies of one worker.

    All are opened and closed in one task of their own: a task group, for one, must be left in the task that entered it.
    """

    def __init__(self, dependencies: Mapping[str, Dependency]) -> None:
        self._dependencies = dependencies
        self._opened: list[tuple[str, AbstractAsyncContextManager[Any]]] = []
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._at_work = ""
        self.values: dict[str, Any] = {}
        """By name, once `open` has returned."""

    async def open(self) -> None:
        """Make all of them in order. Raises DependencyFailed.

        Those made so far are closed then, and if it is cancelled.
        """
        if not self._dependencies:
            return
        self._task = asyncio.create_task(self._live())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await self.close(CLOSE_SECONDS)
            raise
        finally:
            ready.cancel()
        if self._task.done():
            self._task.result()

    async def close(self, timeout: float) -> None:
        """Close all in reverse order; one that is not closed after ``timeout`` seconds is cancelled, and logged."""
        if self._task is None:
            return
        self._over.set()
        await asyncio.wait([self._task], timeout=timeout)
        if not self._task.done():
            log.error("dependency %r was not closed within %.3g s and is given up", self._at_work, timeout)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_SECONDS)

    async def _live(self) -> None:
        try:
            for dependency in self._dependencies.values():
                await self._open(dependency)
            self._ready.set()
            await self._over.wait()
        finally:
            while self._opened:
                self._at_work, entered = self._opened.pop()
                try:
                    await entered.__aexit__(None, None, None)
                except asyncio.CancelledError:
                    continue  # the others are closed all the same
                except Exception:
                    log.exception("closing dependency %r failed", self._at_work)

    async def _open(self, dependency: Dependency) -> None:
        self._at_work = dependency.name
        try:
            others = {parameter: self.values[name] for parameter, name in dependency.injected.items()}
            entered = dependency.open(**others)
            self.values[dependency.name] = await entered.__aenter__()
        except (Exception, SystemExit) as error:
            raise DependencyFailed(dependency.name, error_text(error)) from error
        self._opened.append((dependency.name, entered))
