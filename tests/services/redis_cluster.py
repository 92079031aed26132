"""A real Redis Cluster on loopback: masters, with replicas if wanted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.services.redis import Flavour, RedisServer

FORM_SECONDS = 30.0
SLOTS = 16384


def client_of(server: RedisServer) -> Any:
    return redis.Redis(port=server.port)


def _lines(reply: Any) -> list[str]:
    return [line for line in (reply.decode() if isinstance(reply, bytes) else str(reply)).splitlines() if line]


def _nodes(node: Any) -> list[str]:
    return _lines(node.execute_command("CLUSTER", "NODES"))


class RedisClusterServers:
    """``masters`` servers that share the slots, each with ``replicas`` replicas. Use `start` and `close`."""

    def __init__(self, flavour: Flavour, *, masters: int = 3, replicas: int = 0, guard: Guard | None = None) -> None:
        total = masters * (1 + replicas)
        buses = free_ports(total)
        self._replicas = replicas
        self.servers = [
            RedisServer(
                flavour,
                guard=guard,
                options=(
                    *("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "1000"),
                    *("--cluster-config-file", "nodes.conf", "--repl-diskless-sync-delay", "0"),
                ),
            )
            for bus in buses
        ]
        self._buses = buses
        self.masters = self.servers[:masters]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.masters)

    def start(self) -> None:
        """Start the servers and join them. Raises RuntimeError if the cluster does not form."""
        for server in self.servers:
            server.start()
        first, *others = [client_of(server) for server in self.servers]
        for server, bus in zip(self.servers[1:], self._buses[1:], strict=True):
            first.execute_command("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
        share = -(-SLOTS // len(self.masters))
        for number, server in enumerate(self.masters):
            low, high = number * share, min((number + 1) * share, SLOTS) - 1
            client_of(server).execute_command("CLUSTER", "ADDSLOTSRANGE", low, high)
        everyone = [first, *others]
        self._wait(
            lambda: all(self._known(node) == len(self.servers) for node in everyone), "every node knows the others"
        )
        for number, server in enumerate(self.servers[len(self.masters) :]):
            master = client_of(self.masters[number // self._replicas])
            name = master.execute_command("CLUSTER", "MYID")
            client_of(server).execute_command("CLUSTER", "REPLICATE", name)
        self._wait(lambda: all(self._formed(node) for node in everyone), "the cluster serves all slots")
        for node in everyone:
            node.close()

    def client(self, server: RedisServer) -> Any:
        """A client of one server."""
        return client_of(server)

    def node(self, key: str | bytes) -> Any:
        """A client of the master that has the key now."""
        return client_of(self.masters[self._holder(self._slot(key))])

    def holds(self, server: RedisServer, key: str | bytes) -> bool:
        """Whether the key lies on that master."""
        return self.masters[self._holder(self._slot(key))] is server

    def move_slot_of(self, key: str | bytes) -> None:
        """Move the key's slot to another master, key by key, as an operator of the cluster would."""
        slot = self._slot(key)
        number = self._holder(slot)
        source, target = self.masters[number], self.masters[(number + 1) % len(self.masters)]
        source_id, target_id = (client_of(each).execute_command("CLUSTER", "MYID") for each in (source, target))
        client_of(target).execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        client_of(source).execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while names := client_of(source).execute_command("CLUSTER", "GETKEYSINSLOT", slot, 2):
            client_of(source).execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names)
            time.sleep(0.02)  # traffic meets a slot that is on its way
        for server in (target, source, *self.masters):
            client_of(server).execute_command("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def _slot(self, key: str | bytes) -> int:
        slot: int = client_of(self.masters[0]).execute_command("CLUSTER", "KEYSLOT", key)
        return slot

    def _holder(self, slot: int) -> int:
        for first, last, master, *_ in client_of(self.masters[0]).execute_command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(n for n, server in enumerate(self.masters) if server.port == master[1])
        raise RuntimeError(f"slot {slot} has no master")

    def close(self) -> None:
        """End all servers and remove their folders."""
        for server in self.servers:
            server.close()

    def _known(self, node: Any) -> int:
        return sum("handshake" not in line for line in _nodes(node))

    def _formed(self, node: Any) -> bool:
        replicas = len(self.servers) - len(self.masters)
        joined = sum(" slave " in f" {line.split()[2].replace(',', ' ')} " for line in _nodes(node))
        return "cluster_state:ok" in _lines(node.execute_command("CLUSTER", "INFO")) and joined == replicas

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + FORM_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Redis Cluster did not form in {FORM_SECONDS:g} s: not so that {what}")
            time.sleep(0.02)
