"""A primary with a replica under three Sentinels, real ones, on loopback."""

from __future__ import annotations

import time
from typing import Any

import redis

from tests.cluster.guard import Guard
from tests.services.redis import Flavour, RedisServer

NAME = "jobs"
READY_SECONDS = 30.0


class SentinelServers:
    """Use `start` and `close`; `kill_primary` makes the Sentinels promote the replica."""

    def __init__(self, flavour: Flavour, *, password: str, guard: Guard | None = None) -> None:
        self._flavour: Flavour = flavour
        self._guard = guard
        self._password = password
        login = ("--requirepass", password, "--masterauth", password)
        self.primary = RedisServer(flavour, guard=guard, options=login)
        following = ("--replicaof", "127.0.0.1", str(self.primary.port))
        self.replica = RedisServer(
            flavour, guard=guard, options=(*login, *following, "--repl-diskless-sync-delay", "0")
        )
        self.sentinels: list[RedisServer] = []

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.sentinels)
        return f"redis+sentinel://:{self._password}@{hosts}/{NAME}"

    def start(self) -> None:
        """Start all servers and wait until the Sentinels know each other and the replica."""
        self.primary.start()
        self.replica.start()
        for _ in range(3):
            sentinel = RedisServer(self._flavour, guard=self._guard, sentinel=True)
            sentinel.start()
            self.sentinels.append(sentinel)
            client = self._client(sentinel)
            client.execute_command("SENTINEL", "MONITOR", NAME, "127.0.0.1", self.primary.port, 2)
            for option, value in (
                ("auth-pass", self._password),
                ("down-after-milliseconds", "500"),
                ("failover-timeout", "2000"),
            ):
                client.execute_command("SENTINEL", "SET", NAME, option, value)
            client.close()
        deadline = time.monotonic() + READY_SECONDS
        while not all(self._knows_all(sentinel) for sentinel in self.sentinels):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Sentinels did not find each other in {READY_SECONDS:g} s")
            time.sleep(0.05)

    def kill_primary(self) -> None:
        """End the primary at once, all it answered so far replicated; returns before the Sentinels have acted.

        Raises RuntimeError if the replica does not follow.
        """
        client = redis.Redis(port=self.primary.port, password=self._password)
        deadline = time.monotonic() + READY_SECONDS
        while not client.execute_command("WAIT", 1, 500):  # type: ignore[no-untyped-call]
            if time.monotonic() > deadline:
                raise RuntimeError(f"the replica did not follow in {READY_SECONDS:g} s")
        client.close()
        self.primary.kill()

    def close(self) -> None:
        """End all servers and remove their folders."""
        for server in (*self.sentinels, self.replica, self.primary):
            server.close()

    def _knows_all(self, sentinel: RedisServer) -> bool:
        client = self._client(sentinel)
        try:
            state = client.execute_command("SENTINEL", "MASTER", NAME)
            facts = dict(zip(state[::2], state[1::2], strict=True)) if isinstance(state, list) else state
            known = {_text(key): _text(value) for key, value in facts.items()}
            return known.get("num-other-sentinels") == "2" and known.get("num-slaves") == "1"
        finally:
            client.close()

    def _client(self, server: RedisServer) -> Any:
        return redis.Redis(port=server.port)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
