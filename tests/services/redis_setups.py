"""The ways to run Redis that tests share: each of them is started once, when it is first asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any, cast

from headrace.redis.permissions import rule
from tests.cluster.guard import Guard
from tests.services.redis import Flavour, RedisServer, RedisServers, flavours, oldest
from tests.services.redis_access import Login
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_sentinel import SentinelServers

SETUPS = (*flavours(), "cluster", "sentinel")
"""One server of each kind that is installed; a Cluster of 3 masters and 3 replicas; a primary with a replica and three
Sentinels."""
SUPPORTED = (*SETUPS, *oldest())
"""These, and the oldest version that Headrace works with, for what is told of the store."""

APPLICATION = Login("app:li/cation", "p@ss:w/o?r#d%&+ö [1]")
"""May do what the documentation says that Headrace needs, with the prefixes of the tests, and nothing else. Its name
and password have whatever a URL must escape."""

PREFIXES = "t"
"""What the prefixes of all tests begin with."""


class RedisSetups:
    """Tests that stop, pause or reconfigure a server start one of their own instead."""

    def __init__(self, servers: RedisServers, guard: Guard) -> None:
        self._servers = servers
        self._guard = guard
        self._started = contextlib.ExitStack()

    def url(self, setup: str) -> str:
        """Return the URL of one of `SUPPORTED`, for the user `APPLICATION`."""
        if setup == "cluster":
            return self.cluster.url_of(APPLICATION)
        if setup == "sentinel":
            return self.sentinel.url_of(APPLICATION)
        return self._single(setup).url_of(APPLICATION)

    @cache  # noqa: B019 - one object for a whole run
    def _single(self, setup: str) -> RedisServer:
        server = self._servers.get(cast(Flavour, setup))
        _permit(server)
        return server

    @cached_property
    def cluster(self) -> RedisClusterServers:
        servers = RedisClusterServers("valkey", replicas=1, guard=self._guard)
        self._started.callback(servers.close)
        servers.start()
        _permit(*servers.servers)
        return servers

    @cached_property
    def sentinel(self) -> SentinelServers:
        servers = SentinelServers(flavours()[0], login=Login("", "of those who run it"), guard=self._guard)
        self._started.callback(servers.close)
        servers.start()
        _permit(servers.primary, servers.replica)
        return servers

    def node(self, setup: str) -> Callable[[str], Any]:
        """Return what makes a client of the server that has a key, for a user who may do everything."""
        if setup == "cluster":
            return self.cluster.node
        return lambda key: self._single(setup).client()

    def keys(self, setup: str, prefix: str) -> dict[str, int]:
        """Return the keys under a prefix, on whatever primary, with their time to live in ms (-1: for ever)."""
        found: dict[str, int] = {}
        for client in self.primaries(setup):
            for name in client.scan_iter(match=f"{{{prefix}*", count=1000):
                found[name.decode()] = client.pttl(name)
        return found

    def clear(self, setup: str, prefix: str) -> None:
        """Remove the keys under a prefix: a test that makes very many would slow all that look through the keys."""
        for client in self.primaries(setup):
            for name in list(client.scan_iter(match=f"{{{prefix}*", count=1000)):
                client.unlink(name)

    def primaries(self, setup: str) -> Iterator[Any]:
        """Yield a client of each server that takes writes, for a user who may do everything."""
        with self.connected(setup) as clients:
            yield from clients

    @contextlib.contextmanager
    def connected(self, setup: str) -> Iterator[list[Any]]:
        """Within it these clients stay connected."""
        primaries = {"cluster": lambda: self.cluster.masters, "sentinel": lambda: [self.sentinel.primary]}
        with contextlib.ExitStack() as stack:
            servers = primaries.get(setup, lambda: [self._single(setup)])()
            yield [stack.enter_context(server.client()) for server in servers]

    @contextlib.contextmanager
    def full(self, setup: str) -> Iterator[None]:
        """Let every primary refuse what may grow its data, as if its memory were full."""
        try:
            for client in self.primaries(setup):
                client.config_set("maxmemory", 1)  # less than is in use: only the order of commands lets a call pass
            yield
        finally:
            for client in self.primaries(setup):
                client.config_set("maxmemory", 0)

    def entries(self, setup: str, prefix: str, without: tuple[str, ...] = ()) -> int:
        """Return how many elements all keys under a prefix have, but for those whose names end so."""
        count = {b"hash": "HLEN", b"zset": "ZCARD", b"list": "LLEN", b"stream": "XLEN", b"set": "SCARD"}
        found = 0
        for client in self.primaries(setup):
            for name in client.scan_iter(match=f"{{{prefix}*", count=1000):
                if not name.decode().endswith(without):
                    kind = client.type(name)
                    found += client.execute_command(count[kind], name) if kind in count else 1
        return found

    def close(self) -> None:
        """End what was started here. The single servers are their owner's."""
        self._started.close()


def _permit(*servers: RedisServer) -> None:
    for server in servers:
        with server.client() as client:
            # As for one prefix, but whatever follows of it.
            rules = [word.replace("PREFIX", f"{PREFIXES}*") for word in rule("PREFIX")]
            words = ("on", f">{APPLICATION.password}", *rules)
            client.execute_command("ACL", "SETUSER", APPLICATION.user, "reset", *words)
