"""What is said to a queue's timer while it talks to the store is not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import StoreUnavailable, WorkerSettings
from headrace.stores.base import Beat, Tick
from headrace.stores.memory import MemoryStore
from headrace.topology import Topology
from headrace.worker import wakeups
from headrace.worker.outage import Backoff, Reachability
from headrace.worker.parking import Unparker
from headrace.worker.policies import Policies
from headrace.worker.wakeups import QueueTimer

QUEUE = "emails"


class Held(MemoryStore):
    """Counts readings and ticks; the first call of one kind waits for ``go``, and fails with ``error`` if it is set."""

    def __init__(self, held: str, error: Exception | None = None) -> None:
        super().__init__()
        self.calls = {"read_topology": 0, "tick": 0}
        self.held: str | None = held
        self.error = error
        self.standing = asyncio.Event()
        self.go = asyncio.Event()

    async def _step(self, name: str) -> None:
        self.calls[name] += 1
        if name == self.held:
            self.held = None
            self.standing.set()
            await self.go.wait()
            if self.error is not None:
                raise self.error

    async def read_topology(self, queue: str) -> Topology | None:
        await self._step("read_topology")
        return await super().read_topology(queue)

    async def tick(self, queue: str, worker: str, beat: Beat | None = None) -> Tick:
        await self._step("tick")
        return await super().tick(queue, worker, beat)


@asynccontextmanager
async def ticking(store: Held) -> AsyncIterator[QueueTimer]:
    """Run a timer whose next regular tick is an hour away; it stands in the held call."""
    policies = Policies(WorkerSettings(queues=(QUEUE,)))
    timer = QueueTimer(
        QUEUE, "w", store, policies, Unparker(QUEUE, store, [], lambda ref: None), lambda ref: None, Reachability()
    )
    running = asyncio.create_task(timer.run())
    async with asyncio.timeout(20):
        await store.standing.wait()
        yield timer
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def rare_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 3600.0)


async def until(holds: Callable[[], Any]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("held", ["read_topology", "tick"])
async def test_a_change_of_the_topology_during_a_reading_is_read(held: str) -> None:
    store = Held(held)
    async with ticking(store) as timer:
        assert store.calls["read_topology"] == 1
        timer.reread()
        store.go.set()
        await until(lambda: store.calls == {"read_topology": 2, "tick": 2})


@pytest.mark.parametrize("held", ["read_topology", "tick"])
async def test_an_earlier_due_time_during_a_tick_is_ticked(held: str) -> None:
    store = Held(held)
    async with ticking(store) as timer:
        timer.rearm()
        store.go.set()
        await until(lambda: store.calls["tick"] == 2)
        assert store.calls["read_topology"] == 1


async def test_an_earlier_due_time_during_a_tick_that_fails_is_ticked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next", lambda self: 3600.0)
    store = Held("tick", StoreUnavailable("no answer"))
    async with ticking(store) as timer:
        timer.due_in(1)
        store.go.set()
        await until(lambda: store.calls["tick"] == 2)
        assert store.calls["read_topology"] == 1  # that one was answered


async def test_a_reading_that_failed_is_tried_again() -> None:
    store = Held("read_topology", StoreUnavailable("no answer"))
    async with ticking(store):
        store.go.set()
        await until(lambda: store.calls == {"read_topology": 2, "tick": 1})
