"""A running worker whose credentials are rotated: the file of its URL changes, as a mounted Secret does."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from headrace import Store
from headrace.stores import open_store
from tests.cluster.guard import Guard
from tests.integration.worker.processes import Start, ended, notes, told_lost
from tests.integration.worker.support import empty, eventually, put, queue
from tests.services.redis import RedisServer, flavours


class Secret:
    """A file that is replaced as a kubelet does it: at once, by another one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "redis-url"

    def write(self, url: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(url + "\n")
        os.replace(fresh, self.path)


@pytest.fixture
def own_server(process_guard: Guard) -> Iterator[RedisServer]:
    with RedisServer(flavours()[0], guard=process_guard) as server:
        yield server


@pytest.fixture
async def admin(own_server: RedisServer) -> AsyncIterator[Redis]:
    client = Redis.from_url(own_server.url, decode_responses=True)
    yield client
    await client.aclose()


@pytest.fixture
async def store(own_server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(own_server.url, prefix)
    yield opened
    await opened.close()


async def allow(admin: Redis, user: str, password: str) -> None:
    await admin.acl_setuser(
        user, enabled=True, passwords=f"+{password}", reset_passwords=True, keys="*", channels="*", commands=["+@all"]
    )


def url_of(server: RedisServer, user: str, password: str) -> str:
    return server.url.replace("redis://", f"redis://{user}:{password}@")


async def connections(admin: Redis, user: str) -> int:
    return sum(client["user"] == user for client in await admin.client_list())


async def test_E16_O10_a_worker_goes_over_to_another_user_without_restart_or_lost_job(
    store: Store, own_server: RedisServer, admin: Redis, start: Start, tmp_path: Path
) -> None:
    secret = Secret(tmp_path)
    await allow(admin, "before", "hunter2")
    secret.write(url_of(own_server, "before", "hunter2"))
    producer = await queue(store, partitions=2)
    worker = start("only", "-c", "4", url="", REDIS_URL_FILE=secret.path, POLL_MS=300, LEASE_MS=1500)
    jobs = await put(producer, "note", [0.02] * 100)
    (held,) = await put(producer, "wait", [None])
    await eventually(lambda: len(notes(tmp_path)) > 10)

    await allow(admin, "after", "hunter3")
    secret.write(url_of(own_server, "after", "hunter3"))
    jobs += await put(producer, "note", [0.02] * 100)
    await eventually(lambda: "going over to" in worker.log.read_text())
    # Each of its connections, the waiting one and the lease keeper's too.
    await eventually(lambda: connections(admin, "after"))
    await eventually(lambda: _none(admin, "before"))
    await admin.acl_deluser("before")

    jobs += await put(producer, "note", [0] * 10)
    (tmp_path / "go-only").touch()
    await eventually(lambda: empty(store))
    ran = Counter(entry[2] for entry in notes(tmp_path) if entry[1] == "ran")
    assert ran == Counter(jobs)
    assert ["only", "ended", held, *next(each[3:] for each in notes(tmp_path) if each[2] == held)] in notes(tmp_path)
    assert worker.running
    assert told_lost(worker) == 0
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert "hunter" not in worker.log.read_text()


async def _none(admin: Redis, user: str) -> bool:
    return await connections(admin, user) == 0


async def test_E16_a_password_that_was_changed_first_is_caught_up_with(
    store: Store, own_server: RedisServer, admin: Redis, start: Start, tmp_path: Path
) -> None:
    """The order of the careless: the old password is void and its connections are cut before the file changes."""
    secret = Secret(tmp_path)
    await allow(admin, "app", "hunter2")
    secret.write(url_of(own_server, "app", "hunter2"))
    producer = await queue(store)
    worker = start("only", url="", REDIS_URL_FILE=secret.path, POLL_MS=300, LEASE_MS=60_000)
    await put(producer, "note", [0])
    (held,) = await put(producer, "wait", [None])
    await eventually(lambda: len(notes(tmp_path)) == 2)
    await eventually(store.read_marker)  # by which it will know the data set again

    await allow(admin, "app", "hunter3")
    await admin.client_kill_filter(user="app")
    await eventually(lambda: "going on trying" in worker.log.read_text())
    (tmp_path / "go-only").touch()
    await put(producer, "note", [0])
    secret.write(url_of(own_server, "app", "hunter3"))
    await eventually(lambda: empty(store))
    assert Counter(entry[2] for entry in notes(tmp_path) if entry[1] == "ended") == {held: 1}
    assert told_lost(worker) == 0
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0


async def test_E16_a_wrong_value_and_another_data_set_change_nothing(
    store: Store, own_server: RedisServer, admin: Redis, start: Start, tmp_path: Path, process_guard: Guard, prefix: str
) -> None:
    secret = Secret(tmp_path)
    await allow(admin, "app", "hunter2")
    secret.write(url_of(own_server, "app", "hunter2"))
    producer = await queue(store)
    await store.write_marker("ours")
    worker = start("only", url="", REDIS_URL_FILE=secret.path, POLL_MS=300)
    await put(producer, "note", [0])
    await eventually(lambda: notes(tmp_path))
    secret.write(url_of(own_server, "app", "hunter9"))
    await eventually(lambda: "the old connection stays: redis" in worker.log.read_text())
    await put(producer, "note", [0])
    await eventually(lambda: len(notes(tmp_path)) == 2)
    with RedisServer(flavours()[0], guard=process_guard) as other:
        await queue(elsewhere := open_store(other.url, prefix))
        await elsewhere.write_marker("theirs")
        secret.write(other.url)
        # A second line within the interval is not written; with a connection of its own it goes nowhere either.
        answered = Redis.from_url(other.url, decode_responses=True)
        await eventually(lambda: _asked_for_its_mark(answered))
        await put(producer, "note", [0])
        await eventually(lambda: len(notes(tmp_path)) == 3)
        assert await connections(admin, "app") > 0
        assert worker.log.read_text().count("the old connection stays") == 1
        await answered.aclose()
        await elsewhere.close()
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert "hunter" not in worker.log.read_text()


async def _asked_for_its_mark(admin: Redis) -> bool:
    stats = await admin.info("commandstats")
    return bool(stats.get("cmdstat_info", {}).get("calls", 0) >= 1 and stats["cmdstat_get"]["calls"] >= 2)
