"""A store that follows its URL's file: what is proved before it goes over, and what becomes of calls under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.errors import AccessDenied, InvalidInput, StoreUnavailable
from headrace.rotation import LOOK_SECONDS, TOLD_SECONDS, follow
from headrace.stores.base import Counts, Store
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from tests.integration.worker.support import eventually


class Server:
    """What lies behind a URL: a data set, who is let in, and every connection ever opened to it."""

    def __init__(self, data: MemoryStore) -> None:
        self.data = data
        self.refuses: Exception | None = None
        self.opened: list[Connection] = []


class Connection(MemoryStore):
    """A store on the data of a server that can be refused, held up and closed."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.data._data.clock)
        self._data, self._waiters = server.data._data, server.data._waiters
        self.server = server
        self.closed = False
        self.held: asyncio.Event | None = None
        server.opened.append(self)

    def _may(self) -> None:
        assert not self.closed
        if self.server.refuses is not None:
            raise self.server.refuses

    async def check(self) -> None:
        self._may()

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        self._may()
        return await super().counts(refs)

    async def read_marker(self) -> str | None:
        self._may()
        return await super().read_marker()

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        self._may()
        if self.held is not None:
            await self.held.wait()
        assert not self.closed
        return {}

    async def close(self) -> None:
        self.closed = True


class Stage:
    """A file, two URLs of one data set, and one of another."""

    def __init__(self) -> None:
        data = MemoryStore()
        self.servers = {
            "redis://:first@here": Server(data),
            "redis://:second@here": Server(data),
            "redis://:third@elsewhere": Server(MemoryStore()),
        }
        self.file: str | Exception = "redis://:first@here"
        self.now = 100.0
        self.looks = 0
        self.store = follow(self._read, self._open, lambda: self.now)

    def _read(self) -> str:
        self.looks += 1
        if isinstance(self.file, Exception):
            raise self.file
        return self.file

    def _open(self, url: str) -> Store:
        if url not in self.servers:
            raise InvalidInput("store URL", "cannot be parsed", "use another")
        return Connection(self.servers[url])

    def server(self, name: str) -> Server:
        return next(server for url, server in self.servers.items() if name in url)

    async def look(self, after: float = LOOK_SECONDS) -> None:
        """Let the time of the next look come, and wait until it has ended."""
        self.now += after
        looks = self.looks
        await self.call()
        await eventually(lambda: self.looks > looks and not any("look" in str(task) for task in self._tasks()))

    def _tasks(self) -> Any:
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    async def call(self) -> None:
        await self.store.parked(PartitionRef("emails", 1, 0))


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_O10_a_new_url_is_proved_and_used_and_the_old_connection_is_closed(stage: Stage) -> None:
    await stage.call()
    (old,) = stage.server("first").opened
    stage.file = "redis://:second@here"
    await stage.look()
    proof, *none = stage.server("second").opened
    assert (proof.closed, none) == (True, [])
    await stage.call()
    assert not stage.server("second").opened[-1].closed
    await eventually(lambda: old.closed)
    await stage.store.close()
    assert all(each.closed for server in stage.servers.values() for each in server.opened)


async def test_O10_calls_under_way_end_on_the_connection_they_began_on(stage: Stage) -> None:
    (old,) = stage.server("first").opened
    old.held = asyncio.Event()
    waiting = asyncio.create_task(stage.call())
    await asyncio.sleep(0)
    old_held, old.held = old.held, None
    stage.file = "redis://:second@here"
    await stage.look()
    await stage.call()
    assert not old.closed
    old_held.set()
    await waiting
    await eventually(lambda: old.closed)
    await stage.store.close()


async def test_O10_clones_go_over_with_their_next_call(stage: Stage) -> None:
    clone = stage.store.clone()
    first = stage.server("first").opened
    stage.file = "redis://:second@here"
    await stage.look()
    await clone.parked(PartitionRef("emails", 1, 0))
    await eventually(lambda: first[1].closed)
    await clone.close()
    assert not first[0].closed  # the other one has made no call since
    await stage.call()
    await eventually(lambda: first[0].closed)
    await stage.store.close()


