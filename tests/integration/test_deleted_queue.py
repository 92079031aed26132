"""What is left in Redis of a queue that was deleted, and ``headrace queue delete``."""

from __future__ import annotations

import asyncio
import json

import pytest
import redis

from headrace.cli.main import app
from headrace.deletion import delete_queue
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.stores import open_store
from headrace.stores.base import GRAVE_TTL_MS, TOMBSTONE_TTL_MS, Unknown
from headrace.stores.redis import RedisStore
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    new,
    ref,
    settled,
)
from tests.integration.terminal import at_a_terminal
from tests.services.redis import RedisServer, RedisServers, flavours


async def test_J21_a_deleted_queue_leaves_tombstones_and_a_grave_that_pass(
    redis_server: RedisServer, prefix: str
) -> None:
    store = RedisStore(redis_server.url, prefix=prefix)
    await created(store, 2)
    worker = Worker(store)
    for job_id in ("dead", "parked", "retry", "leased"):
        await enqueue(store, job_id, partitions=2)
        claim = await worker.claim()
        match job_id:
            case "dead":
                await store.fail(ref(), failures(claim, None))
            case "parked":
                await store.park(ref(), [Unknown(*settled(claim)[0], "strange")])
            case "retry":
                await store.fail(ref(), failures(claim, LONG_MS))
    await enqueue(store, "ready", new("later", -LONG_MS), partitions=2)
    await store.tick(QUEUE, "w")
    await promote(store, QUEUE, 2, 1)
    await delete_queue(store, QUEUE)
    await store.tick(QUEUE, "w")  # a worker that still runs
    kept = {f"{{{prefix}:{QUEUE}:{label}}}:meta": TOMBSTONE_TTL_MS for label in ("1:0", "1:1", "2:0")}
    kept |= {f"{{{prefix}:{QUEUE}}}:grave": GRAVE_TTL_MS, f"{{{prefix}:{QUEUE}}}:workers": 3_600_000}
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        assert set(client.scan_iter(f"{{{prefix}:{QUEUE}*", count=1000)) == kept.keys()
        for key, ttl in kept.items():
            assert 0 < client.pttl(key) <= ttl
    await promote(store, QUEUE, 1, 1)
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        for key in (f"{{{prefix}:{QUEUE}:1:0}}:meta", f"{{{prefix}:{QUEUE}}}:topology"):
            assert client.pttl(key) == -1  # a new queue does not pass
    await store.close()


@pytest.fixture
def server(redis_servers: RedisServers, prefix: str, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    server = redis_servers.get(flavours()[0])
    monkeypatch.setenv("HEADRACE_REDIS_URL", server.url)
    monkeypatch.setenv("HEADRACE_PREFIX", prefix)
    return server


async def fill(url: str, prefix: str, owner: dict[str, str] | None = None) -> None:
    store = open_store(url, prefix)
    await promote(store, QUEUE, 1, 2, owner=owner)
    producer = Producer(store)
    for job_id in "abc":
        await producer.enqueue(QUEUE, "send", id=job_id)
    await producer.aclose()


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app(arguments)
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_J21_deleting_needs_consent_and_counts_first(
    server: RedisServer, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(server.url, prefix, {"namespace": "mail", "name": "emails", "uid": "u"}))
    code, out, err = call(capsys, "queue", "delete", QUEUE, "--dry-run", "-o", "json")
    assert (code, json.loads(out)["jobs"]) == (0, {"ready": 3})
    assert "belongs to the Queue object mail/emails" in err
    code, out, err = call(capsys, "queue", "delete", QUEUE)
    assert (code, out) == (1, "")
    assert "delete queue emails with 3 ready; without a terminal give --yes" in err
    code, out, err = call(capsys, "queue", "delete", QUEUE, "--only-if-empty", "--yes")
    assert code == 1
    assert "is not empty: 3 ready" in err
    code, out, _ = call(capsys, "queue", "delete", QUEUE, "--yes", "-o", "json")
    assert (code, json.loads(out)) == (0, {"queue": QUEUE, "partitions_deleted": 2, "jobs": {"ready": 3}})
    code, out, _ = call(capsys, "queue", "delete", QUEUE, "--yes")
    assert code == 0
    code, _, err = call(capsys, "queue", "delete", "other", "--yes")
    assert code == 1
    assert "does not exist" in err


@pytest.mark.parametrize(("typed", "code"), [(QUEUE, 0), ("yes", 2)])
def test_J21_a_person_types_the_name(server: RedisServer, prefix: str, typed: str, code: int) -> None:
    asyncio.run(fill(server.url, prefix))
    ended, shown = at_a_terminal(("queue", "delete", QUEUE), "Type the name", f"{typed}\n")
    assert "delete queue emails with 3 ready" in shown
    assert ended == code
    with redis.Redis.from_url(server.url) as client:
        left = client.exists(*(f"{{{prefix}:{QUEUE}:1:{partition}}}:jobs" for partition in range(2)))
        assert bool(left) == (code != 0)
