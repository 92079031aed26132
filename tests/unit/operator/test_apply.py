"""Single steps on a store: what a step finds done by somebody else is done."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from headrace import lifecycle
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


def applier() -> Applier:
    return Applier(cast(Kube, ApiInMemory()), Memory(), Recent(time.monotonic), time.monotonic)


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
