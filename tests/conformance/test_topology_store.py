"""The stored topology: one value per queue, written by compare-and-set on what was read."""

from __future__ import annotations

import asyncio
import json
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
    assert await store.write_topology(None, written)
    assert await store.read_topology(QUEUE) == written
    assert await store.read_topology("other") is None
    many = written
    for version in range(4, 40):
        many = many.promoted(version, version)
    assert await store.write_topology(written, many)
    assert await store.read_topology(QUEUE) == many


async def test_T5_only_what_was_read_is_replaced(store: Store) -> None:
    second = FIRST.promoted(4, 8)
    assert not await store.write_topology(FIRST, second)
    assert await store.write_topology(None, FIRST)
    assert not await store.write_topology(None, replace(FIRST, owner={"name": "emails"}))
    assert not await store.write_topology(second, FIRST.promoted(4, 16))
    assert await store.write_topology(FIRST, second)
    assert not await store.write_topology(FIRST, FIRST.promoted(4, 16))
    assert await store.read_topology(QUEUE) == second


async def test_T5_V12_another_topology_of_the_same_epoch_is_not_what_was_read(store: Store) -> None:
    """A failover forgets an edit, and the next one gets its epoch: what is built on the first comes too late."""
    await store.write_topology(None, FIRST)
    forgotten, edited = FIRST.configured(QueueSettings()), FIRST.configured(QueueSettings(timeout_ms=1234))
    assert forgotten.epoch == edited.epoch
    assert await store.write_topology(FIRST, edited)
    assert not await store.write_topology(forgotten, forgotten.promoted(4, 8))
    assert await store.read_topology(QUEUE) == edited


async def test_T5_a_write_whose_answer_was_lost_may_be_sent_again(store: Store) -> None:
    for _ in range(2):
        assert await store.write_topology(None, FIRST)
    for _ in range(2):
        assert await store.write_topology(FIRST, FIRST.promoted(4, 8))
    assert not await store.write_topology(None, FIRST)


async def test_T5_what_another_release_has_written_is_replaced(store: Store) -> None:
    """The text counts that was stored, not what would be written here; transitions go on from its values."""
    await store.write_topology(None, FIRST)
    text = json.dumps({**json.loads(FIRST.to_json()), "unknown": {"of": "a later release"}})
    foreign = Topology.from_json(QUEUE, text)
    assert (foreign.to_json(), foreign) == (text, FIRST)
    assert foreign.stamp != FIRST.stamp
    assert await store.write_topology(FIRST, foreign)
    found = await store.read_topology(QUEUE)
    assert found is not None
    assert found.to_json() == text
    assert not await store.write_topology(FIRST, FIRST.promoted(4, 8))
    assert "unknown" not in found.promoted(4, 8).to_json()
    assert await store.write_topology(found, found.promoted(4, 8))


async def test_T5_of_many_writers_one_wins(store: Store) -> None:
    contenders = [replace(FIRST, owner={"n": str(n)}) for n in range(20)]
    won = await asyncio.gather(*(store.write_topology(None, each) for each in contenders))
    assert won.count(True) == 1
    assert await store.read_topology(QUEUE) == contenders[won.index(True)]


async def test_the_topology_of_another_store_object_is_the_same(store: Store) -> None:
    other = store.clone()
    try:
        await store.write_topology(None, FIRST)
        assert await other.read_topology(QUEUE) == FIRST
        assert await other.write_topology(FIRST, FIRST.promoted(4, 8))
        assert (await store.read_topology(QUEUE)) == FIRST.promoted(4, 8)
    finally:
        await other.close()
