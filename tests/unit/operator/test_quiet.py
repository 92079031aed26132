"""A Queue about which nothing changes is only glanced at, and whatever changes is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import pytest

from headrace.election.fence import Claim
from headrace.leadership.locks import beside, shown_fence
from headrace.settings import QueueSettings
from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes.autoscalers import Autoscalers
from headrace_operator.kubernetes.client import Kube, collection, queues
from headrace_operator.kubernetes.recent import Packed, Recent
from headrace_operator.memory import Memory, Quiet
from headrace_operator.observe import UNCHANGED, Observer
from headrace_operator.observed import QueueObject
from headrace_operator.redis.connection import Connections
from headrace_operator.workers.render import render_deployment
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.scene import backend, topology
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

    def queue_at(self, key: QueueKey) -> Any:
        self.keep_queue(self._world.api.objects[PATH])
        return super().queue_at(key)

    def version_numbers(self, key: QueueKey) -> Any:
        self._hear_of_versions(key)
        return super().version_numbers(key)

    def versions(self, key: QueueKey) -> Any:
        self._hear_of_versions(key)
        return super().versions(key)

    def _hear_of_versions(self, key: QueueKey) -> None:
        prefix = f"{queues('ns').rpartition('/')[0]}/queueversions/"
        found = [body for path, body in self._world.api.objects.items() if path.startswith(prefix)]
        self.keep_versions(key, found)


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


async def test_an_autoscaler_that_appears_is_seen_within_a_minute_or_so_and_costs_one_list_for_all() -> None:
    world = World()
    await world.create()
    await world.api.merge(PATH, {"spec": {"workers": {"image": "mail:1", "app": "mail:app"}}}, manager="user")
    lists: list[str] = []

    class Api(ApiInMemory):
        def items(self, path: str, *, labels: str = "") -> AsyncIterator[Any]:
            lists.append(path)
            return super().items(path, labels=labels)

    api = Api()
    api.objects = world.api.objects
    kube, memory, recent = cast(Kube, api), Memory(), Told(world)
    recent.keep_workers(KEY, {"metadata": {"uid": "d1", "resourceVersion": "5"}, "spec": {"replicas": 1}})
    connections = Connections(kube, clock=world.seconds, open_url=lambda _: world.store.clone())
    autoscalers = Autoscalers(kube, world.seconds)
    observer = Observer(kube, connections, memory, "cluster", world.utc, autoscalers, recent)
    try:
        there = await observer.observe(KEY, fresh=False)
        assert isinstance(there, tuple)
        fingerprint = there[0].fingerprint
        assert fingerprint is not None
        memory.of(there[0].queue.uid).quiet = Quiet(*fingerprint, world.utc() + timedelta(days=1))
        lists.clear()
        for _ in range(10):
            world.now += 6_000
            assert await observer.observe(KEY, fresh=False) is UNCHANGED
        assert len(lists) == 1
        target = {"kind": "Deployment", "name": "mail-workers"}
        api.objects[f"{collection('autoscaling', 'v2', 'horizontalpodautoscalers', None)}/one"] = {
            "metadata": {"namespace": "ns", "name": "one"},
            "spec": {"scaleTargetRef": target},
        }
        world.now += 61_000
        there = await observer.observe(KEY, fresh=False)
        assert isinstance(there, tuple)
        assert there[0].fingerprint != fingerprint
    finally:
        await connections.close()


async def test_what_is_beside_the_workers_is_read_once_for_each_leader_who_does_not_lead_by_the_lease() -> None:
    world = World()
    await world.create()
    await world.rest()
    await world.api.merge(PATH, {"spec": {"workers": {"image": "mail:1", "app": "mail:app"}}}, manager="user")
    queue = QueueObject.parse(world.api.objects[PATH])
    assert queue.spec is not None
    assert queue.spec.made_workers is not None
    body = render_deployment(queue, queue.spec.made_workers, backend(topology({1: (1, "active")})), None)
    body["metadata"] |= {"uid": "d1", "resourceVersion": "5", "generation": 1}
    kinds = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    body |= {"spec": {**body["spec"], "replicas": 1}, "status": {**dict.fromkeys(kinds, 1), "observedGeneration": 1}}
    roles: list[str] = []

    class Api(ApiInMemory):
        async def find(self, path: str) -> Any:
            roles.extend([path] if path.endswith("/roles/mail-workers") else [])
            return await super().find(path)

    api = Api()
    api.objects = world.api.objects
    kube, memory, recent = cast(Kube, api), Memory(), Told(world)
    memory.of(queue.uid).companions_at = world.utc() + timedelta(days=1)
    connections = Connections(kube, clock=world.seconds, open_url=lambda _: world.store.clone())
    observer = Observer(kube, connections, memory, "cluster", world.utc, Autoscalers(kube, world.seconds), recent)
    place = beside(world.store, "mail")
    assert place is not None
    fence = shown_fence(place())

    async def led_by(lock: str, rank: int, term: int) -> None:
        await fence.release(f"nonce-{term - 1}", 1)
        await fence.claim(Claim(f"pod-{term}-12345678_0f", f"nonce-{term}", lock, rank, term), 3600, 1)

    async def reads(looks: int) -> int:
        """How often so many looks, half a minute apart, have read what is beside the workers."""
        roles.clear()
        for _ in range(looks):
            world.now += 30_000
            body["metadata"]["resourceVersion"] = str(world.now)
            recent.keep_workers(KEY, body)
            assert isinstance(await observer.observe(KEY, fresh=False), tuple)
        return len(roles)

    try:
        await led_by("lease", 3, 1)
        assert await reads(3) == 0
        # The right to the Lease may be what is missing; or the API server, and reading on would help nobody.
        await led_by("redis", 1, 2)
        assert await reads(4) == 1
        await led_by("redis", 1, 3)
        assert await reads(4) == 1
        await led_by("lease", 3, 4)
        assert await reads(3) == 0
        # One of those objects was deleted by the operator itself.
        recent.workers_written(KEY)
        assert await reads(3) == 1
    finally:
        await connections.close()


async def test_looks_at_a_quiet_queue_read_no_object(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(Packed, "unpacked", lambda packed: parsed.append("read"))
    looks = [await watched.look() for _ in range(4)]
    assert looks.count(["read_topology", "counts"]) == 2
    assert parsed == []


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
    assert await watched.world.store.write_topology(topology, changed)
    await watched.look()
    after = await watched.world.store.read_topology("mail")
    assert after is not None
    assert after.settings == topology.settings
