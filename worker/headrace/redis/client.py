"""The connection to Redis: sends scripts, many at once where many callers wait, and translates errors.

Calls that are issued while another one is under way are sent together as one pipeline. Nothing is ever resent here
except a script that the server did not know (NOSCRIPT), which was not run: who may resend what is decided by the
callers, who know the nonce or token of the call.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from headrace.errors import HeadraceError, StoreUnavailable, UnsupportedServer
from headrace.redis.refusals import OLDEST, OLDEST_SERVER, translated
from headrace.redis.scripts import Script
from headrace.redis.urls import connect

PIPELINE_CALLS = 64
SILENCE_SECONDS = 30.0
"""A subscription looks up from its socket at least this often."""

Argument = bytes | str | int
Command = tuple[Argument, ...]
Call = tuple[Command, Script | None, asyncio.Future[Any]]
_FAILURES = (RedisError, OSError, TimeoutError)


class RedisClient:
    """Runs commands on one Redis server, or on the primary that Sentinels name. One event loop; `close` when done."""

    def __init__(self, url: str, *, call_timeout: float = 2.0, connect_timeout: float = 2.0) -> None:
        self._redis, self.server, self._sentinels = connect(
            url, call_timeout=call_timeout, connect_timeout=connect_timeout
        )
        self._waiting: deque[Call] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._closed = False
        self._tls = url.startswith("rediss")
        self._spoke = False

    async def close(self) -> None:
        """Close all connections. Calls under way, and all that follow, end with StoreUnavailable. Idempotent."""
        self._closed = True
        if self._sender is not None and not self._sender.done():
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        self._fail(self._waiting, self._closed_error())
        self._waiting.clear()
        for client in (self._redis, *self._sentinels):
            await client.aclose()

    async def check(self) -> None:
        """Prove that the server answers and is new enough; raise StoreUnavailable or UnsupportedServer."""
        self._check_open()
        try:
            info = await self._redis.info("server")
        except (RedisError, OSError) as error:
            raise self.translated(error) from error
        found = str(info.get("redis_version", "unknown"))
        numbers = re.match(r"(\d+)\.(\d+)", found)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_SERVER:
            raise UnsupportedServer(f"redis {self.server} has version {found}; Headrace needs {OLDEST} or newer")

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> asyncio.Future[Any]:
        """Run a script; await the result. Raises the errors of `headrace.errors`."""
        return self.send(("EVALSHA", script.sha, len(keys), *keys, *args), script)

    async def asking(self, *command: Argument) -> Any:
        """Run one command on a slot that this node is only importing."""
        self._check_open()
        try:
            _, reply = await self._round_trip([("ASKING",), command])
        except (RedisError, OSError, TimeoutError) as error:
            raise self.translated(error) from error
        if isinstance(reply, Exception):
            raise self.translated(reply) from reply
        return reply

    def command(self, *command: Argument) -> asyncio.Future[Any]:
        """Run one plain command; await the result."""
        return self.send(command, None)

    async def blocking(self, seconds: float, *command: Argument) -> Any:
        """Run a command that may block for ``seconds`` on a connection of its own."""
        self._check_open()
        connection = None
        pool = self._redis.connection_pool
        sent = False
        try:
            connection = await pool.get_connection()  # type: ignore[no-untyped-call]
            await connection.send_command(*command)
            sent = True
            if (task := asyncio.current_task()) is not None and task.cancelling():
                # The library sends within asyncio.wait_for, which before Python 3.12 may lose a cancellation.
                raise asyncio.CancelledError
            return await connection.read_response(timeout=seconds + 5.0)
        except _FAILURES as error:
            if connection is not None:
                await connection.disconnect(nowait=True)
            raise self.translated(error) from error
        except asyncio.CancelledError:
            # An unread reply must never meet the next command.
            if connection is not None and sent:
                await connection.disconnect(nowait=True)
            raise
        finally:
            if connection is not None:
                await pool.release(connection)

    async def messages(self, channel: bytes) -> AsyncGenerator[bytes, None]:
        """Subscribe to a channel, and yield what is published there, on a connection of its own.

        Raises StoreUnavailable when that connection ends: what is published meanwhile is lost.
        """
        self._check_open()
        pool = self._redis.connection_pool
        connection = None
        # Made to its end even if this is cancelled: nobody would close the socket of half a connection.
        making = asyncio.ensure_future(pool.get_connection())  # type: ignore[no-untyped-call]
        try:
            try:
                connection = await asyncio.shield(making)
            except asyncio.CancelledError:
                await asyncio.wait([making])
                connection = making.result() if making.exception() is None else None
                raise
            await connection.send_command("SUBSCRIBE", channel)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError  # see `blocking`
            while True:
                match await connection.read_response(timeout=SILENCE_SECONDS):
                    case [b"message", _, text]:
                        yield text
        except _FAILURES as error:
            raise self.translated(error) from error
        finally:
            if connection is not None:
                await connection.disconnect(nowait=True)
                await pool.release(connection)

    def translated(self, error: Exception) -> HeadraceError:
        """Return the typed error for one of the Redis library's; the text holds no credential."""
        return translated(error, self.server, tls=self._tls, spoke_before=self._spoke)

    # ---- one sender, many callers ---------------------------------------------------------------------------------

    def send(self, command: Command, script: Script | None) -> asyncio.Future[Any]:
        """Queue a command (``script``: the one that an EVALSHA names) for the next round trip; await the reply."""
        self._check_open()
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, script, reply))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return reply

    async def _send(self) -> None:
        while self._waiting:
            calls = [self._waiting.popleft() for _ in range(min(len(self._waiting), PIPELINE_CALLS))]
            try:
                replies = await self._answers(calls)
            except Exception as error:  # a defect, here or in the library: nobody may wait for an answer for ever
                self._fail(calls, error)
                continue
            except BaseException:
                self._fail((*calls, *self._waiting), self._closed_error())
                self._waiting.clear()
                raise
            for (_, _, reply), answer in zip(calls, replies, strict=True):
                if reply.done():  # its caller was cancelled
                    continue
                if isinstance(answer, Exception):
                    reply.set_exception(self.translated(answer))
                else:
                    reply.set_result(answer)

    def _fail(self, calls: Iterable[Call], error: Exception) -> None:
        for _, _, reply in calls:
            if not reply.done():
                reply.set_exception(error)

    def _check_open(self) -> None:
        # Or the library would connect again, and nobody would close that connection.
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> StoreUnavailable:
        return StoreUnavailable(f"redis {self.server}: the connection was closed")

    async def _answers(self, calls: Sequence[Call]) -> list[Any]:
        """Return the answer of each call, or its error. A script that cannot be loaded fails its own calls only."""
        try:
            replies = await self._round_trip([command for command, _, _ in calls])
        except _FAILURES as error:
            return [error] * len(calls)
        unknown = [n for n, answer in enumerate(replies) if isinstance(answer, NoScriptError)]
        if unknown:
            try:
                await self._load({script.name: script for n in unknown if (script := calls[n][1])})
                again = await self._round_trip([calls[n][0] for n in unknown])
            except _FAILURES as error:
                again = [error] * len(unknown)
            for n, answer in zip(unknown, again, strict=True):
                replies[n] = answer
        return replies

    async def _load(self, scripts: dict[str, Script]) -> None:
        for answer in await self._round_trip([("SCRIPT", "LOAD", script.source) for script in scripts.values()]):
            if isinstance(answer, Exception):
                raise answer

    async def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write on one connection; the replies, errors of single commands among them."""
        pool = self._redis.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        complete = False
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            replies: list[Any] = []
            for _ in commands:
                try:
                    replies.append(await connection.read_response())
                except ResponseError as error:
                    replies.append(error)
            complete = self._spoke = True
            return replies
        finally:
            if not complete:  # an unread reply must never meet the next command
                await connection.disconnect(nowait=True)
            await pool.release(connection)
