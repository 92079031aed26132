"""A topology that this Headrace cannot read: everybody says so by the queue's name, and workers go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from headrace import App, Context, Producer, TopologyUnreadable
from headrace.cli.main import app as command_line
from headrace.lifecycle import promote
from headrace.stores import open_store
from headrace.stores.redis.keys import Keys
from headrace.topology import PartitionRef
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, eventually, working
from tests.services.redis import RedisServer


@pytest.fixture
async def server(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_server.url)
    yield client
    await client.aclose()


async def test_workers_say_it_once_and_go_on_with_what_they_know(
    server: Redis,
    redis_server: RedisServer,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.05)
    store, ran, key = open_store(redis_server.url, prefix), list[str](), Keys(prefix).queue(QUEUE, "topology")
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: object) -> None:
        ran.append(ctx.job.id)

    newer = (await promote(store, QUEUE, 1, 1)).to_json().replace('"format":1', '"format":9')
    producer = Producer(store)
    await producer.enqueue(QUEUE, "send", id="before")
    async with working(app, store):
        await eventually(lambda: ran == ["before"])
        await server.set(key, newer)
        with pytest.raises(TopologyUnreadable, match=r"queue 'emails': .*format 9 is not 1; upgrade Headrace"):
            await Producer(store).enqueue(QUEUE, "send")
        remedy = "upgrade Headrace here; `headrace audit emails` tells what can be done"
        text = f"format 9 is not 1; {remedy}; going on with the settings that are known"
        await eventually(lambda: text in caplog.text)
        await producer.enqueue(QUEUE, "send", id="meanwhile", delay=0.1)  # it takes a timer too
        await eventually(lambda: ran == ["before", "meanwhile"])
        assert caplog.text.count(text) == 1
        assert (await store.counts([PartitionRef(QUEUE, 1, 0)]))[0].dead == 0
    assert "unexpectedly" not in caplog.text
    await store.close()


async def test_a_worker_starts_and_waits_for_a_topology_that_it_can_read(
    server: Redis, redis_server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.05)
    store, key, ran = open_store(redis_server.url, prefix), Keys(prefix).queue(QUEUE, "topology"), list[str]()
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: object) -> None:
        ran.append(ctx.job.id)

    await server.set(key, "damaged")
    async with working(app, store):
        await server.delete(key)
        await promote(store, QUEUE, 1, 1)
        await Producer(store).enqueue(QUEUE, "send", id="at last")
        await eventually(lambda: ran)
    await store.close()


async def test_commands_end_with_a_clean_error(
    server: Redis,
    redis_server: RedisServer,
    prefix: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", redis_server.url)
    monkeypatch.setenv("HEADRACE_PREFIX", prefix)
    await server.set(Keys(prefix).queue(QUEUE, "topology"), "damaged")

    def show() -> int:
        with pytest.raises(SystemExit) as ended:
            command_line(["topology", "show", QUEUE])
        return int(ended.value.code or 0)

    assert await asyncio.to_thread(show) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("Error: queue 'emails': the stored topology cannot be read")
    assert "Traceback" not in shown.err
