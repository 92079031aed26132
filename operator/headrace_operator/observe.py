"""Puts together what a plan is made from: the Queue and its objects from the API server, and what Redis says."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime, timedelta

from headrace.stores.base import Store
from headrace_operator.api.names import FINALIZER, QUEUE_LABEL, QueueKey, workers_name
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.kubernetes.autoscalers import Autoscalers
from headrace_operator.kubernetes.client import ApiError, Body, Kube, core, deployments, objects, queue_versions, queues
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.memory import Memory
from headrace_operator.observed import (
    Backend,
    ConnectionProblem,
    Object,
    Observed,
    QueueObject,
    QueueVersionObject,
    Spot,
    WorkersObject,
    ownership,
)
from headrace_operator.planning.worker_health import worth_listing
from headrace_operator.redis.connection import Connections
from headrace_operator.redis.view import RedisView, fingerprint_of, partitions_worth_counting
from headrace_operator.scaling.report import ScalingReport
from headrace_operator.scaling.rival_queues import other_scaler
from headrace_operator.workers.companions import KINDS, companion_name
from headrace_operator.workers.render import lease_name, selector_of, selector_text

PODS = 500
"""Worker Pods of one queue that are looked at for the cause of a failure."""
COMPANIONS_SECONDS = 1200.0
"""What is made beside the workers, which nothing watches, is looked at after this time at the latest."""
TROUBLED_SECONDS = 20.0
"""While the workers are not well: after this time, since that may be the cause."""
AUTOSCALERS_SECONDS = 60.0
"""While nothing happens, HorizontalPodAutoscalers are listed so often, all at once."""

log = logging.getLogger("headrace.operator")


class Unchanged:
    """Type of `UNCHANGED`."""


UNCHANGED = Unchanged()


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

    async def observe(self, key: QueueKey, *, fresh: bool = True) -> tuple[Observed, Store | None] | Unchanged | None:
        """Return what is there, and the open store; None if the Queue is gone, or goes without us.

        `UNCHANGED` if it is what was there when there was nothing to do, a short time ago; never if ``fresh``.
        ``fresh``: read the Queue anew; else it may be as it is known. Redis is always read. Raises ApiError and
        ApiUnavailable.
        """
        if not fresh and await self._is_quiet(key):
            return UNCHANGED
        queue = await self._queue(key, fresh)
        if queue is None:
            return None
        deleted = queue.deleted_at is not None
        if deleted and FINALIZER not in queue.finalizers:
            return None
        owner = {"cluster": self._cluster, "namespace": key.namespace, "name": key.name, "uid": queue.uid}
        memory = self._memory.of(queue.uid)
        versions = await self._versions(key, queue)
        idle = not deleted and queue.spec is not None and queue.spec.scale_target is None
        objects = await self._objects(key, queue.resource_version, _may_have_workers(queue)) if idle else None
        backend, store = await self._redis.read(queue, versions, owner)
        fingerprint = None
        if objects is not None and isinstance(backend, Backend):
            partitions = partitions_worth_counting(queue, versions, backend.topology)
            spot = Spot(queue.uid, queue.queue_name, partitions, _may_have_workers(queue))
            fingerprint = (objects, *fingerprint_of(backend, store), spot)
        workers = await self._workers(key, queue)
        seen = Observed(
            queue,
            versions,
            backend,
            workers,
            owner,
            self._now(),
            await self._target(queue),
            settled=memory.settled,
            applied=dict(memory.applied),
            companions=await self._companions(key, queue, workers, _fallen_back(queue, backend), fresh=fresh),
            fingerprint=fingerprint,
            namespace_ends=deleted and await self._namespace_ends(key.namespace),
            leaving=await self._pods(queue, selector_text(queue)) if deleted else (),
            scaling=self._scaling(key),
            drift=memory.drift,
        )
        return seen, store

    async def _queue(self, key: QueueKey, fresh: bool) -> QueueObject | None:
        if not fresh and (known := self._recent.queue(key)) is not None:
            return known
        body = await self._kube.find(f"{queues(key.namespace)}/{key.name}")
        if body is None:
            self._recent.forget(key)
            return None
        self._recent.keep_queue(body)
        # An answer that is older than what a watch has told is not believed.
        return self._recent.queue(key) or QueueObject.parse(body)

    async def _versions(self, key: QueueKey, queue: QueueObject) -> tuple[QueueVersionObject, ...]:
        bodies: Iterable[Object] | None = self._recent.versions(key)
        if bodies is None:
            path, labels = queue_versions(queue.namespace), f"{QUEUE_LABEL}={queue.name}"
            bodies = listed = [body async for body in self._kube.items(path, labels=labels)]
            self._recent.keep_versions(key, listed)
        found = (_queue_version(body, queue) for body in bodies)
        return tuple(version for version in found if version is not None)

    async def _is_quiet(self, key: QueueKey) -> bool:
        """Whether what is there is what was there when there was nothing to do, a short time ago.

        Compared by numbers and fingerprints: reading what the objects say is most of what a look costs.
        """
        known = self._recent.queue_at(key)
        memory = None if known is None else self._memory.of(known[0])
        if known is None or memory is None or (quiet := memory.quiet) is None or self._now() >= quiet.until:
            return False
        if quiet.objects != await self._objects(key, known[1], quiet.spot.may_have_workers):
            return False
        if not quiet.glanced:
            quiet.glanced = quiet.glance == await self._redis.glance(quiet.spot)
            return quiet.glanced  # every other time a glance is enough
        quiet.glanced = False
        return (quiet.glance, quiet.rest) == await self._redis.look(quiet.spot)

    async def _objects(self, key: QueueKey, resource_version: str, may_have_workers: bool) -> Hashable:
        """Return what tells one sight of the objects from another; None if more would have to be looked at."""
        workers, versions = self._recent.workers(key), self._recent.version_numbers(key)
        if versions is None or (workers is None and may_have_workers):
            return None
        if workers is None:
            return resource_version, versions, None, self._scaling(key)
        # One list for all Queues: nothing else tells of a new one, and meanwhile two would write replicas.
        autoscalers = await self._autoscalers.of(key.namespace, workers_name(key.name), within=AUTOSCALERS_SECONDS)
        return resource_version, versions, workers.version, self._scaling(key), autoscalers

    async def _workers(self, key: QueueKey, queue: QueueObject) -> WorkersObject | None:
        if not _may_have_workers(queue):
            return None
        name = workers_name(queue.name)
        if (known := self._recent.workers(key)) is not None:
            body = None if known.value is None else known.value.unpacked()
        else:
            body = await self._kube.find(f"{deployments(queue.namespace)}/{name}")
            self._recent.keep_workers(key, body)
        return None if body is None else await self._deployment(queue, name, body)

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
        other = other_scaler(queue, body, self._recent.scalers(queue.namespace)) if scaled_only else ""
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
        self, key: QueueKey, queue: QueueObject, workers: WorkersObject | None, fallen: int | None, *, fresh: bool
    ) -> dict[str, Body] | None:
        """Return what is made beside the workers; None: not looked at, since nothing speaks for a change.

        ``fallen``: see `_fallen_back`.
        """
        deleted, memory = queue.deleted_at is not None, self._memory.of(queue.uid)
        if not _may_have_workers(queue):
            return {}
        well = workers is not None and workers.ownership == "ours" and not worth_listing(workers.body, queue.status)
        # Once each time that they fall back: if it is the API server that they miss, looking more often helps nobody.
        well = well and fallen in (None, memory.fallen_back)
        known = self._recent.companions(key, COMPANIONS_SECONDS if well else TROUBLED_SECONDS)
        if known is not None and not deleted:
            return known
        if memory.companions_at is None:
            memory.companions_at = self._now() + timedelta(seconds=self._uniform(0.0, COMPANIONS_SECONDS))
        if well and not fresh and not deleted and self._now() < memory.companions_at:
            return None  # after a start, they are looked at one after the other
        read = {
            kind: await self._kube.find(f"{objects(kind, queue.namespace)}/{companion_name(queue, kind)}")
            for kind in KINDS
        }
        # From now on it is read as soon as it is not known: after one of these objects was deleted, too.
        memory.companions_at, memory.fallen_back = self._now(), fallen
        found = {kind: body for kind, body in read.items() if body is not None}
        self._recent.keep_companions(key, found)
        return found

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


def _fallen_back(queue: QueueObject, backend: Backend | ConnectionProblem) -> int | None:
    """Return the epoch of a worker that leads by another lock than the Lease, though that is the first; else None.

    Somebody may have taken the Lease away, or the right to it.
    """
    leader = backend.leader if isinstance(backend, Backend) else None
    fell = leader is not None and leader.backend != "lease" and lease_name(queue) is not None
    return leader.epoch if leader is not None and fell else None


def _may_have_workers(queue: QueueObject) -> bool:
    """Whether a worker Deployment of ours is wanted, or was told of in the status."""
    wanted = queue.spec is None or queue.spec.made_workers is not None
    return wanted or queue.deleted_at is not None or queue.status.selector is not None


def _queue_version(body: Object, queue: QueueObject) -> QueueVersionObject | None:
    metadata = body["metadata"]
    try:
        spec = QueueVersionSpec.model_validate(body["spec"])
        status = QueueVersionStatus.model_validate(body.get("status", {}))
    except ValueError:
        return None  # not made by us; creating ours will say so
    return QueueVersionObject(metadata["name"], metadata["uid"], spec, status, ownership(body, queue.name, queue.uid))
