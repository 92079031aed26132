"""A Queue about which nothing changes is only glanced at, and whatever changes is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.settings import QueueSettings
from headrace_operator.api.names import QueueKey
from headrace_operator.kube import queues
from headrace_operator.recent import Recent
from tests.unit.operator.test_convergence import KEY, PATH, World


class Counting:
    """Counts the reads of a store."""

    def __init__(self, store: Any, reads: list[str]) -> None:
        self._store, self._reads = store, reads

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("counts", "read_topology"):
            self._reads.append(name)
        return method

    def clone(self) -> Counting:
        return Counting(self._store.clone(), self._reads)


class Told(Recent):
    """Knows the Queue and its QueueVersions as an API server in memory has them now, as a watch would tell."""

    def __init__(self, world: World) -> None:
        super().__init__(world.seconds)
        self._world = world
        self.complete = True

    def queue(self, key: QueueKey) -> Any:
        self.keep_queue(self._world.api.objects[PATH])
        return super().queue(key)

    def versions(self, key: QueueKey) -> Any:
        prefix = f"{queues('ns').rpartition('/')[0]}/queueversions/"
        found = [body for path, body in self._world.api.objects.items() if path.startswith(prefix)]
        self.keep_versions(key, found)
        return super().versions(key)


class Watched:
    """One operator that lives on."""

    def __init__(self) -> None:
        self.world = World()
        self.reads: list[str] = []
        self.connections, self.reconciler = self.world.operator(
            Told(self.world), open_url=lambda _: Counting(self.world.store.clone(), self.reads)
        )

    async def look(self) -> list[str]:
        """One pass, half a minute later; which reads it took."""
        self.world.now += 30_000
        self.reads.clear()
        await self.reconciler.reconcile(KEY)
        return list(self.reads)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    await made.world.create()
    for _ in range(3):
        await made.look()
    yield made
    await made.connections.close()


async def test_every_other_look_at_a_quiet_queue_is_a_glance(watched: Watched) -> None:
    looks = [await watched.look() for _ in range(4)]  # in two minutes a plan is not made anew yet
    assert looks.count(["read_topology"]) == looks.count(["read_topology", "counts"]) == 2
    # And now and then it is thought about all the same.
    watched.world.now += 400_000
    assert "counts" in await watched.look()


async def test_a_change_of_the_topology_is_seen_by_the_next_look(watched: Watched) -> None:
    for _ in range(2):
        await watched.look()
        watched.world.lose_topology()
        await watched.look()
        assert await watched.world.store.read_topology("mail") is not None


async def test_jobs_are_seen_within_two_looks_and_objects_within_one(watched: Watched) -> None:
    await watched.world.enqueue(3)
    await watched.look()
    await watched.look()
    assert watched.world.queue["status"]["depth"]["ready"] == 3
    for version in (2, 3):
        await watched.world.set_version(version, version)
        await watched.look()
        assert watched.world.queue["status"]["activeVersion"] == version


async def test_settings_that_somebody_changed_in_redis_are_put_right_by_the_next_look(watched: Watched) -> None:
    await watched.look()
    topology = await watched.world.store.read_topology("mail")
    assert topology is not None
    changed = topology.configured(QueueSettings(lease_ms=9_999))
    assert await watched.world.store.write_topology(topology.epoch, changed)
    await watched.look()
    after = await watched.world.store.read_topology("mail")
    assert after is not None
    assert after.settings == topology.settings
