"""A queue in memory at which the scaler looks, with Pods that come, work and go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from headrace.lifecycle import promote
from headrace.stores.base import Settled
from headrace.stores.memory import MemoryStore
from headrace_operator.kubernetes.client import Kube
from headrace_operator.kubernetes.events import Recorder
from headrace_operator.reasons import Event
from headrace_operator.scaling.deployment import ScaledDeployment
from headrace_operator.scaling.replicas import Replicas
from headrace_operator.scaling.scaler import Scaler, ScalingMemory
from headrace_operator.scaling.target import Target
from tests.conformance.steps import fresh_nonce, new
from tests.unit.operator.scaling.workers_in_memory import BEGIN, QUEUE, WorkersInMemory
from tests.unit.operator.scene import queue

WORKERS = {"image": "mail:1", "app": "mail:app", "concurrency": 4}
START_MS = 1_700_000_000_000


class Told:
    """Events that were told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, _: Any, event: Event) -> None:
        self.events.append(event)


class Scene:
    """A queue ``mail`` with one version, its workers, and the scaler that looks at it."""

    def __init__(self, **scaling: Any) -> None:
        self.store = MemoryStore(lambda: START_MS + round(self.workers.now * 1000))
        self.workers = WorkersInMemory(self.store)
        self.queue = queue(workers=WORKERS, scaling=scaling)
        self.recorder = Told()
        self.memory = ScalingMemory()
        self.seen: Any = self.store
        self.again = 0.0
        self.scaler = self._scaler()

    def _scaler(self) -> Scaler:
        return Scaler(
            Replicas(cast(Kube, self.workers.api)),
            cast(Recorder, self.recorder),
            clock=lambda: self.workers.now,
            now=lambda: BEGIN + timedelta(seconds=self.workers.now),
        )

    async def create(self, partitions: int = 2) -> None:
        await promote(self.store, QUEUE, 1, partitions, settings=self.queue.spec.settings())  # type: ignore[union-attr]

    async def target(self) -> Target:
        topology = await self.store.read_topology(QUEUE)
        assert self.queue.spec is not None
        return Target(self.queue, self.queue.spec, ScaledDeployment.of(self.workers.deployment), self.seen, topology)

    async def look(self, *, woken: bool = False) -> int:
        """Look once; the replicas asked for afterwards."""
        looked = await self.scaler.look(await self.target(), self.memory, woken=woken)
        self.again = looked.again
        await self.workers.settle()
        return self.workers.replicas

    async def pass_time(self, seconds: float, step: float = 2.0) -> list[int]:
        """Look every 2 s for so long; the numbers asked for."""
        numbers, end = [], self.workers.now + seconds
        while self.workers.now < end:
            self.workers.now += step
            await self.workers.settle()
            numbers.append(await self.look())
        return numbers

    async def enqueue(self, *jobs: Any, partition: int = 0) -> None:
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        ref = topology.refs(topology.active)[partition]
        batch = [new(job) if isinstance(job, str) else job for job in jobs]
        await self.store.enqueue(ref, topology.partitions, fresh_nonce(), batch)

    async def claim(self, pod: str, seq: int, limit: int = 100) -> list[Settled]:
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        claim = await self.store.claim(topology.refs(1)[0], pod, seq, limit, 3_600_000)
        self.workers.running[pod] = self.workers.running.get(pod, 0) + len(claim.jobs)
        return [Settled(job.key, claim.token) for job in claim.jobs]

    async def finish(self, pod: str, jobs: list[Settled]) -> None:
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        assert await self.store.ack(topology.refs(1)[0], jobs) == []
        self.workers.running[pod] -= len(jobs)

    def restart(self) -> None:
        """Another process goes on."""
        self.memory, self.scaler = ScalingMemory(), self._scaler()


def jobs(number: int, name: str = "job") -> list[str]:
    return [f"{name}-{n}" for n in range(number)]


async def idle_workers(scene: Scene, workers: int) -> None:
    """Let the queue have so many workers that have started, and no job."""
    scene.workers.deployment["spec"]["replicas"] = workers
    await scene.workers.settle()
    scene.workers.now += 5
    await scene.workers.settle()
    assert await scene.look(woken=True) == workers
