"""What is scaled: a Queue with its store and its Deployment, as a pass over the Queue has last seen them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.stores.base import Store, WorkerEntry
from headrace.topology import Topology
from headrace_operator.api.queue_spec import QueueSpec
from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.observed import ConnectionProblem, Observed, QueueObject
from headrace_operator.planning.decision import Plan
from headrace_operator.planning.workers import not_scaled
from headrace_operator.scaling.deployment import ScaledDeployment
from headrace_operator.scaling.inputs import Rules
from headrace_operator.scaling.load import max_in_flight
from headrace_operator.scaling.pods import slots_of


def target_of(seen: Observed, store: Store | None, decision: Plan) -> Target | None:
    """Return what of a Queue is scaled by its load; None if that is nothing, or not ours to scale."""
    queue, spec, found, backend = seen.queue, seen.queue.spec, seen.scaled, seen.backend
    if spec is None or found is None or spec.scaling.mode != "Backlog" or not_scaled(seen) is not None:
        return None
    deployment = ScaledDeployment.of(found.body)
    # Of a thousand Queues that are scaled, the reports would be most of what is kept.
    queue = replace(queue, status=QueueStatus())
    if isinstance(backend, ConnectionProblem) or decision.connection is not None:
        return Target(queue, spec, deployment)
    if backend.topology is None:
        # Lost, and unknown is not empty; or removed with its Queue.
        return None if queue.deleted_at is not None else Target(queue, spec, deployment)
    if dict(backend.topology.owner) != dict(seen.owner):
        return None
    return Target(queue, spec, deployment, store, backend.topology)


@dataclass(frozen=True, slots=True)
class Target:
    """``store`` and ``topology`` None: the Redis of the queue cannot be read now."""

    queue: QueueObject
    spec: QueueSpec
    deployment: ScaledDeployment
    store: Store | None = None
    topology: Topology | None = None

    @property
    def replicas(self) -> int:
        """Replicas asked for."""
        return self.deployment.replicas

    @property
    def ready(self) -> int:
        """Pods that are ready and not stopping."""
        return self.deployment.ready

    def with_deployment(self, deployment: ScaledDeployment) -> Target:
        """Return the target with its Deployment as it is now."""
        return replace(self, deployment=deployment)

    def same_wishes(self, other: Target) -> bool:
        """Whether nothing has changed that calls for a decision at once."""
        return (
            self.queue.generation == other.queue.generation
            and self.deployment.generation == other.deployment.generation
            and self.ready == other.ready
            and self.topology == other.topology
            and (self.store is None) == (other.store is None)
        )

    @property
    def rules(self) -> Rules:
        """What the user wants, with the limits of the queue as they are now."""
        scaling, topology = self.spec.scaling, self.topology
        # What holds is what the queue has: while it is being deleted that is not what the spec says.
        settings = self.spec.settings() if topology is None else topology.settings
        return Rules(
            mode=scaling.mode,
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            target_wait=scaling.target_wait_seconds,
            idle=scaling.idle_seconds,
            headroom=scaling.headroom,
            failure_threshold=scaling.fallback.failure_threshold,
            fallback_replicas=scaling.fallback.replicas,
            held=settings.stop == "hold",
            rate_per_second=settings.rate_per_second,
            max_in_flight=None if topology is None else max_in_flight(settings, topology),
        )

    @property
    def foreign(self) -> bool:
        """Whether the Deployment is somebody else's and only scaled: nobody watches it, nor knows what its Pods run."""
        return self.spec.scale_target is not None

    def slots(self, entries: Iterable[WorkerEntry]) -> int:
        """Return how many jobs one Pod runs at a time: of a foreign Deployment as its workers say, else as the spec."""
        said = slots_of(entries) if self.foreign else None
        return said or (self.spec.workers.concurrency if self.spec.workers is not None else 1)
