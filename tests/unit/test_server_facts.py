"""What of a server endangers jobs, by what it says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.drift import drifted
from headrace.redis.info import facts, parse
from headrace.server_facts import Code, ServerFacts, findings, unsafe
from headrace.stores.base import PartitionState
from headrace.topology import Topology

FINE = ServerFacts(
    address="one:6379/0",
    version="Redis 7.0.15",
    role="primary",
    used_bytes=50,
    max_bytes=100,
    policy="noeviction",
    append_only=True,
    snapshots=False,
    save_problem="",
    replicas=0,
    replica_seconds=None,
    expects_replicas=False,
    evicted=0,
    clients=10,
    max_clients=10_000,
    latency_ms=0.4,
)

CASES = [
    ({}, []),
    ({"policy": "allkeys-lru"}, [("unsafe", Code.EVICTION_POLICY)]),
    ({"policy": "volatile-ttl"}, [("unsafe", Code.EVICTION_POLICY)]),
    (
        {"policy": "allkeys-lru", "max_bytes": None},
        [("warning", Code.EVICTION_POLICY), ("note", Code.NO_MEMORY_LIMIT)],
    ),
    ({"append_only": False}, [("unsafe", Code.NOT_PERSISTENT)]),
    ({"append_only": False, "snapshots": True}, [("note", Code.SNAPSHOTS_ONLY)]),
    ({"append_only": False, "snapshots": None}, [("note", Code.PERSISTENCE_UNKNOWN)]),
    ({"save_problem": "the last append failed"}, [("unsafe", Code.SAVING_FAILS)]),
    ({"evicted": 3}, [("warning", Code.KEYS_EVICTED)]),
    ({"used_bytes": 85}, [("warning", Code.MEMORY_HIGH)]),
    ({"used_bytes": 84}, []),
    ({"expects_replicas": True}, [("warning", Code.NO_REPLICA)]),
    ({"expects_replicas": True, "replicas": 1, "replica_seconds": 1}, []),
    ({"replicas": 1, "replica_seconds": 10}, [("warning", Code.REPLICA_LATE)]),
    ({"clients": 9_000}, [("warning", Code.CLIENTS_HIGH)]),
    ({"latency_ms": 51.0}, [("warning", Code.SLOW)]),
]


@pytest.mark.parametrize(("change", "expected"), CASES, ids=lambda value: str(value)[:60])
def test_QD7_what_is_found(change: dict[str, object], expected: list[tuple[str, Code]]) -> None:
    found = findings([replace(FINE, **change)])  # type: ignore[arg-type]
    assert [(finding.level, finding.code) for finding in found] == expected
    for finding in found:
        assert finding.where == "one:6379/0"
        assert finding.problem
        assert finding.remedy


def test_QD7_the_worst_of_all_servers_comes_first_and_is_what_is_unsafe() -> None:
    found = findings([replace(FINE, used_bytes=90), replace(FINE, address="two:6379/0", policy="allkeys-lfu")])
    assert [finding.where for finding in found] == ["two:6379/0", "one:6379/0"]
    assert unsafe(found) == found[:1]
    assert str(found[0]).startswith("two:6379/0: maxmemory-policy is allkeys-lfu, so ")


def test_every_code_can_be_found() -> None:
    seen = {code for _, expected in CASES for _, code in expected}
    assert set(Code) - seen == {Code.TOPOLOGY_DRIFT, Code.TIME_STANDS_STILL, Code.UNKNOWN_QUEUE}


def test_an_info_reply_is_read_whatever_it_lacks() -> None:
    text = (
        b"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nserver_mode:cluster\r\nused_memory:70\r\n"
        b"maxmemory:100\r\nmaxmemory_policy:noeviction\r\nrole:master\r\nconnected_slaves:2\r\n"
        b"slave0:ip=127.0.0.1,port=1,state=online,offset=1,lag=0\r\nslave1:ip=::1,port=2,state=online,offset=1,lag=12\r\n"
        b"aof_enabled:1\r\naof_last_write_status:err\r\nrdb_last_bgsave_status:ok\r\n"
    )
    read = facts(parse(text), address="a", snapshots=None, behind_sentinels=False, latency_ms=1.0)
    assert read == ServerFacts(
        "a", "Valkey 9.1.2", "primary", 70, 100, "noeviction", True, None, "the last append failed", 2, 12, True, 0, 0,
        None, 1.0,
    )  # fmt: skip
    nothing = facts(parse(b""), address="a", snapshots=True, behind_sentinels=True, latency_ms=0.0)
    assert (nothing.version, nothing.policy, nothing.memory_ratio) == ("Redis unknown", "unknown", None)
    assert (nothing.replica_seconds, nothing.expects_replicas) == (None, True)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["active", "active", "draining"], []),
        (["active", "active", "closed"], []),
        (["active", "absent", "draining"], ["v2 is active, but not its partition(s) 2:1 absent"]),
        (["draining", "draining", "draining"], ["v2 is active, but not its partition(s) 2:0 draining, 2:1 draining"]),
        (["active", "active", "active"], ["v1 is draining, but not its partition(s) 1:0 active"]),
    ],
)
def test_a_topology_that_its_partitions_do_not_follow_is_told(
    states: list[PartitionState], expected: list[str]
) -> None:
    topology = Topology.created("emails", 1, 1).promoted(2, 2)
    refs = (*topology.refs(2), *topology.refs(1))
    found = drifted(topology, dict(zip(refs, states, strict=True)))
    assert [finding.problem for finding in found] == expected
    assert all("headrace topology promote emails --version 2 --partitions 2" in finding.remedy for finding in found)
