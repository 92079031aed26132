"""``headrace audit`` on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from headrace.errors import JobUnlisted
from headrace.job_spec import JobSpec
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.stores import open_store
from headrace.stores.base import Failure
from headrace.topology import PartitionRef
from headrace.withdrawal import cancel_jobs
from tests.integration.conftest import Run
from tests.integration.terminal import at_a_terminal
from tests.services.redis import RedisServers, flavours

AT = PartitionRef("emails", 1, 0)


@pytest.fixture
def client(redis_servers: RedisServers) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_servers.get(flavours()[0]).url, decode_responses=True) as client:
        yield client


@pytest.fixture
def key(prefix: str) -> str:
    return f"{{{prefix}:emails:1:0}}:"


@pytest.fixture
def run(run: Run, server_url: str, prefix: str) -> Run:
    asyncio.run(fill(server_url, prefix))
    return run


async def fill(url: str, prefix: str) -> None:
    store = open_store(url, prefix)
    await promote(store, "emails", 1, 1)
    producer = Producer(store)
    await producer.enqueue("emails", "send", id="dead")
    claim = await store.claim(AT, "w", 1, 1, 60_000)
    await store.fail(AT, [Failure(claim.jobs[0].key, claim.token, None, "boom")])
    await producer.enqueue_many("emails", [JobSpec("send", id=name, delay=3600) for name in "abc"])
    await producer.enqueue("emails", "send", id="00000000-0000-4000-8000-000000000001")
    await store.close()


def leftovers(run: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("audit", "emails", "-o", "json", *arguments)[1])["leftovers"]
    return found


def test_J10_a_sound_queue_is_told_in_a_line(run: Run) -> None:
    code, out, err = run("audit", "emails")
    assert (code, out, err) == (0, "4 job(s) in 1 partition(s): 0 leftover(s), 0 repaired\n", "")
    assert leftovers(run) == []


def test_J10_leftovers_are_named_and_the_code_tells(run: Run, client: redis.Redis, key: str) -> None:
    client.zrem(f"{key}scheduled", "1b")
    client.hdel(f"{key}jobs", b"\x00" * 6 + b"\x40\x00\x80" + b"\x00" * 6 + b"\x01")
    client.hdel(f"{key}letters", *client.hkeys(f"{key}letters"))
    code, out, _ = run("audit", "emails")
    assert code == 1
    rows = {tuple(line.split("  ")[0:1]) + tuple(line.split()[-3:-1]) for line in out.splitlines()[1:4]}
    assert rows == {("1:0", "jobs", "b"), ("1:0", "r1", "00000000-0000-4000-8000-000000000001"), *_dead(out)}
    assert out.splitlines()[0].split() == ["PARTITION", "KIND", "KEY", "NAME", "REPAIRED"]
    found = leftovers(run)
    assert [each["kind"] for each in found] == ["index without record", "time without letter", "record without index"]
    assert not any(each["repaired"] for each in found)


def _dead(out: str) -> set[tuple[str, str, str]]:
    line = next(line for line in out.splitlines() if "time without letter" in line)
    assert line.split()[-2].startswith("dead@")
    return {("1:0", "dead", line.split()[-2])}


def test_J10_repair_asks_first_and_mends(run: Run, client: redis.Redis, key: str) -> None:
    client.zrem(f"{key}scheduled", "1a", "1b")
    code, out, err = run("audit", "emails", "--repair")
    assert (code, out) == (1, "")
    assert "2 record without index" in err
    assert "this would repair 2 leftover(s); without a terminal give --yes" in err
    assert len(leftovers(run)) == 2
    code, out, err = run("audit", "emails", "--repair", "--yes")
    assert code == 0
    assert out.endswith("4 job(s) in 1 partition(s): 0 leftover(s), 2 repaired\n")
    assert leftovers(run) == []
    assert None not in (client.lpos(f"{key}r1", "a"), client.lpos(f"{key}r1", "b"))
    code, out, _ = run("audit", "emails", "--repair")
    assert code == 0  # there is nothing to ask about


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 2)])
def test_J10_a_person_is_asked(run: Run, client: redis.Redis, key: str, typed: str, code: int) -> None:
    client.zrem(f"{key}scheduled", "1a")
    ended, shown = at_a_terminal(("audit", "emails", "--repair"), "[y/N]", typed)
    assert "repair 1 leftover(s) of queue emails?" in shown
    assert ended == code
    assert len(leftovers(run)) == (0 if code == 0 else 1)


def test_J10_scan_says_so_and_finds_what_nothing_points_to(run: Run, client: redis.Redis, key: str) -> None:
    client.hset(key.replace("1:0", "9:4") + "jobs", "x", "x")
    client.set(f"{key}notes", "x")
    client.hset(key.replace("emails:1:0", "forgotten:3:1") + "jobs", "x", "x")
    client.set(key.replace("emails:1:0", "No queue!"), "x")
    client.set(key.replace(":emails:1:0", "") + "strays", "x")
    assert leftovers(run) == []
    code, out, err = run("audit", "emails", "--scan")
    assert code == 1
    assert "looking through all keys of the server" in err
    assert "unknown key" in out
    assert "partition not listed" in out
    assert "queue without topology" in out
    assert "forgotten" in out
    assert out.count("unknown key") == 3
    assert "unknown key" in err  # with what to do


def test_J10_what_is_damaged_is_told_with_its_remedy(run: Run, client: redis.Redis, key: str) -> None:
    client.delete(f"{key}retry")
    client.set(f"{key}retry", "x")
    queue = key.replace(":1:0", "")
    client.set(f"{queue}topology", "half of")
    code, out, err = run("audit", "emails")
    assert code == 1
    assert "topology unreadable" in out
    assert "headrace topology promote emails" in err
    assert leftovers(run)[0]["remedy"].startswith("bring the key back")
    client.delete(f"{queue}topology")
    run("topology", "promote", "emails", "--version", "1", "--partitions", "1")
    code, out, err = run("audit", "emails")
    assert (code, "key of another kind" in out, "string" in out) == (1, True, True)
    assert "renames it to foreign-retry" in err
    code, out, _ = run("audit", "emails", "--repair", "--yes")
    assert code == 0
    assert client.get(f"{key}foreign-retry") == "x"


def test_J10_a_queue_that_is_not_there(run: Run) -> None:
    code, _, err = run("audit", "other")
    assert code == 1
    assert "does not exist" in err


def test_a_job_that_waits_nowhere_is_searched_for_once_and_the_audit_is_named(
    run: Run, client: redis.Redis, key: str, server_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.zrem(f"{key}scheduled", "1a")

    async def cancelled() -> list[str]:
        store = open_store(server_url, prefix)
        searched, purge = list[str](), store.purge

        async def counted(ref: PartitionRef, index: Any, *rest: Any, **more: Any) -> Any:
            searched.append(index)
            return await purge(ref, index, *rest, **more)

        monkeypatch.setattr(store, "purge", counted)
        with pytest.raises(JobUnlisted, match="job a is held"):
            await cancel_jobs(store, "emails", ["a", "b"])
        await store.close()
        return searched

    searched = asyncio.run(cancelled())
    # One list holds a job, which is looked at once; the step after it ends the search.
    assert sorted(searched) == ["alone", "r0", "r1", "r1", "r2", "suspects"]
    assert client.zscore(f"{key}scheduled", "1b") is None  # the other one is cancelled
    code, _, error = run("job", "cancel", "emails", "a")
    assert (code, "`headrace audit emails`" in error, "leads" in error) == (1, True, False)
    assert run("audit", "emails", "--repair", "--yes")[0] == 0
    assert run("job", "cancel", "emails", "a")[0] == 0
