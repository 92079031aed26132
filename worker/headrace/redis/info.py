"""Reads the reply of INFO."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.server_facts import MemoryUse, ServerFacts


def parse(reply: bytes) -> dict[str, str]:
    """Return the fields of an INFO reply."""
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines if ":" in line and not line.startswith("#"))


def memory(info: Mapping[str, str], address: str) -> MemoryUse:
    """Return what INFO memory says. Buffers for replicas do not count, since the server does not count them."""
    number = {name: int(value) for name, value in info.items() if value.isdecimal()}
    used = number.get("used_memory", 0) - number.get("mem_not_counted_for_evict", 0)
    return MemoryUse(address, used, number.get("maxmemory") or None)


def facts(
    info: Mapping[str, str], *, address: str, snapshots: bool | None, behind_sentinels: bool, latency_ms: float
) -> ServerFacts:
    """Return what an INFO reply says. Fields that a server does not have count as absent, not as an error."""
    number = {name: int(value) for name, value in info.items() if value.isdecimal()}
    valkey = info.get("valkey_version")
    clustered = info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster"
    return ServerFacts(
        address=address,
        version=f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'unknown')}",
        role="replica" if info.get("role") == "slave" else "primary",
        used_bytes=number.get("used_memory", 0),
        max_bytes=number.get("maxmemory") or None,
        policy=info.get("maxmemory_policy", "unknown"),
        append_only=info.get("aof_enabled") == "1",
        snapshots=snapshots,
        save_problem=_save_problem(info),
        replicas=number.get("connected_slaves", 0),
        replica_seconds=_furthest(info),
        expects_replicas=clustered or behind_sentinels,
        evicted=number.get("evicted_keys", 0),
        clients=number.get("connected_clients", 0),
        max_clients=number.get("maxclients"),
        latency_ms=latency_ms,
    )


def _save_problem(info: Mapping[str, str]) -> str:
    # Where no snapshot was ever taken the status is "ok", too.
    names = {"rdb_last_bgsave_status": "the last snapshot", "aof_last_write_status": "the last append"}
    return ", ".join(f"{what} failed" for name, what in names.items() if info.get(name, "ok") != "ok")


def _furthest(info: Mapping[str, str]) -> int | None:
    """Return since how many seconds the replica that is furthest behind was not heard of."""
    lags = []
    for name, value in info.items():
        if name.removeprefix("slave").isdecimal():
            fields = dict(part.partition("=")[::2] for part in value.split(","))
            if fields.get("lag", "").isdecimal():
                lags.append(int(fields["lag"]))
    return max(lags, default=None)
