"""What a server says of itself, and what of it endangers jobs. Pure values and rules; nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

SAFE_POLICY = "noeviction"
HIGH_MEMORY = 0.85
LATE_REPLICA_SECONDS = 10
SLOW_MS = 50.0
HIGH_CLIENTS = 0.9


class MemoryUse(NamedTuple):
    """What one server uses of its memory, in bytes, as it compares it with its limit. ``max_bytes``: None for none."""

    address: str
    used_bytes: int
    max_bytes: int | None

    @property
    def ratio(self) -> float | None:
        """Used part of the limit, 0 and up; None without a limit."""
        return self.used_bytes / self.max_bytes if self.max_bytes else None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server as it was asked. Sizes are bytes.

    ``max_bytes``: None without a limit. ``snapshots``: whether it saves some by itself, None if it does not tell.
    ``save_problem``: of the last snapshot or append, empty if there was none. ``replica_seconds``: since the replica
    that is furthest behind was last heard of, None without replicas. ``expects_replicas``: it is there to be failed
    over. ``latency_ms``: median of a few calls, as seen from here.
    """

    address: str
    version: str
    role: str
    used_bytes: int
    max_bytes: int | None
    policy: str
    append_only: bool
    snapshots: bool | None
    save_problem: str
    replicas: int
    replica_seconds: int | None
    expects_replicas: bool
    evicted: int
    clients: int
    max_clients: int | None
    latency_ms: float

    @property
    def memory_ratio(self) -> float | None:
        """Used part of the limit, 0 and up; None without a limit."""
        return self.used_bytes / self.max_bytes if self.max_bytes else None


class Code(StrEnum):
    """What was found, one word each."""

    EVICTION_POLICY = "EvictionPolicy"
    NOT_PERSISTENT = "NotPersistent"
    SAVING_FAILS = "SavingFails"
    SNAPSHOTS_ONLY = "SnapshotsOnly"
    PERSISTENCE_UNKNOWN = "PersistenceUnknown"
    KEYS_EVICTED = "KeysEvicted"
    MEMORY_HIGH = "MemoryHigh"
    NO_MEMORY_LIMIT = "NoMemoryLimit"
    NO_REPLICA = "NoReplica"
    REPLICA_LATE = "ReplicaLate"
    SLOW = "Slow"
    CLIENTS_HIGH = "ClientsHigh"
    TOPOLOGY_DRIFT = "TopologyDrift"
    TIME_STANDS_STILL = "TimeStandsStill"
    UNKNOWN_QUEUE = "UnknownQueue"


Level = Literal["unsafe", "warning", "note"]
"""``unsafe``: jobs that were accepted may vanish in normal operation. ``warning``: trouble is near. ``note``: good to
know."""


class Finding(NamedTuple):
    """One thing that was found: where, what, and what to do."""

    code: Code
    level: Level
    where: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.remedy}"


def findings(servers: Iterable[ServerFacts]) -> list[Finding]:
    """Return what is to be said of these servers, the worst first."""
    found = [finding for server in servers for finding in (*_memory(server), *_persistence(server), *_replicas(server))]
    return sorted(found, key=lambda finding: ("unsafe", "warning", "note").index(finding.level))


def unsafe(found: Iterable[Finding]) -> list[Finding]:
    """Return those findings that a strict connection refuses."""
    return [finding for finding in found if finding.level == "unsafe"]


def _memory(server: ServerFacts) -> Iterable[Finding]:
    where, ratio = server.address, server.memory_ratio
    if server.policy != SAFE_POLICY:
        level: Level = "unsafe" if server.max_bytes else "warning"
        problem = f"maxmemory-policy is {server.policy}, so keys of queues may be evicted when memory is full"
        yield Finding(Code.EVICTION_POLICY, level, where, problem, f"set maxmemory-policy {SAFE_POLICY}")
    if server.evicted:
        problem = f"{server.evicted} key(s) were evicted since it was started; jobs may be among them"
        yield Finding(Code.KEYS_EVICTED, "warning", where, problem, f"set maxmemory-policy {SAFE_POLICY}")
    if ratio is None:
        problem = "there is no maxmemory: a backlog grows until the machine ends the server"
        yield Finding(Code.NO_MEMORY_LIMIT, "note", where, problem, "set maxmemory below what the machine has")
    elif ratio >= HIGH_MEMORY:
        problem = f"{ratio:.0%} of maxmemory is used; at 100% new jobs are refused"
        yield Finding(Code.MEMORY_HIGH, "warning", where, problem, "add memory or workers, or limit the queue's length")
    if server.max_clients and server.clients >= HIGH_CLIENTS * server.max_clients:
        problem = f"{server.clients} of {server.max_clients} connections are taken"
        yield Finding(Code.CLIENTS_HIGH, "warning", where, problem, "raise maxclients, or close some")
    if server.latency_ms >= SLOW_MS:
        problem = f"a call takes {server.latency_ms:.0f} ms"
        yield Finding(Code.SLOW, "warning", where, problem, "look at its slow log, its load and the way to it")


def _persistence(server: ServerFacts) -> Iterable[Finding]:
    where = server.address
    if server.save_problem:
        problem = f"it cannot save its data: {server.save_problem}"
        yield Finding(Code.SAVING_FAILS, "unsafe", where, problem, "look at its disk and its log")
    if server.append_only:
        return
    if server.snapshots is None:
        problem = "it has no append-only file, and does not tell whether it saves snapshots"
        yield Finding(Code.PERSISTENCE_UNKNOWN, "note", where, problem, "see its settings: appendonly, save")
    elif server.snapshots:
        problem = "it saves snapshots only, so a restart loses the jobs since the last one"
        yield Finding(Code.SNAPSHOTS_ONLY, "note", where, problem, "set appendonly yes if they must not be lost")
    else:
        problem = "it saves nothing, so a restart loses all jobs"
        yield Finding(Code.NOT_PERSISTENT, "unsafe", where, problem, "set appendonly yes")


def _replicas(server: ServerFacts) -> Iterable[Finding]:
    where = server.address
    if server.replicas == 0 and server.expects_replicas:
        problem = "no replica follows it, so nothing can take over from it"
        yield Finding(Code.NO_REPLICA, "warning", where, problem, "see to its replicas")
    if server.replica_seconds is not None and server.replica_seconds >= LATE_REPLICA_SECONDS:
        problem = f"a replica was not heard of for {server.replica_seconds} s; a failover to it loses what it lacks"
        yield Finding(Code.REPLICA_LATE, "warning", where, problem, "see to that replica")
