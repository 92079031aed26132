"""Sets the replicas of a Deployment, and says which of its Pods go first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from headrace.errors import HeadraceError
from headrace.stores.base import Store, WorkerEntry
from headrace_operator.api.names import SCALER
from headrace_operator.kubernetes.client import ApiError, Kube, core, deployments
from headrace_operator.scaling.deployment import ScaledDeployment
from headrace_operator.scaling.pods import DELETION_COST, WorkerPod, living_pods, workers_of
from headrace_operator.scaling.victims import Worker

GOES_FIRST = -1000
MOST_PODS = 10_000

log = logging.getLogger("headrace.operator.scaling")


class Replicas:
    """Reads Pods, writes their deletion cost and the scale of Deployments. Raises ApiError and ApiUnavailable."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def pods(self, namespace: str, deployment: ScaledDeployment) -> list[WorkerPod]:
        """Return the Pods of a Deployment that are not stopping."""
        bodies = []
        async for body in self._kube.items(core("pods", namespace), labels=deployment.selector):
            bodies.append(body)
            if len(bodies) >= MOST_PODS:
                break
        return living_pods(bodies)

    async def prefer(self, namespace: str, pods: Iterable[WorkerPod], costs: Mapping[str, int]) -> None:
        """Write what the deletion of each Pod costs; the ReplicaSet takes the cheapest first."""
        changed = [pod for pod in pods if pod.name in costs and pod.cost != costs[pod.name]]
        await asyncio.gather(*(self._prefer(namespace, pod, costs[pod.name]) for pod in changed))

    async def _prefer(self, namespace: str, pod: WorkerPod, cost: int) -> None:
        body = {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: str(cost)}}}
        try:
            await self._kube.merge(f"{core('pods', namespace)}/{pod.name}", body, manager=SCALER)
        except ApiError as error:
            if error.status not in (404, 409):  # it is gone, or another one has its name
                raise

    async def write(self, namespace: str, deployment: ScaledDeployment, replicas: int) -> ScaledDeployment:
        """Set the replicas if the Deployment has not changed since it was seen; it as it is afterwards.

        ApiError: 409 if it has changed, 404 if it is gone.
        """
        scale = {"metadata": {"resourceVersion": deployment.version}, "spec": {"replicas": replicas}}
        after = await self._kube.merge(f"{deployments(namespace)}/{deployment.name}/scale", scale, manager=SCALER)
        return deployment.scaled(replicas, after["metadata"]["resourceVersion"])

    async def declare(
        self, namespace: str, deployment: ScaledDeployment, replicas: int, store: Store | None, queue: str
    ) -> None:
        """Set replicas that somebody has decided: at once, but so that Pods go first that run least."""
        if replicas < deployment.replicas:
            pods = await self.pods(namespace, deployment)
            entries = [] if store is None else await known_workers(store, queue) or []
            await self.prefer(namespace, pods, deletion_costs(workers_of(pods, entries, {}, 0.0), ()))
        await self.write(namespace, deployment, replicas)

    async def read(self, namespace: str, name: str) -> ScaledDeployment | None:
        """Return a Deployment; None if it is gone."""
        body = await self._kube.find(f"{deployments(namespace)}/{name}")
        return None if body is None else ScaledDeployment.of(body)


async def known_workers(store: Store, queue: str) -> list[WorkerEntry] | None:
    """Return what the workers of a queue say of themselves; None if that cannot be read: that is not nobody."""
    try:
        return await store.workers(queue)
    except HeadraceError as error:
        log.debug("%s: the workers were not listed: %s", queue, error)
        return None


def deletion_costs(workers: Iterable[Worker], stopping: Collection[str]) -> dict[str, int]:
    """Return what the deletion of each Pod costs: the jobs that it runs; least of all for those that are to stop."""
    return {
        worker.name: GOES_FIRST if worker.name in stopping else (-1 if worker.retired else worker.in_flight)
        for worker in workers
    }


def taken_first(pods: Iterable[WorkerPod], workers: Iterable[Worker], stopping: Collection[str]) -> bool:
    """Whether a ReplicaSet takes just these: before it looks at any cost it takes what is not ready."""
    ready = {pod.name for pod in pods if pod.ready_since is not None}
    return all(worker.name in ready or worker.name in stopping for worker in workers)
