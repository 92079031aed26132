"""A Deployment with its Pods, as the cluster and the workers in them would act. The real ones: tests/cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.stores.base import Beat
from headrace.stores.memory import MemoryStore
from headrace_operator.kubernetes.client import core, deployments
from headrace_operator.scaling.pods import DELETION_COST
from tests.unit.operator.api_in_memory import ApiInMemory

NAMESPACE, NAME, QUEUE = "ns", "mail-workers", "mail"
PATH = f"{deployments(NAMESPACE)}/{NAME}"
BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Api(ApiInMemory):
    """With the scale of Deployments, and whoever wrote it."""

    async def merge(self, path: str, body: Any, *, manager: str, **more: Any) -> Any:
        after = await super().merge(path.removesuffix("/scale"), body, manager=manager, **more)
        if path.endswith("/scale"):
            self.written_by(manager)
            after = self.objects[PATH]
        return after

    def written_by(self, manager: str) -> None:
        entry = {"manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        self.objects[PATH]["metadata"]["managedFields"] = [entry]


@dataclass
class WorkersInMemory:
    """``now``: seconds since the beginning. ``start``: seconds that a Pod takes to become ready.

    ``running``: jobs by Pod, as its worker says with its next beat. ``failing``: Pods that have started and are not
    ready; those that were become ready again at ``recovered``. ``generation``: of the Pods' template; while older Pods
    are there, one more than asked for may be. ``ended``: Pods whose container has ended, and when.
    """

    store: MemoryStore
    api: Api = field(default_factory=Api)
    now: float = 0.0
    start: float = 3.0
    running: dict[str, int] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    beats: bool = True
    failing: set[str] = field(default_factory=set)
    recovered: dict[str, float] = field(default_factory=dict)
    generation: int = 1
    _made: int = 0
    tills: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        metadata = {"name": NAME, "namespace": NAMESPACE, "uid": "d1", "resourceVersion": "1", "generation": 1}
        template = {"metadata": {"labels": {"app": "mail"}}, "spec": {"containers": [{"name": "worker"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "mail"}}, "template": template}
        self.api.objects[PATH] = {"metadata": metadata, "spec": spec, "status": {}}

    @property
    def deployment(self) -> Any:
        return self.api.objects[PATH]

    @property
    def replicas(self) -> int:
        return int(self.deployment["spec"]["replicas"])

    @property
    def pods(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.api.objects if path.startswith(core("pods", NAMESPACE))]

    async def settle(self) -> None:
        """Let the controllers and the workers do what they do."""
        pods = {name: self.api.objects[f"{core('pods', NAMESPACE)}/{name}"] for name in self.pods}
        new = [name for name, pod in pods.items() if pod["metadata"]["labels"]["generation"] == str(self.generation)]
        surge = 1 if len(new) < len(pods) else 0
        for name in sorted(pods, key=lambda name: self._rank(pods[name]))[: max(0, len(pods) - self.replicas - surge)]:
            await self._stop(pods, name)
        new = [name for name in new if name in pods]
        for _ in range(min(self.replicas + surge - len(pods), self.replicas - len(new))):
            self._made += 1
            name = f"pod-{self._made:02}"
            created = (BEGIN + timedelta(seconds=self.now)).isoformat()
            metadata = {
                "name": name,
                "uid": name,
                "resourceVersion": "1",
                "generation": 1,
                "creationTimestamp": created,
                "labels": {"generation": str(self.generation)},
            }
            pods[name] = {"metadata": metadata, "status": {"phase": "Pending"}}
            self.api.objects[f"{core('pods', NAMESPACE)}/{name}"] = pods[name]
        ready = 0
        for name, pod in pods.items():
            age = self.now - (datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) - BEGIN).total_seconds()
            if age >= self.start and name in self.failing:
                pod["status"] = {"phase": "Running"}
            elif age >= self.start:
                ready += 1
                since = BEGIN + timedelta(seconds=max(self.recovered.get(name, 0.0), self.now - age + self.start))
                condition = {"type": "Ready", "status": "True", "lastTransitionTime": since.isoformat()}
                pod["status"] = {"phase": "Running", "conditions": [condition]}
                if self.beats:
                    await self.beat(name)
            if name in self.ended:
                ended = {"terminated": {"finishedAt": (BEGIN + timedelta(seconds=self.ended[name])).isoformat()}}
                waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
                pod["status"]["containerStatuses"] = [{"state": waiting, "lastState": ended, "restartCount": 3}]
        old = [name for name, pod in pods.items() if pod["metadata"]["labels"]["generation"] != str(self.generation)]
        for name in old[: max(0, ready - self.replicas)]:
            await self._stop(pods, name)
            ready -= 1
        old = [name for name in old if name in pods]
        generation = self.deployment["metadata"]["generation"]
        self.deployment["status"] = {
            "replicas": len(pods),
            "updatedReplicas": len(pods) - len(old),
            "readyReplicas": ready,
            "observedGeneration": generation,
        }

    async def beat(self, name: str) -> None:
        """Let a worker say what it holds, and that it takes no more if it has learnt so with its last beat."""
        holds, till = self.running.get(name, 0), self.tills.get(name, 0)
        tick = await self.store.tick(QUEUE, name, Beat(pod=name, slots=4, in_flight=holds, stands_by_till=till))
        self.tills[name] = tick.stop_till

    async def _stop(self, pods: dict[str, Any], name: str) -> None:
        del self.api.objects[f"{core('pods', NAMESPACE)}/{name}"], pods[name]
        self.stopped.append(name)
        await self.store.leave(QUEUE, name)

    async def roll_out(self) -> None:
        """Let the Pods be replaced, one by one, by those of another template."""
        self.generation += 1
        template = self.deployment["spec"]["template"]
        template["metadata"]["labels"]["example"] = f"generation-{self.generation}"
        self.deployment["metadata"]["generation"] += 1
        await self.settle()

    async def fail(self) -> None:
        """Let none of the Pods of now be ready, as when Redis is away."""
        self.failing = set(self.pods)
        await self.settle()

    async def recover(self) -> None:
        """Let them be ready again."""
        self.recovered |= dict.fromkeys(self.failing, self.now)
        self.failing = set()
        await self.settle()

    @staticmethod
    def _rank(pod: Any) -> tuple[bool, int, float]:
        """How a ReplicaSet orders Pods to delete: not ready, cheap, new."""
        cost = int(pod["metadata"].get("annotations", {}).get(DELETION_COST, 0))
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
        return ("conditions" in pod["status"], cost, -created)
