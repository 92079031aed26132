"""The connection to Redis: sends commands and scripts, and translates errors.

Calls that are issued while another one is under way are sent together, see `headrace.redis.pipeline`. Who may send
what again is decided by the callers, who know the nonce or token of the call.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from headrace.errors import DataDamaged, HeadraceError, StoreUnavailable, UnsupportedServer
from headrace.forks import check_process, this_process
from headrace.redis.damage import KindOf, named
from headrace.redis.info import facts as server_facts
from headrace.redis.info import memory as memory_use
from headrace.redis.info import parse as info_fields
from headrace.redis.packing import packed
from headrace.redis.pipeline import FAILURES, Argument, Command, Confirmed, Pipeline, Replicas
from headrace.redis.refusals import OLDEST, OLDEST_SERVER, NotConnected, translated
from headrace.redis.scripts import Script
from headrace.redis.urls import connect
from headrace.server_facts import MemoryUse, ServerFacts

SILENCE_SECONDS = 30.0
"""A subscription looks up from its socket at least this often."""
SCANNED_KEYS = 1000
"""Keys that one SCAN visits: about a millisecond."""

__all__ = ["Argument", "Command", "RedisClient"]


class RedisClient:
    """Runs commands on one Redis server, or on the primary that Sentinels name. One event loop; `close` when done."""

    def __init__(self, url: str, *, call_timeout: float = 2.0, connect_timeout: float = 2.0) -> None:
        self._redis, self.server, self._sentinels = connect(
            url, call_timeout=call_timeout, connect_timeout=connect_timeout
        )
        self._plain = Pipeline(self)
        self._overlapping = Pipeline(self, round_trips=2)
        self._confirming: dict[Replicas, Pipeline] = {}
        self._call_timeout = call_timeout
        self._closed = False
        self.kind_of: KindOf = lambda key: None
        """Kinds that keys should be, so that an error can name the one that is not."""
        self._tls = url.startswith("rediss")
        self._spoke = False
        self._process: int | None = None

    async def close(self) -> None:
        """Close all connections. Calls under way, and all that follow, end with StoreUnavailable. Idempotent."""
        self._closed = True
        for pipeline in (self._plain, self._overlapping, *self._confirming.values()):
            await pipeline.close(self._closed_error())
        for client in (self._redis, *self._sentinels):
            await client.aclose()

    async def check(self) -> None:
        """Prove that the server answers and is new enough; raise StoreUnavailable or UnsupportedServer."""
        self._check_open()
        found = info_fields(await self.command("INFO", "server")).get("redis_version", "unknown")
        numbers = re.match(r"(\d+)\.(\d+)", found)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_SERVER:
            raise UnsupportedServer(f"redis {self.server} has version {found}; Headrace needs {OLDEST} or newer")

    async def facts(self) -> list[ServerFacts]:
        """Ask the server about itself. Raises StoreUnavailable or AccessDenied."""
        info = info_fields(await self.command("INFO"))
        return [
            server_facts(
                info,
                address=self._shown(info),
                snapshots=await self._takes_snapshots(),
                behind_sentinels=bool(self._sentinels),
                latency_ms=await self._latency_ms(),
            )
        ]

    async def memory(self) -> list[MemoryUse]:
        """Ask the server how much memory it uses. Raises StoreUnavailable or AccessDenied."""
        return [memory_use(info_fields(await self.command("INFO", "memory")), self.server)]

    async def _takes_snapshots(self) -> bool | None:
        """Whether it saves snapshots by itself; None if it does not tell: few users may ask for that."""
        try:
            reply = await self.command("CONFIG", "GET", "save")
        except HeadraceError:
            return None
        return bool(reply[1]) if len(reply) == 2 else None

    async def _latency_ms(self) -> float:
        """Return the median time of a few calls."""
        times = []
        for _ in range(5):
            began = time.perf_counter()
            await self.command("PING")
            times.append((time.perf_counter() - began) * 1000)
        return sorted(times)[len(times) // 2]

    def _shown(self, info: Mapping[str, str]) -> str:
        """Return which server that is; behind Sentinels the primary's port tells more than their addresses."""
        return f"{self.server} (port {info.get('tcp_port', '?')})" if self._sentinels else self.server

    def run(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], confirm: Replicas | None = None
    ) -> asyncio.Future[Any]:
        """Run a script; await the result. Raises the errors of `headrace.errors`.

        ``confirm``: wait for so many replicas; the result is a `headrace.redis.pipeline.Confirmed` then.
        """
        return self.send(("EVALSHA", script.sha, len(keys), *keys, *args), script, confirm)

    async def barrier(self, script: Script, keys: Sequence[bytes], confirm: Replicas) -> bool:
        """Wait for replicas to have everything that was written here so far; whether they have. True without any.

        ``script`` writes to the key that it is given, without changing anything.
        """
        if info_fields(await self.command("INFO", "replication")).get("connected_slaves", "0") == "0":
            return True
        confirmed = await self.run(script, keys[:1], (), confirm)
        return bool(confirmed.reply) and confirmed.replicas >= confirm[0]

    async def asking(self, *command: Argument, confirm: Replicas | None = None) -> Any:
        """Run one command on a slot that this node is only importing."""
        self._check_open()
        waiting: list[Command] = [("WAIT", *confirm)] if confirm else []
        try:
            _, reply, *reached = await self.round_trip(
                [("ASKING",), command, *waiting], wait_ms=confirm[1] if confirm else 0
            )
        except FAILURES as error:
            raise self.translated(error) from error
        if isinstance(reply, Exception):
            raise self.translated(reply) from reply
        return Confirmed(reply, reached[0] if isinstance(reached[0], int) else 0) if confirm else reply

    def command(self, *command: Argument) -> asyncio.Future[Any]:
        """Run one plain command; await the result."""
        return self.send(command, None)

    async def scan(self, pattern: bytes) -> AsyncIterator[list[bytes]]:
        """Yield the names of all keys that match, page by page. It visits every key of the server."""
        cursor = b"0"
        while True:
            cursor, names = await self.command("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED_KEYS)
            yield names
            if cursor == b"0":
                return

    async def blocking(self, seconds: float, *command: Argument) -> Any:
        """Run a command that may block for ``seconds`` on a connection of its own."""
        self._check_open()
        connection = None
        pool = self._redis.connection_pool
        sent = False
        try:
            connection = await pool.get_connection()  # type: ignore[no-untyped-call]
            self._spoke = True  # as it was made: the library has introduced itself
            await connection.send_command(*command)
            sent = True
            if (task := asyncio.current_task()) is not None and task.cancelling():
                # The library sends within asyncio.wait_for, which before Python 3.12 may lose a cancellation.
                raise asyncio.CancelledError
            return await connection.read_response(timeout=seconds + 5.0)
        except FAILURES as error:
            if connection is not None:
                await connection.disconnect(nowait=True)
            told = self.translated(error)
            raise await self.named(command, told) if isinstance(told, DataDamaged) else told from error
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
        except FAILURES as error:
            raise self.translated(error) from error
        finally:
            if connection is not None:
                await connection.disconnect(nowait=True)
                await pool.release(connection)

    def translated(self, error: Exception) -> HeadraceError:
        """Return the typed error for one of the Redis library's; the text holds no credential."""
        return translated(error, self.server, tls=self._tls, spoke_before=self._spoke)

    async def named(self, command: Command, error: DataDamaged) -> DataDamaged:
        """See `headrace.redis.pipeline.Line`."""
        return await named(error, command, self.kind_of, lambda key: self.command("TYPE", key))

    def send(self, command: Command, script: Script | None, confirm: Replicas | None = None) -> asyncio.Future[Any]:
        """Queue a command (``script``: the one that an EVALSHA names) for the next round trip; await the reply."""
        self._check_open()
        if confirm is None:
            pipeline = self._overlapping if script is not None and script.overlaps else self._plain
            return pipeline.send(command, script)
        if confirm not in self._confirming:
            self._confirming[confirm] = Pipeline(self, confirm)
        return self._confirming[confirm].send(command, script)

    def _check_open(self) -> None:
        # Or the library would connect again, and nobody would close that connection.
        if self._closed:
            raise self._closed_error()
        # A connection that two processes read from gives each of them answers of the other.
        if self._process is None:
            self._process = this_process()
        check_process("connection to Redis", self._process)

    def _closed_error(self) -> StoreUnavailable:
        return StoreUnavailable(f"redis {self.server}: the connection was closed")

    async def round_trip(self, commands: Sequence[Command], *, wait_ms: int = 0) -> list[Any]:
        """See `headrace.redis.pipeline.Line`."""
        pool = self._redis.connection_pool
        try:
            connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        except FAILURES as error:
            raise NotConnected(error) from error
        complete = False
        try:
            await connection.send_packed_command(packed(connection, commands))
            replies: list[Any] = []
            for number in range(len(commands)):
                longer = (
                    {"timeout": self._call_timeout + wait_ms / 1000} if wait_ms and number + 1 == len(commands) else {}
                )
                try:
                    replies.append(await connection.read_response(**longer))
                except ResponseError as error:
                    replies.append(error)
            complete = self._spoke = True
            return replies
        finally:
            if not complete:  # an unread reply must never meet the next command
                await connection.disconnect(nowait=True)
            await pool.release(connection)
