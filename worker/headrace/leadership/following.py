"""A connection to the Redis of a queue that goes where the queue's store goes, when its URL changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from headrace.errors import StoreUnavailable
from headrace.redis.client import Argument, RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.redis.scripts import Script
from headrace.stores.redis.beside import BesideQueue


class FollowingClient:
    """Sends each call to where ``place`` says that the queue is now, in one event loop.

    ``call_timeout``: seconds. A connection that was left is closed at once: calls on it end with StoreUnavailable.
    """

    def __init__(self, place: Callable[[], BesideQueue], call_timeout: float) -> None:
        self._place = place
        self._timeout = call_timeout
        self._at = place()
        self._client: RedisClient | ClusterClient = self._at.connect(call_timeout)
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def server(self) -> str:
        """Name of the server, as it may be shown."""
        return self._client.server

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """Run a script, once. Raises the errors of `headrace.errors`."""
        return await self._now().run(script, keys, args)

    async def command(self, *command: Argument) -> Any:
        """Run a command, once. Raises the errors of `headrace.errors`."""
        return await self._now().command(*command)

    async def messages(self, channel: bytes) -> AsyncGenerator[bytes, None]:
        """Yield what is published in a channel, until the connection ends with StoreUnavailable."""
        async with aclosing(self._now().messages(channel)) as messages:
            async for message in messages:
                yield message

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        await asyncio.gather(self._client.close(), *self._closing, return_exceptions=True)

    def _now(self) -> RedisClient | ClusterClient:
        if self._closed:
            raise StoreUnavailable(f"redis {self._client.server}: the connection was closed")
        at = self._place()
        if at != self._at:
            old, self._at, self._client = self._client, at, at.connect(self._timeout)
            task = asyncio.get_running_loop().create_task(old.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return self._client
