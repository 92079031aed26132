"""The processes that run handlers: one per call at a time, kept for the next one, replaced when they are killed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from headrace.errors import InvalidInput, ProcessFailed
from headrace.handler import Handler
from headrace.location import Location, locate, resolve
from headrace.worker.processes.deaths import MemoryKills
from headrace.worker.processes.process import HandlerProcess

IDLE_SECONDS = 60.0
"""A process that had nothing to do for this long is ended, except the last one."""


class ProcessPool:
    """Processes for the handlers of an app that ask for one; as many as calls at a time, started when needed.

    ``numbers`` says by type which of the functions a call is for.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = [handler for handler in handlers.values() if handler.process]
        self._functions: list[tuple[Location, bool]] = []
        self.numbers = {handler.type: number for number, handler in enumerate(self._handlers)}
        self._level = logging.getLogger().getEffectiveLevel()
        self._memory_kills = MemoryKills()
        self._idle: list[HandlerProcess] = []
        self._busy: set[HandlerProcess] = set()
        self._trimming: asyncio.TimerHandle | None = None
        self._closings: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start the first process, which proves that it finds the handlers. Raises InvalidInput or ProcessFailed."""
        self._functions = [(_found(handler), handler.batch is not None) for handler in self._handlers]
        self._idle.append(await self._start())

    @property
    def has_idle(self) -> bool:
        """Whether `acquire` need not start one."""
        return any(process.alive for process in self._idle)

    async def acquire(self) -> HandlerProcess:
        """Return a process for one call. Raises ProcessFailed."""
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                break
            self._discard(process)
        else:
            process = await self._start()
        self._busy.add(process)
        return process

    async def _start(self) -> HandlerProcess:
        return await HandlerProcess.start(self._functions, self._level, self._memory_kills)

    def release(self, process: HandlerProcess) -> None:
        """Take a process back after its call, however that ended."""
        self._busy.discard(process)
        if not process.alive:
            self._discard(process)
            return
        process.idle_since = time.monotonic()
        self._idle.append(process)
        if self._trimming is None and len(self._idle) > 1:
            self._trimming = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._trim)

    def _trim(self) -> None:
        # The longest idle ones stand first.
        self._trimming = None
        now = time.monotonic()
        while len(self._idle) > 1 and self._idle[0].idle_since + IDLE_SECONDS <= now:
            self._discard(self._idle.pop(0))
        if len(self._idle) > 1:
            pause = self._idle[0].idle_since + IDLE_SECONDS - now
            self._trimming = asyncio.get_running_loop().call_later(max(0.0, pause), self._trim)

    def _discard(self, process: HandlerProcess) -> None:
        closing = asyncio.get_running_loop().create_task(process.close())
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        """End all processes; those that still run a call are killed."""
        if self._trimming is not None:
            self._trimming.cancel()
        while self._idle:
            self._discard(self._idle.pop())
        await asyncio.gather(*self._closings, *(process.kill() for process in list(self._busy)))


def _found(handler: Handler) -> Location:
    """Return where the function of a handler is, if its name leads to it here."""
    location = locate(repr(handler.type), handler.call)
    if not location.file and handler.call.__module__ != "__main__":
        try:
            found = resolve(location)
        except (ImportError, AttributeError) as error:
            raise ProcessFailed(f"cannot find {location.name} of module {location.module} ({error})") from None
        if found is not handler.call:
            raise InvalidInput(
                "handler",
                f"of {handler.type!r} is not what {location.module}.{location.name} is",
                "apply @app.handler as the outermost decorator, and give each function a name of its own",
            )
    return location
