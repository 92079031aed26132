"""Puts together what a plan is made from: the Queue and its objects from the API server, and what Redis says."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from headrace.stores.base import Store
from headrace_operator.api.names import FINALIZER, MANAGED_BY_LABEL, OPERATOR, QUEUE_LABEL, QueueKey, workers_name
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.autoscalers import Autoscalers
from headrace_operator.companions import KINDS, companion_name
from headrace_operator.connection import Connections
from headrace_operator.kube import ApiError, Body, Kube, core, deployments, objects, queue_versions, queues
from headrace_operator.memory import Memory
from headrace_operator.observed import Observed, QueueObject, QueueVersionObject, WorkersObject, ownership
from headrace_operator.planning.worker_health import worth_listing
from headrace_operator.recent import Packed, Recent
from headrace_operator.redis_view import RedisView
from headrace_operator.render import selector_of, selector_text
from headrace_operator.scale_targets import other_scaler
from headrace_operator.scaling.report import ScalingReport

PODS = 500
"""Worker Pods of one queue that are looked at for the cause of a failure."""
COMPANIONS_SECONDS = 600.0
"""What is made beside the workers, which nothing watches, is looked at after this time at the latest."""

log = logging.getLogger("headrace.operator")


class Observer:
    """Makes one `Observed` per pass. ``now``: time of day, in UTC. ``recent``: what was read before and still holds."""

    def __init__(
        self,
        kube: Kube,
        connections: Connections,
        memory: Memory,
        cluster: str,
        now: Callable[[], datetime],
        autoscalers: Autoscalers,
        recent: Recent,
        scaling: Callable[[QueueKey], ScalingReport] = lambda _: ScalingReport(),
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._kube = kube
        self._redis = RedisView(kube, connections)
        self._memory = memory
        self._cluster = cluster
        self._now = now
        self._autoscalers = autoscalers
        self._recent = recent
        self._uniform = uniform
        self._scaling = scaling

    async def observe(self, key: QueueKey, *, fresh: bool = True) -> tuple[Observed, Store | None] | None:
        """Return what is there, and the open store; None if the Queue is gone, or goes without us.

        ``fresh``: read everything anew; else objects that nobody has told of a change of may be as they were read last.
        Redis is always read. Raises ApiError and ApiUnavailable.
        """
        queue = await self._queue(key, fresh)
        if queue is None:
            return None
        deleted = queue.deleted_at is not None
        if deleted and FINALIZER not in queue.finalizers:
            return None
        versions = await self._versions(key, queue, fresh)
        workers = await self._workers(key, queue, fresh)
        owner = {"cluster": self._cluster, "namespace": key.namespace, "name": key.name, "uid": queue.uid}
        memory = self._memory.of(queue.uid)
        backend, store = await self._redis.read(queue, versions, owner)
        seen = Observed(
            queue,
            versions,
            backend,
            workers,
            owner,
            self._now(),
            await self._target(queue),
            settled_epoch=memory.settled_epoch,
            applied=dict(memory.applied),
            companions=await self._companions(queue, workers, fresh=fresh),
            namespace_ends=deleted and await self._namespace_ends(key.namespace),
            leaving=await self._pods(queue, selector_text(queue)) if deleted else (),
            scaling=self._scaling(key),
        )
        return seen, store

    async def prime(self, namespaces: Iterable[str | None]) -> None:
        """Read the objects of all Queues in pages: with many of them, one by one would take minutes."""
        ticket = self._recent.ticket()
        queues_by_key: dict[QueueKey, QueueObject] = {}
        found: dict[QueueKey, list[Body]] = {}
        for namespace in namespaces:
            async for body in self._kube.items(queues(namespace)):
                queue = QueueObject.parse(body)
                key = QueueKey(queue.namespace, queue.name)
                queues_by_key[key] = queue
                self._recent.put(key, "queue", ticket, queue, [queue.resource_version])
            async for body in self._kube.items(queue_versions(namespace)):
                if (name := body["metadata"].get("labels", {}).get(QUEUE_LABEL)) is not None:
                    found.setdefault(QueueKey(body["metadata"]["namespace"], name), []).append(body)
            ours = f"{MANAGED_BY_LABEL}={OPERATOR}"
            async for body in self._kube.items(deployments(namespace), labels=ours):
                key = QueueKey(body["metadata"]["namespace"], body["metadata"]["labels"].get(QUEUE_LABEL, ""))
                if body["metadata"]["name"] == workers_name(key.name):
                    self._keep_workers(key, ticket, body)
        for key, queue in queues_by_key.items():
            self._keep_versions(key, ticket, queue, found.get(key, []))

    async def _queue(self, key: QueueKey, fresh: bool) -> QueueObject | None:
        if not fresh and (kept := self._recent.get(key, "queue")) is not None:
            found: QueueObject = kept.value
            return found
        ticket = self._recent.ticket()
        body = await self._kube.find(f"{queues(key.namespace)}/{key.name}")
        if body is None:
            return None
        queue = QueueObject.parse(body)
        self._recent.put(key, "queue", ticket, queue, [queue.resource_version])
        return queue

    async def _versions(self, key: QueueKey, queue: QueueObject, fresh: bool) -> tuple[QueueVersionObject, ...]:
        if not fresh and (kept := self._recent.get(key, "versions")) is not None:
            found: tuple[QueueVersionObject, ...] = kept.value
            return found
        ticket, path = self._recent.ticket(), queue_versions(queue.namespace)
        bodies = [body async for body in self._kube.items(path, labels=f"{QUEUE_LABEL}={queue.name}")]
        return self._keep_versions(key, ticket, queue, bodies)

    def _keep_versions(
        self, key: QueueKey, ticket: int, queue: QueueObject, bodies: list[Body]
    ) -> tuple[QueueVersionObject, ...]:
        parsed = (_queue_version(body, queue) for body in bodies)
        versions = tuple(version for version in parsed if version is not None)
        numbers = [body["metadata"]["resourceVersion"] for body in bodies]
        self._recent.put(key, "versions", ticket, versions, numbers)
        return versions

    async def _workers(self, key: QueueKey, queue: QueueObject, fresh: bool) -> WorkersObject | None:
        name = workers_name(queue.name)
        if not fresh and (kept := self._recent.get(key, "workers")) is not None:
            body = None if kept.value is None else kept.value.unpacked()
        else:
            ticket = self._recent.ticket()
            body = await self._kube.find(f"{deployments(queue.namespace)}/{name}")
            self._keep_workers(key, ticket, body)
        return None if body is None else await self._deployment(queue, name, body)

    def _keep_workers(self, key: QueueKey, ticket: int, body: Body | None) -> None:
        value, versions = (None, ()) if body is None else (Packed(body), (body["metadata"]["resourceVersion"],))
        self._recent.put(key, "workers", ticket, value, versions)

    async def _target(self, queue: QueueObject) -> WorkersObject | None:
        name = None if queue.spec is None else queue.spec.scale_target
        body = None if name is None else await self._kube.find(f"{deployments(queue.namespace)}/{name}")
        return None if name is None or body is None else await self._deployment(queue, name, body, scaled_only=True)

    async def _deployment(
        self, queue: QueueObject, name: str, body: Body, *, scaled_only: bool = False
    ) -> WorkersObject:
        whose = ownership(body, queue.name, queue.uid)
        if not scaled_only and (whose != "ours" or (queue.spec is not None and queue.spec.scale_target is not None)):
            return WorkersObject(body, whose)
        pods = await self._pods(queue, selector_of(body)) if worth_listing(body, queue.status) else ()
        autoscalers = await self._autoscalers.of(queue.namespace, name)
        other = other_scaler(queue, body, self._recent.queues()) if scaled_only else ""
        return WorkersObject(body, whose, pods, autoscalers, other)

    async def _pods(self, queue: QueueObject, labels: str) -> tuple[Body, ...]:
        """List the worker Pods. Done only while something is wrong: a watch would hold all Pods all the time."""
        pods: list[Body] = []
        try:
            async for pod in self._kube.items(core("pods", queue.namespace), labels=labels):
                pods.append(pod)
                if len(pods) >= PODS:
                    break
        except ApiError as error:
            if error.status != 403:
                raise
            log.warning("%s/%s: Pods may not be listed: %s", queue.namespace, queue.name, error)
        return tuple(pods)

    async def _companions(
        self, queue: QueueObject, workers: WorkersObject | None, *, fresh: bool
    ) -> dict[str, Body] | None:
        """Return what is made beside the workers; None: not looked at, since nothing speaks for a change."""
        made = queue.spec is not None and queue.spec.made_workers is not None
        if workers is None and not made and queue.deleted_at is None:
            return {}
        memory = self._memory.of(queue.uid)
        well = workers is not None and workers.ownership == "ours" and not worth_listing(workers.body, queue.status)
        if memory.companions_at is None:
            memory.companions_at = self._now() + timedelta(seconds=self._uniform(0.0, COMPANIONS_SECONDS))
        if not fresh and well and queue.deleted_at is None and self._now() < memory.companions_at:
            return None
        found = {
            kind: await self._kube.find(f"{objects(kind, queue.namespace)}/{companion_name(queue, kind)}")
            for kind in KINDS
        }
        memory.companions_at = self._now() + timedelta(seconds=COMPANIONS_SECONDS * self._uniform(0.8, 1.2))
        return {kind: body for kind, body in found.items() if body is not None}

    async def _namespace_ends(self, name: str) -> bool:
        try:
            body = await self._kube.find(f"{core('namespaces', None)}/{name}")
        except ApiError as error:
            if error.status != 403:
                raise
            log.warning("the namespace %s may not be read: %s", name, error)
            return False
        return body is None or "deletionTimestamp" in body["metadata"]


async def read_cluster_uid(kube: Kube) -> str:
    """Return the identity of the cluster: the uid of its kube-system namespace."""
    body = await kube.get(f"{core('namespaces', None)}/kube-system")
    return str(body["metadata"]["uid"])


def _queue_version(body: Body, queue: QueueObject) -> QueueVersionObject | None:
    metadata = body["metadata"]
    try:
        spec = QueueVersionSpec.model_validate(body["spec"])
        status = QueueVersionStatus.model_validate(body.get("status", {}))
    except ValueError:
        return None  # not made by us; creating ours will say so
    return QueueVersionObject(metadata["name"], metadata["uid"], spec, status, ownership(body, queue.name, queue.uid))
