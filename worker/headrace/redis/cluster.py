"""The connection to a Redis Cluster: which node has which slot, and one `RedisClient` per node.

A node that does not have the slot (MOVED), has it only while it is on its way (ASK), or has a part of it (TRYAGAIN)
runs nothing, so these commands are sent again, where they belong. Whatever gave no answer is never resent here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlunsplit

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, NoScriptError, TryAgainError

from headrace.errors import HeadraceError, InvalidInput, StoreFull, StoreRefused, StoreUnavailable
from headrace.redis.client import RedisClient
from headrace.redis.damage import KindOf
from headrace.redis.options import read_options
from headrace.redis.pipeline import Argument, Command, Replicas
from headrace.redis.refusals import Redirected
from headrace.redis.scripts import Script
from headrace.redis.urls import CLUSTER_SCHEMES, Address, addresses, credentials, malformed, server_name, split
from headrace.server_facts import MemoryUse, ServerFacts

SLOTS = 16384
FOLLOW_SECONDS = 2.0
"""How long one call follows a slot that moves."""


class ClusterClient:
    """Runs commands on the nodes of a Redis Cluster. One event loop; `close` when done.

    ``url``: ``redis+cluster://[user:password@]host[:port][,host[:port]...]``, or ``rediss+cluster://`` for TLS, with
    any nodes of the cluster. Raises InvalidInput; the URL is never part of a message.
    """

    def __init__(self, url: str, *, call_timeout: float = 2.0, connect_timeout: float = 2.0) -> None:
        parts = split(url)
        if parts.scheme not in CLUSTER_SCHEMES:
            raise malformed()
        self._scheme = CLUSTER_SCHEMES[parts.scheme]
        self._login, _, hosts = parts.netloc.rpartition("@")
        credentials(self._login)
        self._seeds = addresses(hosts, 6379)
        if parts.path.strip("/") not in ("", "0"):
            raise InvalidInput("store URL", "names a database", "leave it out: a Redis Cluster has database 0 only")
        read_options(parts.query, tls=self._scheme == "rediss", sentinel=False, socket=False)
        self._query = parts.query
        self._timeouts = (call_timeout, connect_timeout)
        self.server = server_name(url)
        self._nodes: dict[Address, RedisClient] = {}
        self._slots: list[Address] = []
        self._refresh: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._closed = False
        self.kind_of: KindOf = lambda key: None
        """See `RedisClient`."""

    async def close(self) -> None:
        """Close all connections. Calls under way, and all that follow, end with StoreUnavailable. Idempotent."""
        self._closed = True
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.gather(self._refresh, return_exceptions=True)
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.close()

    async def check(self) -> None:
        """Prove that every master answers and is new enough; raise StoreUnavailable or UnsupportedServer."""
        await self._read_slots()
        for address in dict.fromkeys(self._slots):
            await self._node(address).check()

    async def facts(self) -> list[ServerFacts]:
        """Ask every master about itself. Raises StoreUnavailable or AccessDenied."""
        await self._read_slots()
        asked = (self._node(address).facts() for address in sorted(set(self._slots)))
        return [each for found in await asyncio.gather(*asked) for each in found]

    async def memory(self) -> list[MemoryUse]:
        """Ask every master how much memory it uses. Raises StoreUnavailable or AccessDenied."""
        await self._read_slots()
        asked = (self._node(address).memory() for address in sorted(set(self._slots)))
        return [each for found in await asyncio.gather(*asked) for each in found]

    async def run(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], confirm: Replicas | None = None
    ) -> Any:
        """Run a script on the node that has its keys; see `RedisClient.run`."""
        return await self._send(keys[0], ("EVALSHA", script.sha, len(keys), *keys, *args), script, confirm)

    async def barrier(self, script: Script, keys: Sequence[bytes], confirm: Replicas) -> bool:
        """See `RedisClient.barrier`: the same on each node that has any of the keys."""
        one_each = {await self._address(key): key for key in keys}
        barriers = (self._node(address).barrier(script, [key], confirm) for address, key in one_each.items())
        return all(await asyncio.gather(*barriers))

    async def command(self, *command: Argument) -> Any:
        """Run one plain command on the node that has its key, the first argument."""
        return await self._send(command[1], command, None)

    async def scan(self, pattern: bytes) -> AsyncIterator[list[bytes]]:
        """Yield the names of all keys that match, page by page, of every master."""
        await self._read_slots()
        for address in dict.fromkeys(self._slots):
            async for names in self._node(address).scan(pattern):
                yield names

    async def blocking(self, seconds: float, *command: Argument) -> Any:
        """Run a command that may block for ``seconds``, on a connection of its own."""
        # Every other command of ours begins with its key.
        key = command[command.index("STREAMS") + 1] if command[0] == "XREAD" else command[1]
        patience = _Patience(self.server)
        while True:
            node = self._node(await self._address(key))
            try:
                return await node.blocking(seconds, *command)
            except Redirected as redirected:
                self._follow(redirected)
                await patience.pause(redirected)
            except StoreFull:
                raise
            except StoreUnavailable:
                self._slots = []  # perhaps another node is the master now
                raise

    async def messages(self, channel: bytes) -> AsyncGenerator[bytes, None]:
        """Subscribe to a channel; see `RedisClient.messages`. The nodes pass on to each other what is published."""
        async with aclosing(self._node(await self._address(channel)).messages(channel)) as messages:
            async for text in messages:
                yield text

    # ---- routing --------------------------------------------------------------------------------------------------

    async def _send(
        self, key: Argument, command: Command, script: Script | None, confirm: Replicas | None = None
    ) -> Any:
        asking: Address | None = None
        patience = _Patience(self.server)
        while True:
            node = self._node(asking or await self._address(key))
            try:
                if asking is not None:
                    return await self._ask(node, command, script, confirm)
                return await node.send(command, script, confirm)
            except Redirected as redirected:
                asking = self._follow(redirected)
                await patience.pause(redirected)
            except StoreFull:
                raise
            except StoreUnavailable:
                self._slots = []  # perhaps another node is the master now
                raise

    async def _ask(self, node: RedisClient, command: Command, script: Script | None, confirm: Replicas | None) -> Any:
        try:
            return await node.asking(*command, confirm=confirm)
        except HeadraceError as error:
            if script is None or not isinstance(error.__cause__, NoScriptError):
                raise
        return await node.asking("EVAL", script.source, *command[2:], confirm=confirm)

    def _follow(self, redirected: Redirected) -> Address | None:
        """Take note of where a slot is; the address to ask once, if it is only on its way there."""
        error = redirected.error
        if isinstance(error, MovedError):  # before AskError, its base
            if self._slots:
                self._slots[error.slot_id] = (error.host, error.port)
            if not self._closed and (self._refresh is None or self._refresh.done()):
                self._refresh = asyncio.create_task(self._read_slots_quietly())
        elif isinstance(error, AskError):
            return error.host, error.port
        return None

    async def _address(self, key: Argument) -> Address:
        if not self._slots:
            async with self._reading:  # many calls may find them missing at once; one asks
                if not self._slots:
                    await self._read_slots()
        name = key if isinstance(key, bytes) else str(key).encode()
        return self._slots[key_slot(name)]

    def _node(self, address: Address) -> RedisClient:
        if self._closed:
            raise StoreUnavailable(f"redis cluster {self.server}: the connection was closed")
        node = self._nodes.get(address)
        if node is None:
            host, port = address
            netloc = f"{self._login}@" if self._login else ""
            netloc += f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            url = urlunsplit((self._scheme, netloc, "", self._query, ""))
            call_timeout, connect_timeout = self._timeouts
            node = RedisClient(url, call_timeout=call_timeout, connect_timeout=connect_timeout)
            node.kind_of = self.kind_of
            self._nodes[address] = node
        return node

    async def _read_slots(self) -> None:
        """Ask any node that answers which node has which slot. Raises the last error if none does."""
        problem: HeadraceError | None = None
        for address in dict.fromkeys([*self._nodes, *self._seeds]):
            try:
                ranges = await self._node(address).command("CLUSTER", "SLOTS")
            except HeadraceError as error:
                problem = error
                continue
            slots: list[Address | None] = [None] * SLOTS
            for first, last, master, *_ in ranges:
                host = (master[0] or b"").decode() or address[0]
                slots[first : last + 1] = [(host, master[1])] * (last - first + 1)
            covered = [each for each in slots if each is not None]
            if len(covered) == SLOTS:
                self._slots = covered
                return
            problem = StoreUnavailable(f"redis cluster {self.server}: {SLOTS - len(covered)} slots have no master now")
        raise problem or StoreUnavailable(f"redis cluster {self.server}: no node is known")

    async def _read_slots_quietly(self) -> None:
        try:
            await self._read_slots()
        except HeadraceError:
            self._slots = []  # the next call reads them, and reports


class _Patience:
    """How long one call follows its slot: what was redirected was not run.

    While a slot moves, a script whose keys are not all on one side - keys that do not exist count as missing on both -
    is told to try again (TRYAGAIN) until the move is over.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._until = time.monotonic() + FOLLOW_SECONDS
        self._times = 0

    async def pause(self, redirected: Redirected) -> None:
        """Wait before the next try; raise StoreRefused when it is over."""
        if time.monotonic() > self._until:
            raise StoreRefused(
                f"redis cluster {self._server}: a slot is on its way between two nodes for {FOLLOW_SECONDS:g} s now; "
                "nothing was run"
            )
        self._times += 1
        if isinstance(redirected.error, TryAgainError) or self._times > 4:
            await asyncio.sleep(min(0.1, 0.005 * 2**self._times) * random.uniform(0.5, 1.5))
