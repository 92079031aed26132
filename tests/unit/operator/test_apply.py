"""Single steps on a store: what a step finds done by somebody else is done."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import cast

import pytest

from headrace import lifecycle
from headrace.settings import QueueSettings
from headrace.stores.memory import MemoryStore
from headrace_operator import steps
from headrace_operator.apply import Applier, Outdated
from headrace_operator.kubernetes.client import Kube
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.memory import Memory
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.scene import queue


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
async def store() -> MemoryStore:
    """Version 1 is drained, and version 2 is active."""
    clock = Clock()
    store = MemoryStore(clock)
    for version in (1, 2):
        topology = await lifecycle.promote(store, "mail", version, 4)
    await lifecycle.close_drained(store, topology, 1)
    clock.now += 2 * lifecycle.CLIENT_RETRY_MS
    return store


def applier(memory: Memory | None = None) -> Applier:
    return Applier(cast(Kube, ApiInMemory()), memory or Memory(), Recent(time.monotonic), time.monotonic)


async def test_of_two_that_complete_a_version_at_once_both_have_completed_it(store: MemoryStore) -> None:
    first, second = (applier().run(steps.Complete(1), queue(2), store) for _ in range(2))
    await asyncio.gather(first, second)
    await applier().run(steps.Complete(1), queue(2), store)
    topology = await store.read_topology("mail")
    assert topology is not None
    assert set(topology.versions) == {2}


async def test_a_version_that_is_active_is_not_completed(store: MemoryStore) -> None:
    with pytest.raises(Outdated):
        await applier().run(steps.Complete(2), queue(2), store)


async def test_O1_what_was_restored_has_been_told_to_partitions_of_every_version() -> None:
    store, memory = MemoryStore(), Memory()
    for version in (1, 2):
        topology = await lifecycle.promote(store, "mail", version, 4)
    target = replace(topology, epoch=topology.epoch + 1, settings=QueueSettings(stop="hold"))
    await applier(memory).run(steps.RestoreTopology(topology, target), queue(2), store)
    assert memory.of("u1").settled == target == await store.read_topology("mail")
    refs = [ref for version in target.versions for ref in target.refs(version)]
    assert {count.of for count in await store.counts(refs)} == {target.stamp}


@pytest.mark.parametrize("besides", ["nothing", "a forgotten edit", "a promotion"])
async def test_what_was_settled_stays_so_if_nothing_but_the_version_is_gone(store: MemoryStore, besides: str) -> None:
    settled, memory = await store.read_topology("mail"), Memory()
    assert settled is not None
    if besides == "a forgotten edit":
        settled = settled.configured(QueueSettings(stop="hold"))
    if besides == "a promotion":
        await lifecycle.promote(store, "mail", 3, 1)
    memory.of("u1").settled = settled
    await applier(memory).run(steps.Complete(1), queue(2), store)
    completed = await store.read_topology("mail")
    assert completed is not None
    assert 1 not in completed.versions
    assert memory.of("u1").settled == (completed if besides == "nothing" else settled)
