"""A primary with a replica under three Sentinels, real ones, on loopback."""

from __future__ import annotations

import time
from typing import Any

from tests.cluster.guard import Guard
from tests.services.redis import Flavour, RedisServer
from tests.services.redis_access import Login, Tls

NAME = "jobs"
READY_SECONDS = 90.0


class SentinelServers:
    """Use `start` and `close`. When the primary dies, the Sentinels promote the replica.

    ``login`` is asked for by primary and replica, ``sentinel_login`` by the Sentinels; ``tls`` by all of them.
    ``options`` are further command-line options of primary and replica.
    """

    def __init__(
        self,
        flavour: Flavour,
        *,
        login: Login | None = None,
        sentinel_login: Login | None = None,
        tls: Tls | None = None,
        options: tuple[str, ...] = (),
        guard: Guard | None = None,
    ) -> None:
        self._login, self._tls = login, tls
        self._sentinel_login = sentinel_login
        self.primary = RedisServer(flavour, guard=guard, login=login, tls=tls, options=options)
        following = ("--replicaof", "127.0.0.1", str(self.primary.port), "--repl-diskless-sync-delay", "0")
        self.replica = RedisServer(flavour, guard=guard, login=login, tls=tls, options=(*following, *options))
        self.sentinels = [
            RedisServer(flavour, guard=guard, sentinel=True, login=sentinel_login, tls=tls) for _ in range(3)
        ]

    @property
    def url(self) -> str:
        return self.url_of(self._login)

    def url_of(self, login: Login | None) -> str:
        """The URL with another login at primary and replica."""
        scheme = "rediss" if self._tls else "redis"
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.sentinels)
        query = [f"ssl_ca_certs={self._tls.authority}"] if self._tls else []
        if self._sentinel_login:
            name, _, password = self._sentinel_login.in_url.removesuffix("@").partition(":")
            query += [f"sentinel_username={name}"] * bool(name) + [f"sentinel_password={password}"]
        user = login.in_url if login else ""
        return f"{scheme}+sentinel://{user}{hosts}/{NAME}{'?' * bool(query)}{'&'.join(query)}"

    def start(self) -> None:
        """Start all servers and wait until the Sentinels know each other and the replica."""
        self.primary.start()
        self.replica.start()
        for sentinel in self.sentinels:
            sentinel.start()
            with sentinel.client() as client:
                client.execute_command("SENTINEL", "MONITOR", NAME, "127.0.0.1", self.primary.port, 2)
                for option, value in self._settings():
                    client.execute_command("SENTINEL", "SET", NAME, option, value)
        deadline = time.monotonic() + READY_SECONDS
        while not all(self._knows_all(sentinel) for sentinel in self.sentinels):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Sentinels did not find each other in {READY_SECONDS:g} s")
            time.sleep(0.05)

    def _settings(self) -> list[tuple[str, str]]:
        found = [("down-after-milliseconds", "500"), ("failover-timeout", "2000")]
        if self._login:
            found += [("auth-user", self._login.user)] if self._login.user else []
            found += [("auth-pass", self._login.password)]
        return found

    def replicate(self) -> None:
        """Wait until the replica has everything that the primary has. Raises RuntimeError if it does not follow."""
        with self.primary.client() as client:
            deadline = time.monotonic() + READY_SECONDS
            while not client.execute_command("WAIT", 1, 500):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the replica did not follow in {READY_SECONDS:g} s")

    def kill_primary(self) -> None:
        """End the primary at once, all it answered so far replicated; returns before the Sentinels have acted."""
        self.replicate()
        self.primary.kill()

    def switch_over(self) -> None:
        """Let the Sentinels make the replica the primary, and the primary its replica; wait until that is done."""
        with self.sentinels[0].client() as client:
            client.execute_command("SENTINEL", "FAILOVER", NAME)
        deadline = time.monotonic() + READY_SECONDS
        while self.primary.is_primary() or not self.replica.is_primary():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Sentinels did not switch over in {READY_SECONDS:g} s")
            time.sleep(0.02)

    def close(self) -> None:
        """End all servers and remove their folders."""
        for server in (*self.sentinels, self.replica, self.primary):
            server.close()

    def _knows_all(self, sentinel: RedisServer) -> bool:
        with sentinel.client() as client:
            state: Any = client.execute_command("SENTINEL", "MASTER", NAME)
        facts = dict(zip(state[::2], state[1::2], strict=True)) if isinstance(state, list) else state
        known = {_text(key): _text(value) for key, value in facts.items()}
        return known.get("num-other-sentinels") == "2" and known.get("num-slaves") == "1"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
