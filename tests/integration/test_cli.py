"""The command line on a real server."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from typing import Any

import pytest

from headrace import Producer, Store
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings
from headrace.stores.base import Beat, Failure
from headrace.topology import PartitionRef
from tests.integration.conftest import Run
from tests.services.redis import RedisServers, flavours


def test_a_queue_is_promoted_shown_and_counted(run: Run) -> None:
    assert run("topology", "promote", "emails", "--version", "1", "--partitions", "2") == (
        0,
        "NAME    VERSION  STATE   PARTITIONS\nemails  1        active  2\n",
        "",
    )
    code, out, _ = run("topology", "show", "emails", "-o", "json")
    shown = json.loads(out)
    assert (code, shown["queue"], shown["active"]) == (0, "emails", 1)
    assert shown["versions"] == {"1": {"partitions": 2, "state": "active"}}
    code, out, _ = run("job", "enqueue", "emails", "send", '{"to": "ada"}', "--id", "welcome-1", "-o", "json")
    placed = json.loads(out)
    assert (code, placed["id"], placed["version"], placed["existing"]) == (0, "welcome-1", 1, False)
    assert run("job", "enqueue", "emails", "send", "--id", "welcome-1")[1].splitlines()[1].endswith("yes")
    assert run("job", "enqueue", "emails", "send", "--delay", "3600")[0] == 0
    code, out, _ = run("status", "emails")
    header, line = out.splitlines()
    sizes = ["READY", "SCHEDULED", "RETRY", "LEASED", "PARKED", "DEAD"]
    assert header.split() == ["NAME", "STATE", "PARTITIONS", *sizes, "OLDEST"]
    assert line.split()[:9] == ["emails:1", "active", "2", "1", "1", "0", "0", "0", "0"]
    code, out, _ = run("status", "emails", "-o", "json")
    (version,) = json.loads(out)["versions"]
    assert (version["ready"], version["scheduled"], len(version["partitions"])) == (1, 1, 2)
    assert sum(partition["ready"] for partition in version["partitions"]) == 1
    assert 0 <= version["oldest_ready_age_ms"] < 60_000
    lines = run("status", "emails", "-v")[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["emails:1", "emails:1:0", "emails:1:1"]


def test_an_unchanged_promote_can_be_told_apart(run: Run) -> None:
    promote = ("topology", "promote", "emails", "--version", "3", "--partitions", "2")
    assert run(*promote, "--error-unchanged")[0] == 0
    assert run(*promote)[0] == 0
    code, out, err = run(*promote, "--error-unchanged")
    assert (code, err) == (3, "")
    assert "emails  3" in out


def test_T8_wrong_promotes_and_completes_are_refused_each_with_its_own_error(run: Run) -> None:
    assert run("topology", "promote", "emails", "--version", "2", "--partitions", "2")[0] == 0
    for arguments, message in [
        (("promote", "emails", "--version", "1", "--partitions", "2"), "version 1 is not above 2"),
        (("promote", "emails", "--version", "3", "--partitions", "0"), "partitions: is 0; give 1 to 1024"),
        (("promote", "emails", "--version", "2", "--partitions", "4"), "already active with 2 partitions"),
        (("complete", "emails", "--version", "2"), "version 2 is active"),
        (("complete", "emails", "--version", "7"), "has no version 7"),
        (("show", "other"), "queue 'other' does not exist in this store"),
    ]:
        code, out, err = run("topology", *arguments)
        assert (code, out) == (1, ""), arguments
        assert message in err
    assert run("status", "other")[0] == 1


def test_an_unknown_queue_is_named_when_a_job_is_enqueued(run: Run) -> None:
    code, out, err = run("job", "enqueue", "nowhere", "send")
    assert (code, out) == (1, "")
    assert "queue 'nowhere' does not exist in this store" in err


def test_a_payload_is_read_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topology", "promote", "emails", "--version", "1", "--partitions", "1")
    monkeypatch.setattr(sys, "stdin", io.StringIO('["a", 1]'))
    assert run("job", "enqueue", "emails", "send", "-")[0] == 0
    assert run("job", "enqueue", "emails", "send", "--run-at", "2100-01-01T00:00:00Z")[0] == 0
    assert run("job", "enqueue", "emails", "send", "--run-at", "2100-01-01T00:00:00")[0] == 1


def test_T1_a_version_with_jobs_is_not_completed_and_the_counts_are_told(run: Run) -> None:
    run("topology", "promote", "emails", "--version", "1", "--partitions", "1")
    run("job", "enqueue", "emails", "send", "--delay", "3600")
    run("topology", "promote", "emails", "--version", "2", "--partitions", "1")
    before = run("topology", "show", "emails", "-o", "json")[1]
    code, out, err = run("topology", "complete", "emails", "--version", "1")
    assert (code, out) == (8, "")
    assert "partition 0: 1 scheduled" in err
    assert run("topology", "show", "emails", "-o", "json")[1] == before


async def test_a_version_with_dead_letters_only_is_pending_and_they_move_to_the_next_one(
    run: Run, store: Store
) -> None:
    await asyncio.to_thread(run, "topology", "promote", "emails", "--version", "1", "--partitions", "1")
    await asyncio.to_thread(run, "job", "enqueue", "emails", "send")
    at = PartitionRef("emails", 1, 0)
    claim = await store.claim(at, "w", 1, 1, 60_000)
    assert await store.fail(at, [Failure(claim.jobs[0].key, claim.token, None, "no")]) == []
    await asyncio.to_thread(run, "topology", "promote", "emails", "--version", "2", "--partitions", "1")
    code, _, err = await asyncio.to_thread(run, "topology", "complete", "emails", "--version", "1")
    assert code == 8
    assert "ClientsMayRetry" in err
    assert [len(await store.dead_letters(PartitionRef("emails", version, 0))) for version in (1, 2)] == [0, 1]


def test_a_drained_version_is_completed(run: Run) -> None:
    run("topology", "promote", "emails", "--version", "1", "--partitions", "2")
    run("topology", "promote", "emails", "--version", "2", "--partitions", "1")
    ends = time.monotonic() + 60
    while (ended := run("topology", "complete", "emails", "--version", "1"))[0] == 8:
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert ended == (0, "NAME    VERSION  STATE   PARTITIONS\nemails  2        active  1\n", "")


def test_a_database_that_is_not_there_is_told(run: Run, redis_servers: RedisServers) -> None:
    server: Any = redis_servers.get(flavours()[0])
    url = f"{server.url.rsplit('/', 1)[0]}/9999"
    code, out, err = run("status", "emails", "--redis-url", url)
    assert (code, out) == (1, "")
    assert "/9999 has no database of that number; give a lower one" in err


def test_refused_credentials_have_an_exit_code_of_their_own(run: Run, redis_servers: RedisServers) -> None:
    url: Any = redis_servers.get(flavours()[0]).url.replace("redis://", "redis://nobody:hunter2@")
    code, out, err = run("status", "emails", "--redis-url", url)
    assert (code, out) == (4, "")
    assert "refused the credentials" in err
    assert "hunter2" not in err


async def test_what_a_queue_overrules_is_shown_beside_a_workers_own_settings(run: Run, store: Store) -> None:
    await promote(store, "emails", 1, 1)
    await configure(store, "emails", QueueSettings(lease_ms=7000))
    arguments = ("worker", "run", "a:b", "-q", "emails", "--lease-ms", "800", "--show-settings", "-o", "json")
    code, out, _ = await asyncio.to_thread(run, *arguments)
    shown = json.loads(out)
    assert code == 0
    assert shown["settings"]["lease_ms"] == {"value": 800, "given_by": "--lease-ms"}
    assert shown["queues"] == {"emails": {"lease_ms": {"value": 7000, "given_by": "queue emails"}}}


async def test_workers_are_listed_and_told_to_claim_nothing(run: Run, store: Store) -> None:
    await store.tick("emails", "w-1", Beat("host-1", 17, "emails-abc", "node-1", 16, 3))
    await store.tick("emails", "w-2", Beat("host-2", 18))
    code, out, _ = await asyncio.to_thread(run, "worker", "list", "emails")
    first, *_ = [line.split() for line in out.splitlines()[1:]]
    assert (code, first[:8]) == (0, ["w-1", "emails-abc", "node-1", "host-1", "17", "16", "3", "-"])
    code, out, _ = await asyncio.to_thread(run, "worker", "stop-claiming", "emails", "w-1", "--seconds", "60")
    assert (code, out) == (0, "1 worker(s) of queue emails claim nothing for 60 s\n")
    code, out, _ = await asyncio.to_thread(run, "worker", "list", "emails", "-o", "json")
    shown = {each["name"]: each for each in json.loads(out)}
    assert 0 < shown["w-1"]["stop_ms"] <= 60_000
    assert (shown["w-2"]["stop_ms"], shown["w-2"]["pid"], shown["w-1"]["in_flight"]) == (None, 18, 3)
    code, out, err = await asyncio.to_thread(run, "worker", "list", "email")
    assert (code, out) == (1, "")
    assert "queue 'email' does not exist" in err
    code, _, err = await asyncio.to_thread(run, "worker", "stop-claiming", "emails", "w-9")
    assert (code, err) == (1, "Error: NAME: 'w-9' is no worker of queue emails; see `headrace worker list emails`\n")
    code, out, _ = await asyncio.to_thread(run, "worker", "stop-claiming", "emails", "w-1", "--seconds", "0")
    assert (code, out) == (0, "1 worker(s) of queue emails claim again\n")
    assert (await store.tick("emails", "w-1")).stop_ms is None


async def test_a_worker_is_described_with_the_jobs_that_it_holds(run: Run, store: Store) -> None:
    await promote(store, "emails", 1, 1)
    await store.tick("emails", "w-1", Beat("host-1", 17, "emails-abc", "node-1", 16, 1))
    await Producer(store).enqueue("emails", "send", id="mine")
    await Producer(store).enqueue("emails", "send", id="theirs")
    for worker in ("w-1", "w-2"):
        assert (await store.claim(PartitionRef("emails", 1, 0), worker, 1, 1, 60_000)).jobs
    code, out, _ = await asyncio.to_thread(run, "worker", "describe", "emails", "w-1", "-o", "json")
    shown = json.loads(out)
    assert (code, shown["name"], shown["state"], shown["leads"], shown["pod"]) == (
        0,
        "w-1",
        "works",
        False,
        "emails-abc",
    )
    (job,) = shown["jobs"]
    assert (job["id"], job["type"], job["partition"], 0 < job["lease_ms"] <= 60_000) == ("mine", "send", 0, True)
    await store.stop_claiming("emails", ["w-1"], 60_000)
    _, out, _ = await asyncio.to_thread(run, "worker", "describe", "emails", "w-1")
    fields = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert (fields["STATE"], fields["NODE"], fields["IN_FLIGHT"]) == ("stops", "node-1", "1")
    assert fields["JOB"].startswith("mine (send), lease for ")
    await store.leave("emails", "w-1")
    _, out, _ = await asyncio.to_thread(run, "worker", "describe", "emails", "w-1", "-o", "json")
    assert json.loads(out)["state"] == "gone"
    code, _, err = await asyncio.to_thread(run, "worker", "describe", "emails", "w-9")
    assert (code, err) == (1, "Error: NAME: 'w-9' is no worker of queue emails; see `headrace worker list emails`\n")
