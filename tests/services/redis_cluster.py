"""A real Redis Cluster on loopback: masters, with replicas if wanted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.services.redis import Flavour, RedisServer
from tests.services.redis_access import Login, Tls

FORM_SECONDS = 90.0
SLOTS = 16384


def _lines(reply: Any) -> list[str]:
    return [line for line in (reply.decode() if isinstance(reply, bytes) else str(reply)).splitlines() if line]


def _ask(server: RedisServer, *command: str | bytes | int) -> Any:
    with server.client() as client:
        return client.execute_command(*command)


class RedisClusterServers:
    """``masters`` servers that share the slots, each with ``replicas`` replicas. Use `start` and `close`.

    ``options`` are further command-line options of every server, ``login`` and ``tls`` as of `RedisServer`.
    """

    def __init__(
        self,
        flavour: Flavour,
        *,
        masters: int = 3,
        replicas: int = 0,
        options: tuple[str, ...] = (),
        login: Login | None = None,
        tls: Tls | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._buses = free_ports(masters * (1 + replicas))
        self._replicas = replicas
        self.login, self.tls = login, tls
        secured = ("--tls-cluster", "yes") if tls else ()
        self.servers = [
            RedisServer(
                flavour,
                guard=guard,
                login=login,
                tls=tls,
                options=(
                    *("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "1000"),
                    *("--cluster-config-file", "nodes.conf", "--repl-diskless-sync-delay", "0", *secured, *options),
                ),
            )
            for bus in self._buses
        ]
        self._first_masters = masters

    @property
    def url(self) -> str:
        """Names the masters of the beginning."""
        return self.url_of(self.login)

    def url_of(self, login: Login | None) -> str:
        """The URL with another login."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers[: self._first_masters])
        scheme, trust = ("rediss", f"?ssl_ca_certs={self.tls.authority}") if self.tls else ("redis", "")
        return f"{scheme}+cluster://{login.in_url if login else ''}{hosts}{trust}"

    @property
    def masters(self) -> list[RedisServer]:
        """The servers that have slots, as one that runs sees it."""
        return list(dict.fromkeys(holder for _, _, holder in self._ranges()))

    def start(self) -> None:
        """Start the servers and join them. Raises RuntimeError if the cluster does not form."""
        for server in self.servers:
            server.start()
        masters, replicas = self.servers[: self._first_masters], self.servers[self._first_masters :]
        share = -(-SLOTS // len(masters))
        for number, server in enumerate(masters):
            low, high = number * share, min((number + 1) * share, SLOTS) - 1
            _ask(server, "CLUSTER", "ADDSLOTSRANGE", low, high)
        for server, bus in zip(self.servers[1:], self._buses[1:], strict=True):
            _ask(self.servers[0], "CLUSTER", "MEET", "127.0.0.1", server.port, bus)
        self._wait(lambda: all(map(self._knows_all, self.servers)), "every node knows the others")
        for number, server in enumerate(replicas):
            _ask(server, "CLUSTER", "REPLICATE", _ask(masters[number // self._replicas], "CLUSTER", "MYID"))
        self._wait(lambda: all(map(self._formed, self.servers)), "the cluster serves all slots")
        self._wait(lambda: all(map(_follows, replicas)), "the replicas follow their masters")

    def node(self, key: str | bytes) -> Any:
        """A client of the master that has the key now."""
        return self.holder(key).client()

    def holder(self, key: str | bytes) -> RedisServer:
        """The master that has the key now."""
        slot = self._slot(key)
        return next(holder for first, last, holder in self._ranges() if first <= slot <= last)

    def replica_of(self, master: RedisServer) -> RedisServer:
        """A replica of a master."""
        name = _ask(master, "CLUSTER", "MYID").decode()
        for line in _lines(_ask(master, "CLUSTER", "NODES")):
            words = line.split()
            if words[3] == name:
                return self._by_port(int(words[1].partition("@")[0].rpartition(":")[2]))
        raise RuntimeError("that master has no replica")

    def serves_all_slots(self) -> bool:
        """Whether every server that runs says so."""
        running = [server for server in self.servers if server.answers()]
        return all("cluster_state:ok" in _lines(_ask(server, "CLUSTER", "INFO")) for server in running)

    def begin_to_move(self, key: str | bytes) -> MovingSlot:
        """Begin to move the key's slot to another master."""
        source, masters = self.holder(key), self.masters
        target = masters[(masters.index(source) + 1) % len(masters)]
        return MovingSlot(self._slot(key), source, target, masters)

    def move_slot_of(self, key: str | bytes) -> None:
        """Move the key's slot to another master, key by key, as an operator of the cluster would."""
        moving = self.begin_to_move(key)
        while moving.move_keys(2):
            time.sleep(0.02)  # traffic meets a slot that is on its way
        moving.finish()

    def close(self) -> None:
        """End all servers and remove their folders."""
        for server in self.servers:
            server.close()

    def _slot(self, key: str | bytes) -> int:
        slot: int = _ask(self._running(), "CLUSTER", "KEYSLOT", key)
        return slot

    def _ranges(self) -> list[tuple[int, int, RedisServer]]:
        found = _ask(self._running(), "CLUSTER", "SLOTS")
        return [(first, last, self._by_port(master[1])) for first, last, master, *_ in found]

    def _running(self) -> RedisServer:
        return next(server for server in self.servers if server.answers())

    def _by_port(self, port: int) -> RedisServer:
        return next(server for server in self.servers if server.port == port)

    def _knows_all(self, server: RedisServer) -> bool:
        nodes = _lines(_ask(server, "CLUSTER", "NODES"))
        return sum("handshake" not in line for line in nodes) == len(self.servers)

    def _formed(self, server: RedisServer) -> bool:
        replicas = len(self.servers) - self._first_masters
        nodes = _lines(_ask(server, "CLUSTER", "NODES"))
        joined = sum(" slave " in f" {line.split()[2].replace(',', ' ')} " for line in nodes)
        return "cluster_state:ok" in _lines(_ask(server, "CLUSTER", "INFO")) and joined == replicas

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + FORM_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Redis Cluster did not form in {FORM_SECONDS:g} s: not so that {what}")
            time.sleep(0.02)


def _follows(replica: RedisServer) -> bool:
    with replica.client() as client:
        linked: bool = client.info("replication").get("master_link_status") == "up"
    return linked


class MovingSlot:
    """A slot that is on its way from one master to another."""

    def __init__(self, slot: int, source: RedisServer, target: RedisServer, masters: list[RedisServer]) -> None:
        self.slot, self.source, self.target, self._masters = slot, source, target, masters
        source_id, self._target_id = (_ask(each, "CLUSTER", "MYID") for each in (source, target))
        _ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        _ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self._target_id)

    def move_keys(self, most: int = 1000) -> int:
        """Move at most so many of its keys; the number of them."""
        names = _ask(self.source, "CLUSTER", "GETKEYSINSLOT", self.slot, most)
        if names:
            _ask(self.source, "MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *names)
        return len(names)

    def finish(self) -> None:
        """Tell all masters that the target has it."""
        others = [each for each in self._masters if each not in (self.source, self.target)]
        for server in (self.target, self.source, *others):
            _ask(server, "CLUSTER", "SETSLOT", self.slot, "NODE", self._target_id)
