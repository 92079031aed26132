"""What the doctor says about what was found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.diagnosis import Check, QueueFacts, clock_check, queue_checks, server_checks, worst
from headrace.leadership.overview import Overview
from headrace.server_facts import ServerFacts
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import Beat, Depth, Statistics, WorkerEntry
from headrace.topology import Topology

NOW = 1_000_000_000
HEALTHY = ServerFacts(
    address="redis 10.0.0.1:6379",
    version="Redis 7.4.0",
    role="primary",
    used_bytes=10 << 20,
    max_bytes=100 << 20,
    policy="noeviction",
    append_only=True,
    snapshots=True,
    save_problem="",
    replicas=1,
    replica_seconds=0,
    expects_replicas=True,
    evicted=0,
    clients=3,
    max_clients=1000,
    latency_ms=0.4,
)
LIVE = WorkerEntry("w-1", 100, Beat("host", 1, slots=4, candidate=True))
LEADS = Overview("w-1_x", "w-1", "redis", 1, 7, True, 5000, NOW, 60_000, LIVE, ())


def facts(
    *,
    settings: QueueSettings | None = None,
    workers: tuple[WorkerEntry, ...] = (LIVE,),
    leadership: Overview | None = LEADS,
    dropped: int = 0,
    **depth: Any,
) -> QueueFacts:
    topology = Topology.created("emails", 1, 2, settings)
    statistics = Statistics(
        epoch=topology.epoch,
        measured_at=NOW,
        now=NOW,
        versions={1: Depth("active", 2, **depth)},
        counters={"dead_dropped": dropped},
    )
    return QueueFacts(topology, (), statistics, workers, leadership)


def found(checks: list[Check], name: str) -> Check:
    (check,) = [each for each in checks if each.check == name]
    return check


def test_a_healthy_server_and_queue_are_all_ok() -> None:
    checks = [*server_checks([HEALTHY]), clock_check("server", NOW, NOW - 5, NOW + 5), *queue_checks(facts())]
    assert worst(checks) == "OK"
    assert [each.remedy for each in checks] == [""] * len(checks)
    assert [each.check for each in checks] == [
        *("connection", "version", "eviction", "persistence", "memory", "replicas", "load", "clock"),
        *("topology", "state", "workers", "leader", "waiting", "types", "dead"),
    ]


@pytest.mark.parametrize(
    ("change", "check", "verdict", "remedy"),
    [
        ({"policy": "allkeys-lru"}, "eviction", "FAIL", "set maxmemory-policy noeviction"),
        ({"policy": "allkeys-lru", "max_bytes": None}, "eviction", "WARN", "set maxmemory-policy noeviction"),
        ({"append_only": False, "snapshots": False}, "persistence", "FAIL", "set appendonly yes"),
        ({"save_problem": "the last append failed"}, "persistence", "FAIL", "look at its disk and its log"),
        ({"used_bytes": 95 << 20}, "memory", "WARN", "add memory or workers, or limit the queue's length"),
        ({"max_bytes": None}, "memory", "OK", "set maxmemory below what the machine has"),
        ({"replicas": 0, "replica_seconds": None}, "replicas", "WARN", "see to its replicas"),
        ({"latency_ms": 80.0}, "load", "WARN", "look at its slow log, its load and the way to it"),
    ],
)
def test_what_a_server_lacks_is_judged(change: dict[str, Any], check: str, verdict: str, remedy: str) -> None:
    told = found(server_checks([replace(HEALTHY, **change)]), check)
    assert (told.verdict, told.remedy) == (verdict, remedy)


@pytest.mark.parametrize(
    ("server", "verdict", "told"),
    [
        (NOW, "OK", "within 2 s"),
        (NOW - 1999, "OK", "within 2 s"),
        (NOW + 90_000, "WARN", "90.0 s ahead of"),
        (NOW - 3_500, "WARN", "3.5 s behind"),
    ],
)
def test_a_clock_that_is_off_is_told(server: int, verdict: str, told: str) -> None:
    check = clock_check("server", server, NOW, NOW)
    assert check.verdict == verdict
    assert told in check.told


def test_a_slow_answer_is_no_wrong_clock() -> None:
    assert clock_check("server", NOW, NOW - 9000, NOW + 9000).verdict == "OK"


@pytest.mark.parametrize(
    ("given", "check", "verdict", "told"),
    [
        ({"settings": QueueSettings(stop="hold")}, "state", "WARN", "it is paused"),
        ({"settings": QueueSettings(stop="hold_and_drain")}, "state", "WARN", "takes no new jobs"),
        ({"workers": (), "leadership": None}, "workers", "OK", "none, and nothing to run"),
        ({"workers": (), "leadership": None}, "leader", "OK", "no worker runs"),
        ({"workers": (), "ready": 3}, "workers", "FAIL", "3 job(s) are ready and no worker lives"),
        ({"workers": (LIVE._replace(heard_ms=20_000),), "ready": 3}, "workers", "FAIL", "no worker lives"),
        ({"workers": (LIVE, LIVE._replace(heard_ms=20_000))}, "workers", "WARN", "1 live, 1 was/were not heard of"),
        ({"leadership": replace(LEADS, leads=False, standing_by=(LIVE,))}, "leader", "WARN", "1 worker(s) may"),
        ({"leadership": replace(LEADS, leads=False)}, "leader", "WARN", "no worker may"),
        ({"ready": 5, "oldest_ready_at": NOW - 59_999}, "waiting", "OK", "due for 59 s"),
        ({"ready": 5, "oldest_ready_at": NOW - 60_000}, "waiting", "WARN", "due for 60 s"),
        ({"ready": 5, "oldest_ready_at": NOW - 300_000}, "waiting", "FAIL", "the oldest of 5 ready job(s)"),
        (
            {"ready": 5, "oldest_ready_at": NOW - 300_000, "settings": QueueSettings(stop="hold")},
            "waiting",
            "OK",
            "due for 300 s",
        ),
        ({"parked": 2}, "types", "WARN", "2 job(s) wait for a worker that knows their type"),
        ({"dead": 8}, "dead", "OK", "8 dead letter(s)"),
        ({"dead": 8, "dropped": 2}, "dead", "OK", "2 were dropped in all"),
        ({"dead": 9, "settings": QueueSettings(retention=Retention(dead_count=10))}, "dead", "WARN", "beyond 10"),
    ],
)
def test_what_is_wrong_with_a_queue_is_judged(given: dict[str, Any], check: str, verdict: str, told: str) -> None:
    judged = found(queue_checks(facts(**given)), check)
    assert judged.verdict == verdict
    assert told in judged.told
    assert bool(judged.remedy) == (verdict != "OK")


def test_the_worst_verdict_counts() -> None:
    checks = [Check("a", "b", verdict, "") for verdict in ("OK", "FAIL", "WARN")]
    assert [worst(checks), worst(checks[::2]), worst(checks[:1]), worst([])] == ["FAIL", "WARN", "OK", "OK"]
