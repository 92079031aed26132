"""Settings of the election: what is understood, and what is refused, with the numbers, before anything is begun."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import App, InvalidInput, Worker, WorkerSettings, open_store
from headrace.connection import explain
from headrace.election.timings import FAST, RELAXED, STANDARD
from headrace.leadership.locks import beside, chain, check
from headrace.setting_errors import InvalidSettings
from headrace.stores import Store
from headrace.stores.memory import MemoryStore

REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HEADRACE_"):
            monkeypatch.delenv(name)


def refusal(**given: Any) -> str:
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(**given)
    return "\n".join(explain(refused.value))


def backends(store: Store, **given: Any) -> tuple[str, ...]:
    place = beside(store, "emails")
    assert place is not None
    return chain(WorkerSettings(**given), place())


async def test_unset_the_lock_lies_beside_the_queue() -> None:
    assert backends(open_store(REDIS)) == ("redis",)
    assert backends(MemoryStore()) == ("memory",)
    assert backends(open_store(REDIS), leader_backends="none") == ()
    assert WorkerSettings().leader_timings(exclusive=False) == RELAXED
    assert WorkerSettings().leader_timings(exclusive=True) == STANDARD


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mongo").write_text("mongodb://127.0.0.1/x\n")
    for name, value in {
        "BACKENDS": "lease, mongo,redis",
        "LEASE_NAME": "emails-leader",
        "LEASE_NAMESPACE": "mail",
        "MONGO_URL_FILE": str(tmp_path / "mongo"),
        "PROFILE": "fast",
    }.items():
        monkeypatch.setenv(f"HEADRACE_LEADER_{name}", value)
    settings = WorkerSettings()
    assert settings.leader_backends == ("lease", "mongo", "redis")
    assert (settings.leader_lease_name, settings.leader_lease_namespace) == ("emails-leader", "mail")
    assert settings.mongo_url() == "mongodb://127.0.0.1/x"
    assert settings.leader_timings(exclusive=False) == FAST == settings.leader_timings(exclusive=True)


def test_single_timings_bring_the_others_along() -> None:
    assert WorkerSettings(leader_retry_period=2).leader_timings(exclusive=False) == STANDARD
    slow = WorkerSettings(leader_lease_duration=60, leader_renew_deadline=40, leader_retry_period=10)
    timings = slow.leader_timings(exclusive=False)
    assert (timings.fence_ttl, timings.call_timeout, timings.failback_after) == (60, 2.5, 120)
    hurried = WorkerSettings(leader_profile="fast", leader_call_timeout=0.5).leader_timings(exclusive=True)
    assert (hurried.lease_duration, hurried.call_timeout) == (4, 0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"leader_lease_duration": 14},
            "HEADRACE_LEADER_LEASE_DURATION 14 is below 15 (1.5 x HEADRACE_LEADER_RENEW_DEADLINE 10); "
            "set it to at least 15",
        ),
        (
            {"leader_profile": "relaxed", "leader_lease_duration": 20},
            "HEADRACE_LEADER_LEASE_DURATION 20 is below 30 (1.5 x HEADRACE_LEADER_RENEW_DEADLINE 20); "
            "set it to at least 30",
        ),
        (
            {"leader_retry_period": 8},
            "HEADRACE_LEADER_RENEW_DEADLINE 10 is below 17 (HEADRACE_LEADER_RETRY_PERIOD 8 + 2 x "
            "(HEADRACE_LEADER_CALL_TIMEOUT 2.5 + 2), or three tries do not fit); set it to at least 17",
        ),
        (
            {"leader_call_timeout": 3.2},
            "HEADRACE_LEADER_CALL_TIMEOUT 3.2 is above 3 ((HEADRACE_LEADER_RENEW_DEADLINE 10 - "
            "HEADRACE_LEADER_RETRY_PERIOD 2 / 2) / 3); set it to at most 3",
        ),
        ({"leader_lease_duration": 301}, "HEADRACE_LEADER_LEASE_DURATION: 301 is above 300"),
        ({"leader_lease_duration": 15.5}, "HEADRACE_LEADER_LEASE_DURATION: 15.5 is not a whole number"),
        (
            {"leader_backends": "redis,lease"},
            "HEADRACE_LEADER_BACKENDS: is 'redis, lease'; the order of rank is lease, mongo, redis, each once: "
            "give lease,redis",
        ),
        (
            {"leader_backends": "lease,lease,redis"},
            "HEADRACE_LEADER_BACKENDS: is 'lease, lease, redis'; the order of rank is lease, mongo, redis, each once: "
            "give lease,redis",
        ),
        (
            {"leader_backends": "lease,etcd"},
            "HEADRACE_LEADER_BACKENDS: 'etcd' is unknown; give 'lease', 'mongo', 'redis', 'memory' or 'none'",
        ),
        ({"leader_backends": "none,redis"}, "HEADRACE_LEADER_BACKENDS: names none beside others; give none alone"),
        (
            {"leader_backends": "redis,memory"},
            "HEADRACE_LEADER_BACKENDS: names memory beside others; memory is for a store in memory, alone",
        ),
        (
            {"leader_backends": ","},
            "HEADRACE_LEADER_BACKENDS: names no lock; give none to never lead, or leave it unset",
        ),
        (
            {"leader_backends": "mongo"},
            "HEADRACE_LEADER_BACKENDS names mongo, and HEADRACE_LEADER_MONGO_URL_FILE is not set; name a file that "
            "holds it",
        ),
        (
            {"leader_mongo_url_file": "/etc/mongo", "leader_backends": "lease,redis"},
            "HEADRACE_LEADER_MONGO_URL_FILE is set, but HEADRACE_LEADER_BACKENDS (lease,redis) lacks mongo; add it, as "
            "in mongo,redis",
        ),
        (
            {"leader_lease_name": "x"},
            "HEADRACE_LEADER_LEASE_NAME is set, but HEADRACE_LEADER_BACKENDS (unset) lacks lease; add it, as in "
            "lease,redis",
        ),
        (
            {"leader_backends": "lease", "leader_lease_name": "leader", "queues": "a,b"},
            "HEADRACE_LEADER_LEASE_NAME 'leader' is one Lease for 2 queues; put {queue} into it, as in {queue}-leader",
        ),
        (
            {"leader_backends": "lease", "leader_lease_name": "Leader!"},
            "HEADRACE_LEADER_LEASE_NAME 'Leader!' cannot be the name of a Lease; use lower-case letters, digits and "
            "'-'",
        ),
        (
            {"leader_profile": "slow"},
            "HEADRACE_LEADER_PROFILE: 'slow' is unknown; give 'relaxed', 'standard' or 'fast'",
        ),
    ],
)
def test_a_broken_configuration_is_refused_with_the_numbers(given: dict[str, Any], message: str) -> None:
    assert refusal(**given) == message


def test_names_of_leases_are_valid_short_and_those_of_one_queue_in_one_place() -> None:
    settings = WorkerSettings(prefix="Mail_System", queues=("a" * 63,))
    name = settings.lease_name("a" * 63, "Mail_System:x", "127.0.0.1:6379/0")
    assert name.startswith("mail-system-aaaa")
    assert len(name) <= 63
    assert name == settings.lease_name("a" * 63, "Mail_System:x", "127.0.0.1:6379/0")
    assert name != settings.lease_name("a" * 63, "Mail_System:x", "127.0.0.1:6379/1")
    given = WorkerSettings(leader_backends="lease", leader_lease_name="{queue}-leader", queues="a,b")
    assert given.lease_name("b", "", "") == "b-leader"


def usable(store: Store, **given: Any) -> None:
    place = beside(store, "emails")
    assert place is not None
    check(WorkerSettings(**given), place())


async def test_a_lock_of_another_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="names redis, but the store is memory; name memory instead"):
        usable(MemoryStore(), leader_backends="redis")
    with pytest.raises(InvalidInput, match="names memory, but the store is redis; name redis instead"):
        usable(open_store(REDIS), leader_backends="memory")


@pytest.mark.parametrize(
    ("backend", "package", "extra"), [("lease", "kubernetes", "kubernetes"), ("mongo", "pymongo", "mongo")]
)
async def test_a_lock_whose_package_is_not_installed_is_left_out_and_refused_as_the_only_one(
    backend: str,
    package: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "url").write_text("mongodb://127.0.0.1/x")
    monkeypatch.setitem(sys.modules, package, None)
    given = {"leader_mongo_url_file": tmp_path / "url"} if backend == "mongo" else {}
    with pytest.raises(InvalidInput, match=rf"names {backend}, which needs {package}; install headrace\[{extra}\]"):
        usable(open_store(REDIS), leader_backends=backend, **given)
    place = beside(open_store(REDIS), "emails")
    assert place is not None
    settings = WorkerSettings(leader_backends=f"{backend},redis", **given)  # type: ignore[arg-type]
    assert not caplog.records
    check(settings, place())
    assert chain(settings, place()) == ("redis",)
    (told,) = caplog.records
    assert told.levelname == "ERROR"
    assert f"names {backend}, which needs {package}; install headrace[{extra}]" in told.getMessage()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        ("", "is empty"),
        ("mongodb://user:secret-password@host:port/", "cannot be parsed"),
    ],
)
async def test_a_worker_does_not_start_with_a_url_that_cannot_be_used_and_shows_none(
    content: str | None, problem: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "url").write_text(content)
    settings = WorkerSettings(leader_backends=("mongo",), leader_mongo_url_file=tmp_path / "url")
    with pytest.raises(InvalidInput, match=problem) as refused:
        await Worker(App(), MemoryStore(), settings).run()
    assert "secret-password" not in str(refused.value)
