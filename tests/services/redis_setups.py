"""The ways to run Redis that tests share: each of them is started once, when it is first asked for."""

from __future__ import annotations

import contextlib
from functools import cached_property

from tests.cluster.guard import Guard
from tests.services.redis import Flavour, RedisServers, flavours
from tests.services.redis_access import Login
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_sentinel import SentinelServers

SETUPS = (*flavours(), "cluster", "sentinel")
"""One server of each kind that is installed; a Cluster of 3 masters and 3 replicas; a primary with a replica and three
Sentinels, where user and password have characters that a URL must escape."""


class RedisSetups:
    """Tests that stop, pause or reconfigure a server start one of their own instead."""

    def __init__(self, servers: RedisServers, guard: Guard) -> None:
        self._servers = servers
        self._guard = guard
        self._started = contextlib.ExitStack()

    def url(self, setup: str) -> str:
        """Return the URL of one of `SETUPS`."""
        if setup == "cluster":
            return self.cluster.url
        if setup == "sentinel":
            return self.sentinel.url
        flavour: Flavour = "redis" if setup == "redis" else "valkey"
        return self._servers.get(flavour).url

    @cached_property
    def cluster(self) -> RedisClusterServers:
        servers = RedisClusterServers("valkey", replicas=1, guard=self._guard)
        self._started.callback(servers.close)
        servers.start()
        return servers

    @cached_property
    def sentinel(self) -> SentinelServers:
        login = Login("work:er/1", "p@ss:w/o?r#d%&+ö")
        servers = SentinelServers(flavours()[0], login=login, guard=self._guard)
        self._started.callback(servers.close)
        servers.start()
        return servers

    def keys(self, setup: str, prefix: str) -> dict[str, int]:
        """Return the keys under a prefix, on whatever primary, with their time to live in ms (-1: for ever)."""
        primaries = {"cluster": lambda: self.cluster.masters, "sentinel": lambda: [self.sentinel.primary]}
        flavour: Flavour = "redis" if setup == "redis" else "valkey"
        found: dict[str, int] = {}
        for server in primaries.get(setup, lambda: [self._servers.get(flavour)])():
            with server.client() as client:
                for name in client.scan_iter(match=f"{{{prefix}*", count=1000):
                    found[name.decode()] = client.pttl(name)
        return found

    def close(self) -> None:
        """End what was started here. The single servers are their owner's."""
        self._started.close()