@pytest.mark.parametrize("problem", [AccessDenied("no such user"), StoreUnavailable("nobody there")])
async def test_O10_a_url_that_does_not_work_keeps_the_connection_and_is_told_once_per_interval(
    stage: Stage, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stage.server("second").refuses = problem
    stage.file = "redis://:second@here"
    for _ in range(4):
        await stage.look()
    assert caplog.text.count("the old connection stays") == 1
    assert str(problem) in caplog.text
    await stage.look(after=TOLD_SECONDS)
    assert caplog.text.count("the old connection stays") == 2
    assert not stage.server("first").opened[0].closed
    stage.server("second").refuses = None
    await stage.look()
    await stage.call()
    await eventually(lambda: stage.server("first").opened[0].closed)
    assert "second" not in caplog.text
    await stage.store.close()


async def test_O10_another_data_set_is_refused(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.server("third").data.write_marker("theirs")
    await stage.server("first").data.write_marker("ours")
    stage.file = "redis://:third@elsewhere"
    await stage.look()
    assert "elsewhere:6379/0 holds other data (mark theirs) than the connection in use (mark ours)" in caplog.text
    assert not stage.server("first").opened[0].closed
    await stage.store.close()


async def test_O10_a_data_set_that_nobody_has_marked_is_known_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the old connection does not work any more: the mark is remembered."""
    await stage.look()
    stage.server("first").refuses = AccessDenied("the password has changed")
    stage.file = "redis://:third@elsewhere"
    with pytest.raises(AccessDenied):
        await stage.look()
    await eventually(lambda: "holds other data (mark None)" in caplog.text)
    stage.file = "redis://:second@here"
    stage.now += LOOK_SECONDS
    with pytest.raises(AccessDenied):
        await stage.call()
    await eventually(lambda: "going over to here:6379/0" in caplog.text)
    await stage.call()
    await stage.store.close()


async def test_a_mark_whose_confirmation_was_lost_is_known_again(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = MemoryStore.write_marker

    async def unanswered(store: Connection, marker: str) -> str:
        await written(store, marker)
        raise StoreUnavailable("cut off")

    monkeypatch.setattr(Connection, "write_marker", unanswered)
    await stage.look()
    stage.server("first").refuses = AccessDenied("the password has changed")
    stage.file = "redis://:second@here"
    with pytest.raises(AccessDenied):
        await stage.look()
    await eventually(lambda: "going over to here:6379/0" in caplog.text)
    await stage.store.close()


async def test_a_mark_that_changed_under_the_connection_is_read_anew(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.look()
    stage.server("first").data._data.marker = "after a flush"
    stage.file = "redis://:second@here"
    await stage.look()
    assert "going over" in caplog.text
    await stage.store.close()


async def test_a_file_that_cannot_be_read_or_used_is_told_and_no_password_shown(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.file = InvalidInput("redis_url_file", "gone", "mount it")
    await stage.look()
    stage.file = "redis://:hunter2@nowhere/x/y"
    await stage.look(after=TOLD_SECONDS)
    assert "redis_url_file: gone; mount it" in caplog.text
    assert "store URL: cannot be parsed; use another" in caplog.text
    assert "hunter2" not in caplog.text
    await stage.call()
    await stage.store.close()


async def test_the_file_is_not_read_more_often_than_every_few_seconds_by_all_clones_together(stage: Stage) -> None:
    clones = [stage.store.clone() for _ in range(5)]
    for _ in range(3):
        await stage.look()
        for clone in clones:
            await clone.parked(PartitionRef("emails", 1, 0))
    assert stage.looks == 1 + 3
    for clone in (*clones, stage.store):
        await clone.close()
