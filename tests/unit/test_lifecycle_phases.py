"""Sequences over many partitions: each phase does many at a time and is over before the next begins."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import Any, cast

import pytest

from headrace import QueueSettings, Store, StoreUnavailable
from headrace.agreement import AT_ONCE
from headrace.deletion import delete_queue
from headrace.lifecycle import AGAIN_SECONDS, complete, configure, promote
from headrace.stores.memory import MemoryStore
from headrace.topology import Grave, PartitionRef, Topology

QUEUE, PARTITIONS = "emails", 2 * AT_ONCE + 7


class Slow:
    """Answers nothing before everybody who can has asked; notes how many asked for what at the same time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.under_way = 0
        self.log: list[tuple[str, int]] = []
        self.fails: str | None = None
        """The next call of this method fails at once."""

    def __getattr__(self, method: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            if method == self.fails:
                self.fails = None
                raise StoreUnavailable("no answer")
            self.under_way += 1
            self.log.append((method, self.under_way))
            try:
                await asyncio.sleep(0.001)
            finally:
                self.under_way -= 1
            return await getattr(self._store, method)(*arguments, **options)

        return call

    def phases(self) -> list[tuple[str, int, int]]:
        """Return (method, calls, most at the same time) of each phase, and begin anew."""
        runs = [(method, list(calls)) for method, calls in groupby(self.log, lambda each: each[0])]
        self.log = []
        return [(method, len(calls), max(under_way for _, under_way in calls)) for method, calls in runs]


async def test_every_phase_does_many_partitions_at_a_time_and_ends_before_the_next() -> None:
    slow = Slow(MemoryStore())
    store = cast(Store, slow)
    every = (PARTITIONS, AT_ONCE)
    await promote(store, QUEUE, 1, PARTITIONS)
    assert slow.phases() == [
        ("read_topology", 1, 1),
        ("read_grave", 1, 1),
        ("install", *every),
        ("write_topology", 1, 1),
        ("replicated", 1, 1),
        ("settle", *every),
    ]
    await promote(store, QUEUE, 2, 1)
    assert slow.phases() == [
        ("read_topology", 1, 1),
        ("successor", *every),
        ("install", 1, 1),
        ("write_topology", 1, 1),
        ("replicated", 1, 1),
        ("settle", 1, 1),
        ("mark", *every),
    ]
    await configure(store, QUEUE, QueueSettings(timeout_ms=1000))
    assert slow.phases() == [
        ("read_topology", 1, 1),
        ("write_topology", 1, 1),
        ("replicated", 1, 1),
        ("settle", PARTITIONS + 1, AT_ONCE),
    ]
    await complete(store, QUEUE, 1, client_retry_ms=0)
    assert slow.phases() == [
        ("read_topology", 1, 1),
        ("mark", *every),
        ("close_partition", *every),
        ("replicated", 1, 1),
        ("write_topology", 1, 1),
        ("replicated", 1, 1),
        ("successor", *every),
        ("remove", *every),
        ("write_topology", 1, 1),
        ("replicated", 1, 1),
    ]


async def test_a_phase_that_fails_has_ended_when_the_error_is_told() -> None:
    slow = Slow(MemoryStore())
    store = cast(Store, slow)
    slow.fails = "install"
    with pytest.raises(StoreUnavailable):
        await promote(store, QUEUE, 1, PARTITIONS)
    assert slow.under_way == 0
    assert slow.phases()[-1] == ("install", AT_ONCE - 1, AT_ONCE - 1)
    assert (await promote(store, QUEUE, 1, PARTITIONS)).partitions == PARTITIONS


async def test_a_cancelled_phase_leaves_no_call_under_way() -> None:
    slow = Slow(MemoryStore())
    before = asyncio.all_tasks()
    promoting = asyncio.create_task(promote(cast(Store, slow), QUEUE, 1, PARTITIONS))
    async with asyncio.timeout(10):
        while slow.under_way < AT_ONCE:
            await asyncio.sleep(0)
    promoting.cancel()
    await asyncio.gather(promoting, return_exceptions=True)
    assert promoting.cancelled()
    assert asyncio.all_tasks() == before


class Contended(MemoryStore):
    """Somebody else is faster, three times."""

    lost = 0

    async def write_topology(self, read: Topology | Grave | None, topology: Topology) -> bool:
        self.lost += 1
        return self.lost > 3 and await super().write_topology(read, topology)


async def test_a_promotion_that_loses_waits_before_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await promote(Contended(), QUEUE, 1, 2)
    assert waits == [0, AGAIN_SECONDS, AGAIN_SECONDS, AGAIN_SECONDS]


class Haunted(MemoryStore):
    """A partition remembers what came after it in a deleted queue of the name."""

    async def successor(self, ref: PartitionRef) -> Topology | None:
        return Topology.created(QUEUE, 1, 1).promoted(2, 1)


async def test_J21_what_is_remembered_of_a_deleted_queue_does_not_keep_a_version_from_being_promoted() -> None:
    store = Haunted()
    await promote(store, QUEUE, 1, 1)
    await delete_queue(store, QUEUE)
    await promote(store, QUEUE, 1, 1)
    async with asyncio.timeout(30):
        assert (await promote(store, QUEUE, 2, 1)).active == 2
