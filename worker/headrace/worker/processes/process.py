"""The worker's side of one process that runs handlers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.context import Context, log_fields
from headrace.errors import ProcessDied, ProcessFailed
from headrace.location import Location
from headrace.worker.processes import child, messages
from headrace.worker.processes.deaths import MemoryKills, death

log = logging.getLogger("headrace.worker")

START_SECONDS = 60.0
CLOSE_SECONDS = 1.0
EXIT_SECONDS = 5.0
LAST_WORDS_SECONDS = 0.2
"""How long after its end what a process has said may still be on its way."""
REAP_SECONDS = 0.5


class DiedIdle(Exception):
    """The process ended before it took the call."""


class HandlerProcess:
    """A process with the functions of the handlers imported; it runs one call at a time.

    It has a session of its own: signals of a terminal do not reach it, and it is killed with whatever it has started.
    """

    def __init__(
        self,
        memory_kills: MemoryKills,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._memory_kills = memory_kills
        self._process = process
        self._reader = reader
        self._writer = writer
        self.idle_since = time.monotonic()
        # Its end is noticed by itself: what it has forked may hold the connection open.
        self._exited = asyncio.create_task(process.wait())
        self._exited.add_done_callback(self._end)

    @classmethod
    async def start(
        cls, functions: Sequence[tuple[Location, bool]], level: int, memory_kills: MemoryKills
    ) -> HandlerProcess:
        """Start a process and wait until it has imported ``functions``, each with whether it takes batches.

        ``level``: of the logs that it sends. Raises ProcessFailed.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    child.COMMAND,
                    json.dumps(sys.path),
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError as error:
                writer.close()
                raise ProcessFailed(f"could not be started: {error}") from None
            except BaseException:
                writer.close()
                raise
        started = cls(memory_kills, process, reader, writer)
        try:
            await started._import(functions, level)
        except BaseException:
            await started.kill()
            raise
        return started

    async def _import(self, functions: Sequence[tuple[Location, bool]], level: int) -> None:
        self._writer.write(messages.frame("start", functions, level))
        try:
            async with asyncio.timeout(START_SECONDS):
                kind, *told = await self._told(None)
        except TimeoutError:
            raise ProcessFailed(f"did not start within {START_SECONDS:g} s") from None
        except (OSError, EOFError):
            raise ProcessFailed(f"did not start: it {(await self._death()).how}") from None
        if kind != "ready":
            raise ProcessFailed(f"could not import the handlers: {told[0]}")

    @property
    def alive(self) -> bool:
        """Whether it may take a call."""
        return self._process.returncode is None and not self._reader.at_eof()

    async def call(self, number: int, jobs: Sequence[Any], payloads: Sequence[Any] | None, ctx: Context) -> Any:
        """Run a function on its jobs, packed as `messages` says; cancelled, the process is killed.

        Raises what the function raised, ProcessDied, or DiedIdle, after which nothing of it has run.
        """
        began, runs = False, ctx.runs
        try:
            self._writer.write(messages.frame("call", number, jobs, ctx.deadline - time.monotonic(), payloads))
            await self._writer.drain()
            while True:
                kind, *told = await self._told(ctx)
                if kind == "ended":
                    break
                if kind == "progress":
                    number, value, note = told
                    runs[number].progress(value, note)
                began = True
        except (OSError, EOFError):
            ended = await self._death()
            if not began:
                raise DiedIdle from None
            log.warning("the process of the handler of %r %s", ctx.job.type, ended.how, extra=log_fields(ctx.job))
            raise ended from None
        except BaseException:  # above all a cancellation
            await self.kill()
            raise
        error, value = messages.read(told[0])
        if error is not None:
            raise error
        return value

    async def _told(self, ctx: Context | None) -> list[Any]:
        """Return the next frame that is not a log record; those are written."""
        while True:
            head = await self._reader.readexactly(messages.LENGTH.size)
            told = messages.opened(await self._reader.readexactly(messages.LENGTH.unpack(head)[0]))
            if told[0] != "log":
                return told
            record = logging.makeLogRecord((log_fields(ctx.job) if ctx else {}) | told[1])
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)

    async def _death(self) -> ProcessDied:
        """Wait for the end of a process that has closed its connection, and say how it ended."""
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                code = await asyncio.shield(self._exited)
        except TimeoutError:  # it has closed the connection itself
            code = await self.kill()
        return death(code, self._memory_kills.explain(code))

    async def kill(self) -> int:
        """Kill it with all that it has started, and wait until it is gone; returns how it ended."""
        self._end_group()
        self._writer.close()
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                return await asyncio.shield(self._exited)
        except TimeoutError:
            log.error("process %d of a handler does not end although it was killed", self._process.pid)
            return -signal.SIGKILL

    async def close(self) -> None:
        """Let it end by itself; it is killed if it does not within a second."""
        self._writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._exited)
        await self.kill()

    def _end(self, _: object) -> None:
        """Take note of its end: kill what it has started, and end a call that it still has."""
        self._end_group()
        loop = asyncio.get_running_loop()
        loop.call_later(LAST_WORDS_SECONDS, self._writer.close)
        loop.call_later(REAP_SECONDS, self._reap_group)

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _reap_group(self) -> None:
        """Wait for what it had started, which is left to this process where that is the first of its container."""
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass
