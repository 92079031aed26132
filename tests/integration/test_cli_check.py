"""``headrace check`` on real servers of every kind."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from redis import Redis

from headrace import Producer
from headrace.cli.main import app
from headrace.lifecycle import promote
from headrace.stores import open_store
from tests.cluster.guard import Guard
from tests.services.redis import Flavour, RedisServer, flavours
from tests.services.redis_access import Login
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_setups import SETUPS, RedisSetups

QUEUE = "emails"


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        app(["check", *words])
    return int(left.value.code or 0)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on a URL; the exit code, and what it found as JSON."""

    def run(url: str, *words: str) -> tuple[int, dict[str, Any]]:
        code = ended("--redis-url", url, "-o", "json", *words)
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("flavour", flavours())
def test_QD7_eviction_and_persistence_are_checked(flavour: Flavour, process_guard: Guard, told: Any) -> None:
    server = RedisServer(flavour, options=("--maxmemory", "50mb"), guard=process_guard)
    with server, server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        code, data = told(server.url)
        assert (code, data["ok"]) == (1, False)
        assert [found["code"] for found in data["findings"]] == ["EvictionPolicy", "NotPersistent"]
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendonly", "yes")
        code, data = told(server.url, "--strict")
        assert (code, data["ok"], data["findings"]) == (0, True, [])
        (facts,) = data["servers"]
        assert facts["version"].startswith("Valkey 9." if flavour == "valkey" else "Redis 7.")
        assert 0 < facts["memory_ratio"] < 1
        assert facts["latency_ms"] > 0
        client.config_set("maxmemory", facts["used_bytes"] + 10_000)
        code, data = told(server.url)
        assert (code, [found["code"] for found in data["findings"]]) == (0, ["MemoryHigh"])
        assert told(server.url, "--strict")[0] == 1


@pytest.mark.parametrize("setup", SETUPS)
def test_every_setup_is_looked_at_by_a_user_with_the_least_rights(
    setup: str, redis_setups: RedisSetups, told: Any
) -> None:
    code, data = told(redis_setups.url(setup))
    assert code == 0  # whether it saves snapshots such a user may not ask
    codes = {found["code"] for found in data["findings"]}
    assert codes <= {"PersistenceUnknown", "NoMemoryLimit", "ReplicaLate", "Slow"}
    assert "PersistenceUnknown" in codes
    servers = data["servers"]
    assert len(servers) == (3 if setup == "cluster" else 1)
    assert {server["replicas"] for server in servers} == {0 if setup in flavours() else 1}
    assert {server["role"] for server in servers} == {"primary"}


def test_a_replica_that_is_gone_is_missed_in_a_cluster_only(process_guard: Guard, told: Any) -> None:
    servers = RedisClusterServers("valkey", options=("--appendonly", "yes"), guard=process_guard)
    servers.start()
    try:
        code, data = told(servers.url)
    finally:
        servers.close()
    assert code == 0
    assert [found["code"] for found in data["findings"] if found["level"] == "warning"] == ["NoReplica"] * 3


def test_J8_a_partition_is_told_whose_time_the_server_has_not_reached(
    process_guard: Guard, told: Any, prefix: str
) -> None:
    def problems(*queues: str) -> list[str]:
        found = told(server.url, "--prefix", prefix, *queues)[1]["findings"]
        return [each["problem"] for each in found if each["code"] == "TimeStandsStill"]

    async def enqueued(version: int) -> None:
        store = open_store(server.url, prefix)
        await promote(store, QUEUE, version, 1)
        await Producer(store).enqueue(QUEUE, "send", delay=60)
        await store.close()

    with RedisServer(persist=True, guard=process_guard) as server, Redis.from_url(server.url) as hand:
        asyncio.run(enqueued(1))
        assert problems(QUEUE) == []
        meta = f"{{{prefix}:{QUEUE}:1:0}}:meta"
        hand.hset(meta, "t", int(hand.hget(meta, "t")) + 86_400_000)  # as after a clock that was a day ahead
        (problem,) = problems(QUEUE)
        assert problem.startswith("the time of partition 1:0 is 86")
        asyncio.run(enqueued(2))
        (taken,) = hand.hmget(f"{{{prefix}:{QUEUE}:2:0}}:meta", "t")
        seconds, _ = hand.time()
        assert int(taken) <= (seconds + 1) * 1000  # the new version has the server's time


def test_a_queue_is_compared_with_its_partitions(process_guard: Guard, told: Any, prefix: str) -> None:
    async def prepare() -> None:
        store = open_store(server.url, prefix)
        await promote(store, QUEUE, 1, 2)
        second = await promote(store, QUEUE, 2, 1)
        await store.mark(second.refs(2)[0], second.promoted(3, 1))
        await store.close()

    with RedisServer(persist=True, guard=process_guard) as server:
        asyncio.run(prepare())
        code, data = told(server.url, "--prefix", prefix, QUEUE, "nobody")
        assert code == 0
        codes = {found["where"]: found["code"] for found in data["findings"] if found["level"] == "warning"}
        assert codes == {"queue emails": "TopologyDrift", "queue nobody": "UnknownQueue"}
        assert told(server.url, "--prefix", prefix, "--strict", QUEUE)[0] == 1


def test_waiting_ends_when_all_is_well_or_with_its_own_code(
    process_guard: Guard, capsys: pytest.CaptureFixture[str]
) -> None:
    with RedisServer(persist=True, guard=process_guard) as server:
        server.stop()
        assert ended("--redis-url", server.url, "--wait", "0.5") == 124
        assert "connection refused" in capsys.readouterr().err
        assert ended("--redis-url", server.url) == 1
        starting = threading.Timer(0.5, server.start)
        starting.start()
        assert ended("--redis-url", server.url, "--wait", "60") == 0
        starting.join()
    with RedisServer(login=Login("", "right"), guard=process_guard) as server:
        assert ended("--redis-url", f"redis://:wrong@127.0.0.1:{server.port}", "--wait", "60") == 4


def test_the_table_names_what_was_found_and_what_to_do(
    process_guard: Guard, capsys: pytest.CaptureFixture[str]
) -> None:
    with RedisServer(guard=process_guard) as server:
        assert ended("--redis-url", server.url) == 1
    shown = capsys.readouterr().out
    assert f"127.0.0.1:{server.port}/0" in shown
    assert "unsafe  NotPersistent" in shown
    assert "- set appendonly yes" in shown
