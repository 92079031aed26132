"""The stored topology: one value per queue, written by compare-and-set on its epoch."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headrace.retry import RetryPolicy
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Topology
from tests.conformance.steps import QUEUE

FIRST = Topology.created(QUEUE, 3, 4)


async def test_a_queue_without_topology_has_none(store: Store) -> None:
    assert await store.read_topology(QUEUE) is None


async def test_what_was_written_is_read(store: Store) -> None:
    settings = QueueSettings(retry=RetryPolicy(max_retries=7), timeout_ms=9_000, lease_ms=700)
    written = Topology.created(QUEUE, 3, 4, settings, {"uid": "ü-☃", "name": "emails"})
    assert await store.write_topology(0, written)
    assert await store.read_topology(QUEUE) == written
    assert await store.read_topology("other") is None
    many = written
    for version in range(4, 40):
        many = many.promoted(version, version)
    assert await store.write_topology(1, many)
    assert await store.read_topology(QUEUE) == many


async def test_T5_only_the_expected_epoch_is_replaced(store: Store) -> None:
    assert not await store.write_topology(1, FIRST)
    assert await store.write_topology(0, FIRST)
    assert not await store.write_topology(0, FIRST)
    second = FIRST.promoted(4, 8)
    assert not await store.write_topology(2, second)
    assert await store.write_topology(1, second)
    assert not await store.write_topology(1, FIRST.promoted(4, 16))
    assert await store.read_topology(QUEUE) == second


async def test_T5_of_many_writers_one_wins(store: Store) -> None:
    contenders = [replace(FIRST, owner={"n": str(n)}) for n in range(20)]
    won = await asyncio.gather(*(store.write_topology(0, each) for each in contenders))
    assert won.count(True) == 1
    assert await store.read_topology(QUEUE) == contenders[won.index(True)]


async def test_the_topology_of_another_store_object_is_the_same(store: Store) -> None:
    other = store.clone()
    try:
        await store.write_topology(0, FIRST)
        assert await other.read_topology(QUEUE) == FIRST
        assert await other.write_topology(1, FIRST.promoted(4, 8))
        assert (await store.read_topology(QUEUE)) == FIRST.promoted(4, 8)
    finally:
        await other.close()
