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
from headrace.schedules.mark import ScheduleMark
from headrace.settings import QueueSettings, Retention
from headrace.stores import open_store
from headrace.stores.base import GRAVE_TTL_MS, TOMBSTONE_TTL_MS, Beat, Fence, Success, Unknown
from headrace.stores.redis import RedisStore
from headrace.stores.redis.keys import PARTITION_KEYS, QUEUE_KEYS
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
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
    await promote(store, QUEUE, 1, 2, settings=QueueSettings(retention=Retention()))
    worker = Worker(store)
    for job_id in ("done", "dead", "parked", "retry", "leased"):
        await enqueue(store, job_id, partitions=2)
        claim = await worker.claim()
        match job_id:
            case "done":
                await store.ack(ref(), settled(claim), [Success("send", 0)])
            case "dead":
                await store.fail(ref(), failures(claim, None))
            case "parked":
                await store.park(ref(), [Unknown(*settled(claim)[0], "strange")])
            case "retry":
                await store.fail(ref(), failures(claim, LONG_MS))
    lanes = (new(f"lane {lane}", lane=b"%d" % lane) for lane in range(3))
    await enqueue(store, *lanes, new("later", -LONG_MS), partitions=2)
    await store.tick(QUEUE, "w", Beat("host", 1, "pod", "node", 1, 1))
    await store.count_work(QUEUE, {"claimed": 1})
    await store.note_schedule(QUEUE, Fence(1, "leader"), "nightly", None, ScheduleMark(1, "0 3 * * *"))
    await store.stop_claiming(QUEUE, ["w"], 60_000)
    await promote(store, QUEUE, 2, 1)
    # Whatever else there may be: what leaders keep, jobs that are on their way between versions, suspects.
    left_by_others = {
        *(store._keys.partition(ref(), name) for name in ("moving", "arrived", "suspects", "alone")),
        *(store._keys.queue(QUEUE, name) for name in ("fence", "lock", "gone", "alarm")),
    }
    with redis.Redis.from_url(redis_server.url) as client:
        for foreign in left_by_others:
            kind = {b"suspects": client.rpush, b"alone": client.rpush}.get(foreign.rpartition(b":")[2])
            if kind is not None:
                kind(foreign, "1a")
            elif foreign.endswith(b"gone"):
                client.zadd(foreign, {"somebody": 1})
            else:
                client.hset(foreign, "field", "value")
        for name in ("hot", "due", "parked"):  # hints that were late
            client.zadd(store._keys.queue(QUEUE, name), {"9:9": 1 << 50})
        there = set(client.scan_iter(f"{{{prefix}:{QUEUE}*", count=1000))
    assert there >= {store._keys.partition(ref(), name) for name in PARTITION_KEYS}
    assert there >= {store._keys.queue(QUEUE, name) for name in QUEUE_KEYS if name != "grave"}
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
    assert call(capsys, "queue", "delete", QUEUE, "--dry-run")[1].split()[-4:] == [QUEUE, "2", "3", "ready"]
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
