"""Sends the calls of many callers together: what is asked for while a round trip is under way goes with the next.

Where two round trips may be under way at once, each on a connection of its own, the server finds work while the answer
of the first is taken in; what is asked for in one turn of the event loop goes together all the same.

Nothing is ever sent again here except a script that the server did not know (NOSCRIPT), which was not run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from redis.exceptions import NoScriptError, RedisError

from headrace.errors import DataDamaged, HeadraceError
from headrace.redis.scripts import Script

PIPELINE_CALLS = 64

FAILURES = (RedisError, OSError, TimeoutError)
"""What a round trip raises when there is no answer."""

Argument = bytes | str | int
Command = tuple[Argument, ...]
Call = tuple[Command, Script | None, asyncio.Future[Any]]
Replicas = tuple[int, int]
"""How many replicas must have what was written, and for how many ms that is waited for."""


class Confirmed(NamedTuple):
    """A reply, and how many replicas had its write when the wait for them was over.

    ``problem``: why none can be told, if the server refused to wait.
    """

    reply: Any
    replicas: int
    problem: HeadraceError | None = None


class Line(Protocol):
    """Where a pipeline sends to."""

    async def round_trip(self, commands: Sequence[Command], *, wait_ms: int = 0) -> list[Any]:
        """Send commands on one connection; the replies, errors of single commands among them.

        ``wait_ms``: how much longer than usual the last one may take.
        """
        ...

    def translated(self, error: Exception) -> HeadraceError:
        """Return the typed error for one of the library's."""
        ...

    async def named(self, command: Command, error: DataDamaged) -> DataDamaged:
        """Return the error with the name of the key over which the command has stumbled."""
        ...


class Pipeline:
    """One sender for many callers, or as many as there may be ``round_trips`` at once.

    ``confirm``: every round trip ends with a wait for replicas, and each call is answered with a `Confirmed`. On one
    connection, so that it is certain that the server that ran a call is the one that waited.
    """

    def __init__(self, line: Line, confirm: Replicas | None = None, *, round_trips: int = 1) -> None:
        self._line = line
        self._confirm = confirm
        self._round_trips = round_trips
        self._waiting: deque[Call] = deque()
        self._senders: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self._naming: set[asyncio.Task[None]] = set()

    def send(self, command: Command, script: Script | None) -> asyncio.Future[Any]:
        """Queue a command (``script``: the one that an EVALSHA names) for the next round trip; await the reply."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, script, reply))
        if self._starting is None or self._starting.done():
            self._senders = [sender for sender in self._senders if not sender.done()]
            if len(self._senders) < self._round_trips:
                self._starting = asyncio.create_task(self._send())
                self._senders.append(self._starting)
        return reply

    async def close(self, reason: HeadraceError) -> None:
        """End calls under way, and those that wait, with ``reason``."""
        tasks = [*self._senders, *self._naming]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _fail(self._waiting, reason)
        self._waiting.clear()

    async def _send(self) -> None:
        sender, self._starting = self._starting, None
        assert sender is not None  # noqa: S101 - it is this task
        try:
            await self._send_all()
        finally:
            # Now, not when the task is done: whoever calls in between must find that nobody sends.
            self._senders.remove(sender)

    async def _send_all(self) -> None:
        while self._waiting:
            calls = [self._waiting.popleft() for _ in range(min(len(self._waiting), PIPELINE_CALLS))]
            try:
                replies = await self._answers(calls)
            except Exception as error:  # a defect, here or in the library: nobody may wait for an answer for ever
                _fail(calls, error)
                continue
            except BaseException:
                self._waiting.extendleft(reversed(calls))  # whoever ends this says why
                raise
            for (command, _, reply), answer in zip(calls, replies, strict=True):
                if reply.done():  # its caller was cancelled
                    continue
                if isinstance(answer, Exception):
                    self._refuse(command, reply, self._line.translated(answer))
                else:
                    reply.set_result(answer)

    def _refuse(self, command: Command, reply: asyncio.Future[Any], error: HeadraceError) -> None:
        if isinstance(error, DataDamaged):  # which key it is takes another round trip
            task = asyncio.create_task(self._name(command, reply, error))
            self._naming.add(task)
            task.add_done_callback(self._naming.discard)
        else:
            reply.set_exception(error)

    async def _name(self, command: Command, reply: asyncio.Future[Any], error: DataDamaged) -> None:
        try:
            error = await self._line.named(command, error)
        finally:
            if not reply.done():
                reply.set_exception(error)

    async def _answers(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answer of each call, or its error. A script that cannot be loaded fails its own calls only."""
        try:
            replies = await self._together([command for command, _, _ in calls])
        except FAILURES as error:
            return [error] * len(calls)
        unknown = [n for n, answer in enumerate(replies) if isinstance(answer, NoScriptError)]
        if unknown:
            try:
                await self._load({script.name: script for n in unknown if (script := calls[n][1])})
                again = await self._together([calls[n][0] for n in unknown])
            except FAILURES as error:
                again = [error] * len(unknown)
            for n, answer in zip(unknown, again, strict=True):
                replies[n] = answer
        return replies

    async def _together(self, commands: Sequence[Command]) -> list[Any]:
        if self._confirm is None:
            return await self._line.round_trip(commands)
        number, within_ms = self._confirm
        *replies, reached = await self._line.round_trip([*commands, ("WAIT", number, within_ms)], wait_ms=within_ms)
        return [reply if isinstance(reply, Exception) else self._confirmed(reply, reached) for reply in replies]

    def _confirmed(self, reply: Any, reached: Any) -> Confirmed:
        if isinstance(reached, Exception):
            return Confirmed(reply, 0, self._line.translated(reached))
        return Confirmed(reply, int(reached))

    async def _load(self, scripts: dict[str, Script]) -> None:
        for answer in await self._line.round_trip([("SCRIPT", "LOAD", script.source) for script in scripts.values()]):
            if isinstance(answer, Exception):
                raise answer


def _fail(calls: Iterable[Call], error: Exception) -> None:
    for _, _, reply in calls:
        if not reply.done():
            reply.set_exception(error)
