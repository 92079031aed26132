"""Dependencies: made before the first job, shared by the handlers, closed in reverse after the last one has ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, DependencyFailed, Store, Worker
from headrace.stores import open_store
from headrace.stores.memory import MemoryStore
from headrace.testing import TestQueue
from headrace.worker import lifespans
from tests.integration.worker.processes import Start, ended
from tests.integration.worker.support import Running, empty, eventually, put, queue, settings, sizes, working
from tests.services.redis import RedisServer


class Pool:
    def __init__(self, size: int) -> None:
        self.size = size


def application(order: list[str]) -> App:
    app = App()

    @app.dependency
    def size() -> int:
        order.append("size made")
        return 3

    @app.dependency
    async def pool(size: int) -> AsyncIterator[Pool]:
        order.append("pool made")
        yield Pool(size)
        order.append("pool closed")

    @app.dependency
    def cache(pool: Pool) -> Iterator[dict[str, Any]]:
        order.append("cache made")
        yield {"pool": pool}
        order.append("cache closed")

    @app.dependency
    @asynccontextmanager
    async def group() -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
        order.append("group left")

    return app


async def test_dependencies_are_made_once_and_closed_in_reverse(store: Store) -> None:
    order: list[str] = []
    seen: list[Any] = []
    app = application(order)

    @app.handler("async")
    async def on_loop(ctx: Context, payload: Any, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        order.append("ran")
        seen.append((pool, pool.size, type(tasks)))

    @app.handler("plain")
    def in_thread(ctx: Context, payload: int, cache: Any, *, size: int = 0) -> None:
        order.append("ran")
        seen.append((cache["pool"], size, asyncio.TaskGroup))

    producer = await queue(store)
    await put(producer, "async", [None])
    await put(producer, "plain", [1])
    async with working(app, store):
        await eventually(lambda: empty(store))
    assert order == [
        "size made",
        "pool made",
        "cache made",
        "ran",
        "ran",
        "group left",
        "cache closed",
        "pool closed",
    ]
    assert len({pool for pool, *_ in seen}) == 1
    assert {rest for _, *rest in seen for rest in [tuple(rest)]} == {(3, asyncio.TaskGroup)}


async def test_what_cannot_be_made_ends_the_worker_before_it_takes_a_job(store: Store) -> None:
    app, order = App(), []

    @app.dependency
    async def pool() -> AsyncIterator[int]:
        yield 1
        order.append("pool closed")

    @app.dependency
    async def database(pool: int) -> str:
        raise ConnectionRefusedError("nobody listens there")

    @app.handler("send")
    async def send(ctx: Context, payload: Any, database: str) -> None:
        order.append("ran")

    producer = await queue(store)
    await put(producer, "send", [None])
    worker = Worker(app, store, settings())
    with pytest.raises(
        DependencyFailed, match="dependency 'database' could not be made: ConnectionRefusedError: nobody"
    ):
        await worker.run()
    assert not worker.started.is_set()
    assert order == ["pool closed"]
    assert await sizes(store) == {"ready": 1}


BROKEN = {
    "dependency": (
        "async def database() -> str:\n    raise OSError('no route to the database')\n\napp.dependency(database)\n",
        "Error: dependency 'database' could not be made: OSError: no route to the database\n",
    ),
    "process": (
        "import os\nif os.environ.get('IN_WORKER') == str(os.getppid()):\n    raise RuntimeError('not here')\n"
        "os.environ['IN_WORKER'] = str(os.getpid())\n\n"
        "@app.handler('render', process=True)\ndef render(ctx, payload): ...\n",
        "Error: a process for handlers could not import the handlers: RuntimeError: not here\n",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_worker_process_that_cannot_start_says_why_and_takes_no_job(
    server: RedisServer, prefix: str, start: Start, tmp_path: Path, what: str
) -> None:
    module, told = BROKEN[what]
    (tmp_path / "broken.py").write_text(
        f"from headrace import App\napp = App()\n{module}\n@app.handler('send')\ndef send(ctx, payload): ...\n"
    )
    store = open_store(server.url, prefix)
    producer = await queue(store)
    await put(producer, "send", [None])
    worker = start("only", application="broken:app")
    assert await ended(worker) == 1
    assert told in worker.log.read_text()
    assert "Traceback" not in worker.log.read_text()
    assert await sizes(store) == {"ready": 1}
    await store.close()


async def test_a_worker_that_is_stopped_while_it_makes_its_dependencies_ends(store: Store) -> None:
    app, order, reached = App(), [], asyncio.Event()

    @app.dependency
    async def pool() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0.2)
        order.append("pool closed")

    @app.dependency
    async def never() -> None:
        reached.set()
        await asyncio.Event().wait()

    await queue(store)
    running = Running(app, store)
    await reached.wait()
    assert (await running.stop()).clean
    assert order == ["pool closed"]
    assert not running.worker.started.is_set()


async def test_dependencies_are_closed_after_the_last_handler_has_ended(store: Store) -> None:
    app, order, began, may_end = App(), [], threading.Event(), threading.Event()

    @app.dependency
    async def pool() -> AsyncIterator[int]:
        yield 1
        order.append("closed")

    @app.handler("plain")
    def plain(ctx: Context, payload: Any, pool: int) -> None:
        began.set()
        may_end.wait(60)
        order.append("ended")

    producer = await queue(store)
    await put(producer, "plain", [None])
    async with working(app, store) as running:
        await eventually(began.is_set)
        stopping = asyncio.create_task(running.stop())
        await eventually(lambda: sizes(store))
        assert order == []
        may_end.set()
        assert (await stopping).clean
    assert order == ["ended", "closed"]


async def test_one_that_cannot_be_closed_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.worker.lifecycle.DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(lifespans, "CANCEL_SECONDS", 20)
    app, order = App(), []

    @app.dependency
    async def first() -> AsyncIterator[int]:
        yield 1
        order.append("first closed")

    @app.dependency
    async def fails() -> AsyncIterator[int]:
        yield 1
        raise OSError("cannot be closed")

    @app.dependency
    async def hangs() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    store = MemoryStore()
    await queue(store)
    with caplog.at_level(logging.ERROR):
        async with working(app, store, grace_seconds=0):
            pass
    assert order == ["first closed"]
    assert "dependency 'hangs' was not closed within 0.2 s and is given up" in caplog.text
    assert "closing dependency 'fails' failed" in caplog.text


async def test_tests_put_values_in_the_place_of_dependencies() -> None:
    order: list[str] = []
    app = application(order)
    seen = []

    @app.handler("send")
    async def send(ctx: Context, payload: Any, cache: Any) -> None:
        seen.append(cache)

    async with TestQueue(app.overriding(cache={"fake": True}, pool=None)) as kit:
        await kit.enqueue("send")
        (run,) = await kit.run_until_idle()
    assert run.outcome == "succeeded"
    assert seen == [{"fake": True}]
    assert order == ["size made", "group left"]
    async with TestQueue(app) as kit:
        await kit.enqueue("send")
        await kit.run_until_idle()
    assert isinstance(seen[1]["pool"], Pool)
    assert order[-2:] == ["cache closed", "pool closed"]
