"""Reads everything that a plan is made from: the Queue and its objects from the API server, the queue from Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from headrace.errors import HeadraceError, TopologyUnreadable
from headrace.stores.base import Counts, Store
from headrace.topology import PartitionRef, Topology
from headrace_operator.api.names import FINALIZER, QUEUE_LABEL, workers_name
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.autoscalers import Autoscalers
from headrace_operator.companions import KINDS
from headrace_operator.connection import Connected, Connections, problem
from headrace_operator.kube import ApiError, Body, Kube, core, deployments, objects, queue_versions, queues
from headrace_operator.memory import Memory
from headrace_operator.observed import (
    Backend,
    ConnectionProblem,
    Observed,
    QueueObject,
    QueueVersionObject,
    WorkersObject,
    ownership,
)
from headrace_operator.planning.versions import ENDED
from headrace_operator.planning.worker_health import worth_listing
from headrace_operator.reasons import Finding, Reason
from headrace_operator.render import selector_of, selector_text

REDIS_SECONDS = 15.0
"""Longest time that reading one queue from Redis may take."""
PODS = 500
"""Worker Pods of one queue that are looked at for the cause of a failure."""
PARKED_PARTITIONS = 32
"""Partitions, of the oldest versions first, whose parked jobs are asked for by type."""

log = logging.getLogger("headrace.operator")


class Observer:
    """Makes one `Observed` per pass. ``now``: time of day, in UTC."""

    def __init__(
        self,
        kube: Kube,
        connections: Connections,
        memory: Memory,
        cluster: str,
        now: Callable[[], datetime],
        autoscalers: Autoscalers,
    ) -> None:
        self._kube = kube
        self._connections = connections
        self._memory = memory
        self._cluster = cluster
        self._now = now
        self._autoscalers = autoscalers

    async def observe(self, namespace: str, name: str) -> tuple[Observed, Store | None] | None:
        """Return what is there, and the open store; None if the Queue is gone, or goes without us.

        Raises ApiError and ApiUnavailable.
        """
        body = await self._kube.find(f"{queues(namespace)}/{name}")
        if body is None:
            return None
        queue = QueueObject.parse(body)
        deleted = queue.deleted_at is not None
        if deleted and FINALIZER not in queue.finalizers:
            return None
        versions = await self._versions(queue)
        workers = await self._workers(queue)
        owner = {"cluster": self._cluster, "namespace": namespace, "name": name, "uid": queue.uid}
        memory = self._memory.of(queue.uid)
        backend, store = await self._backend(queue, versions, owner)
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
            companions=await self._companions(queue, workers),
            namespace_ends=deleted and await self._namespace_ends(namespace),
            leaving=await self._pods(queue, selector_text(queue)) if deleted else (),
        )
        return seen, store

    async def _versions(self, queue: QueueObject) -> tuple[QueueVersionObject, ...]:
        path = queue_versions(queue.namespace)
        found = [
            _queue_version(body, queue) async for body in self._kube.items(path, labels=f"{QUEUE_LABEL}={queue.name}")
        ]
        return tuple(version for version in found if version is not None)

    async def _workers(self, queue: QueueObject) -> WorkersObject | None:
        return await self._deployment(queue, workers_name(queue.name))

    async def _target(self, queue: QueueObject) -> WorkersObject | None:
        name = None if queue.spec is None else queue.spec.scale_target
        return None if name is None else await self._deployment(queue, name, scaled_only=True)

    async def _deployment(self, queue: QueueObject, name: str, *, scaled_only: bool = False) -> WorkersObject | None:
        body = await self._kube.find(f"{deployments(queue.namespace)}/{name}")
        if body is None:
            return None
        whose = ownership(body, queue.name, queue.uid)
        if not scaled_only and (whose != "ours" or (queue.spec is not None and queue.spec.scale_target is not None)):
            return WorkersObject(body, whose)
        pods = await self._pods(queue, selector_of(body)) if worth_listing(body, queue.status) else ()
        return WorkersObject(body, whose, pods, await self._autoscalers.of(queue.namespace, name))

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

    async def _companions(self, queue: QueueObject, workers: WorkersObject | None) -> dict[str, Body]:
        if workers is None and (queue.spec is None or queue.spec.made_workers is None) and queue.deleted_at is None:
            return {}
        name = workers_name(queue.name)
        found = {kind: await self._kube.find(f"{objects(kind, queue.namespace)}/{name}") for kind in KINDS}
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

    async def _backend(
        self, queue: QueueObject, versions: tuple[QueueVersionObject, ...], owner: Mapping[str, str]
    ) -> tuple[Backend | ConnectionProblem, Store | None]:
        if queue.spec is None:
            return ConnectionProblem(Finding(Reason.INVALID_SPEC, queue.problem), stalled=True), None
        connected = await self._connections.connect(queue.namespace, queue.uid, queue.spec)
        if isinstance(connected, ConnectionProblem):
            return connected, None
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                backend = await self._read(connected, queue, versions, owner)
        except TimeoutError:
            text = f"redis {connected.endpoint} did not answer within {REDIS_SECONDS:g} s"
            silent = ConnectionProblem(Finding(Reason.UNREACHABLE, text))
            self._connections.failed(connected.store, silent)
            return silent, None
        except TopologyUnreadable as error:
            return ConnectionProblem(Finding(Reason.TOPOLOGY_UNREADABLE, str(error)), stalled=True), None
        except HeadraceError as error:
            found = problem(error)
            self._connections.failed(connected.store, found)
            return found, None
        return backend, connected.store

    async def _read(
        self,
        connected: Connected,
        queue: QueueObject,
        versions: tuple[QueueVersionObject, ...],
        owner: Mapping[str, str],
    ) -> Backend:
        marker = await connected.store.read_marker()
        topology = await connected.store.read_topology(queue.queue_name)
        counts = await _counts(connected.store, queue, _worth_counting(queue, versions, topology))
        parked = await _parked(connected.store, queue, counts)
        alive = None
        if topology is not None and dict(topology.owner) != dict(owner):
            alive = await self._alive(topology.owner, owner)
        return Backend(
            connected.endpoint,
            marker,
            topology,
            counts,
            parked,
            alive,
            connected.secret,
            connected.url,
            connected.instead_of,
        )

    async def _alive(self, theirs: Mapping[str, str], ours: Mapping[str, str]) -> bool | None:
        """Whether the Queue that owns the topology exists; None if it cannot be looked up from here."""
        if theirs.get("cluster") != ours["cluster"] or not theirs.get("namespace") or not theirs.get("name"):
            return None
        try:
            body = await self._kube.find(f"{queues(theirs['namespace'])}/{theirs['name']}")
        except ApiError as error:
            if error.status == 403:
                return None
            raise
        return body is not None and body["metadata"]["uid"] == theirs.get("uid")


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


def _worth_counting(
    queue: QueueObject, versions: tuple[QueueVersionObject, ...], topology: Topology | None
) -> dict[int, int]:
    """Return versions with their partitions: those of the topology, those that should be in it, and those to come."""
    wanted = {} if topology is None else {n: version.partitions for n, version in topology.versions.items()}
    for version in versions:
        coming = queue.spec is not None and version.version == queue.spec.version
        if version.ownership == "ours" and (coming or version.status.phase not in ENDED):
            wanted[version.version] = max(version.spec.partitions, wanted.get(version.version, 0))
    status = queue.status
    if queue.deleted_at is not None:
        # The QueueVersions may have gone first.
        for told in status.versions:
            wanted.setdefault(told.version, told.partitions)
        if queue.spec is not None:
            wanted.setdefault(queue.spec.version, queue.spec.partitions)
    if topology is None and status.active_version is not None and status.active_partitions is not None:
        wanted.setdefault(status.active_version, status.active_partitions)
    return wanted


async def _counts(store: Store, queue: QueueObject, wanted: Mapping[int, int]) -> dict[int, dict[int, Counts]]:
    refs = [
        PartitionRef(queue.queue_name, version, number)
        for version, partitions in wanted.items()
        for number in range(partitions)
    ]
    counts: dict[int, dict[int, Counts]] = {}
    if refs:
        for ref, count in zip(refs, await store.counts(refs), strict=True):
            counts.setdefault(ref.version, {})[ref.partition] = count
    return counts


async def _parked(
    store: Store, queue: QueueObject, counts: Mapping[int, Mapping[int, Counts]]
) -> dict[int, dict[str, int]]:
    refs = [
        PartitionRef(queue.queue_name, version, number)
        for version, partitions in sorted(counts.items())
        for number, count in partitions.items()
        if count.parked
    ][:PARKED_PARTITIONS]
    parked: dict[int, dict[str, int]] = {}
    for ref, types in zip(refs, await asyncio.gather(*(store.parked(ref) for ref in refs)), strict=True):
        of_version = parked.setdefault(ref.version, {})
        for kind, jobs in types.items():
            of_version[kind] = of_version.get(kind, 0) + jobs
    return parked
