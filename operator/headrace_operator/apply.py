"""Runs the steps of a plan: the only place that changes anything in Redis or in the API server."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from dataclasses import replace

from headrace import agreement, lifecycle, migration
from headrace.deletion import delete_queue
from headrace.errors import (
    NotDrained,
    QueueDeleting,
    QueueNotEmpty,
    TopologyConflict,
    UnknownQueue,
    UnknownVersion,
    VersionActive,
    VersionNotHigher,
)
from headrace.stores.base import Store
from headrace.topology import PartitionRef, Topology
from headrace_operator import steps
from headrace_operator.api.names import (
    GROUP_VERSION,
    OPERATOR,
    QUEUE_LABEL,
    QUEUE_VERSION_KIND,
    RENDERED,
    SCALER,
    QueueKey,
    queue_version_name,
)
from headrace_operator.kubernetes.client import ApiError, Kube, deployments, objects, queue_versions, queues
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.memory import Memory, QueueMemory
from headrace_operator.observed import QueueObject, ownership
from headrace_operator.reasons import Finding, Reason
from headrace_operator.scaling.deployment import ScaledDeployment
from headrace_operator.scaling.replicas import Replicas
from headrace_operator.workers.render import labels, owner_reference

OVERTAKEN = (
    *(VersionNotHigher, TopologyConflict, UnknownQueue, UnknownVersion, VersionActive),
    *(QueueDeleting, QueueNotEmpty),
)
"""Answers of the library to a step that was planned before somebody else acted."""
_OF_WORKERS = (
    *(steps.ClaimName, steps.CreateWorkers, steps.ApplyObject, steps.ReleaseWorkers),
    *(steps.Scale, steps.Disown, steps.DeleteObject),
)
REFUSED_SECONDS = 300.0
"""What the API server has refused is sent again after this time: a quota, a right, a webhook may have changed."""


class Outdated(Exception):
    """Something changed since it was observed: observe and plan again."""


class Refused(Exception):
    """A step cannot be done until somebody acts, or an object is gone; ``finding`` says what."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Applier:
    """Runs single steps. ``new_marker`` returns a fresh mark for an empty Redis. ``clock``: monotonic seconds."""

    def __init__(
        self,
        kube: Kube,
        memory: Memory,
        recent: Recent,
        clock: Callable[[], float],
        new_marker: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._kube = kube
        self._replicas = Replicas(kube)
        self._memory = memory
        self._recent = recent
        self._clock = clock
        self._new_marker = new_marker

    async def run(self, step: steps.Step, queue: QueueObject, store: Store | None) -> None:
        """Run one step for ``queue``, whose topology lives in ``store``.

        Raises Outdated, Refused, ApiError, ApiUnavailable, and the errors of the store.
        """
        memory = self._memory.of(queue.uid)
        if memory.refused is not None:
            refused, finding, until = memory.refused
            if step == refused and self._clock() < until:
                raise Refused(finding)
            memory.refused = None
        try:
            if store is not None and await self._change_redis(step, queue, store, memory):
                return
            if isinstance(step, steps.Scale):
                found = ScaledDeployment.of(step.found)
                await self._replicas.declare(queue.namespace, found, step.replicas, store, queue.queue_name)
                self._recent.workers_scaled(QueueKey(queue.namespace, queue.name))
                return
            await self._change_objects(step, queue, memory)
        except OVERTAKEN as error:
            raise Outdated(str(error)) from error
        except ApiError as error:
            if error.status in (404, 409):
                key = QueueKey(queue.namespace, queue.name)
                # A Deployment is written all the time by its controller: that says nothing about the rest.
                forget = self._recent.workers_written if isinstance(step, _OF_WORKERS) else self._recent.mistrust
                forget(key)
                raise Outdated(str(error)) from error
            if error.status not in (400, 403, 422):
                raise
            finding = Finding(Reason.API_REFUSED, str(error))
            if error.status != 403 and _makes_workers(step):
                finding = _workers_refused(queue, error)
            memory.refused = (step, finding, self._clock() + REFUSED_SECONDS)
            raise Refused(finding) from error

    async def _change_redis(self, step: steps.Step, queue: QueueObject, store: Store, memory: QueueMemory) -> bool:
        """Run a step that changes Redis; False if it is none."""
        name = queue.queue_name
        match step:
            case steps.WriteMarker(marker=marker):
                await store.write_marker(marker or self._new_marker())
            case steps.RestoreTopology(read=read, topology=topology):
                memory.settled = await _restore(store, read, topology)
            case steps.Configure(settings=settings, owner=owner):
                memory.settled = await lifecycle.configure(store, name, settings, owner)
            case steps.Settle(topology=topology):
                memory.settled = await agreement.make_agree(store, topology)
            case steps.Provision(current=current, version=version, partitions=partitions):
                target = (
                    Topology.created(name, version, partitions, grave=await store.read_grave(name))
                    if current is None
                    else current.promoted(version, partitions)
                )
                await lifecycle.provision(store, target, current)
            case steps.Discard(version=version, partitions=partitions):
                refs = [PartitionRef(name, version, number) for number in range(partitions)]
                await agreement.each_partition(refs, store.discard)
            case steps.Promote(version=version, partitions=partitions, settings=settings, owner=owner):
                promoted = await lifecycle.promote(store, name, version, partitions, settings=settings, owner=owner)
                memory.settled = promoted
            case steps.CloseDrained(topology=topology, version=version):
                await lifecycle.close_drained(store, topology, version)
            case steps.BuryWaiting(topology=topology, version=version):
                for ref in topology.refs(version):
                    while await migration.bury_jobs(store, ref, topology.settings.drain):
                        pass
            case steps.Complete(version=version):
                await _complete(store, name, version, memory)
            case steps.RemoveQueue(topology=topology, with_jobs=with_jobs):
                with contextlib.suppress(UnknownQueue):  # it is gone already
                    await delete_queue(store, name, owner=topology.owner, only_if_empty=not with_jobs)
            case steps.SetFinalizers(unlist=True):
                await store.unlist_queue(name)
                return False
            case _:
                return False
        return True

    async def _change_objects(self, step: steps.Step, queue: QueueObject, memory: QueueMemory) -> None:
        versions, key = queue_versions(queue.namespace), QueueKey(queue.namespace, queue.name)
        match step:
            case steps.CreateQueueVersion(version=version, partitions=partitions):
                await self._create_queue_version(queue, version, partitions)
            case steps.AdoptQueueVersion(name=name, uid=uid):
                body = {"metadata": {"uid": uid, "ownerReferences": [owner_reference(queue)]}}
                self._recent.keep_version(key, await self._kube.merge(f"{versions}/{name}", body, manager=OPERATOR))
            case steps.ReportQueueVersion(name=name, status=status):
                report = {"status": status.model_dump(mode="json", by_alias=True)}
                written = await self._kube.merge(f"{versions}/{name}/status", report, manager=OPERATOR)
                self._recent.keep_version(key, written)
            case steps.DeleteQueueVersion(name=name, uid=uid):
                await self._kube.delete(f"{versions}/{name}", uid=uid)
                self._recent.gone("versions", key, uid)
            case steps.SetFinalizers(finalizers=finalizers, resource_version=seen):
                fields = {"metadata": {"finalizers": list(finalizers), "resourceVersion": seen}}
                path = f"{queues(queue.namespace)}/{queue.name}"
                self._recent.keep_queue(await self._kube.merge(path, fields, manager=OPERATOR))
            case _:
                await self._change_workers(step, key, memory)

    async def _change_workers(self, step: steps.Step, key: QueueKey, memory: QueueMemory) -> None:
        """Run a step on what is made for the workers."""
        workers = deployments(key.namespace)
        match step:
            case steps.CreateWorkers(body=body):
                created = {**body, "spec": {**body["spec"], "replicas": 0}}
                self._recent.keep_workers(key, await self._kube.create(workers, created, manager=SCALER))
            case steps.ClaimName(body=body):
                kind = str(body["kind"])
                made = await self._kube.create(objects(kind, key.namespace), body, manager=OPERATOR)
                self._recent.keep_companion(key, kind, made)
            case steps.ApplyObject():
                await self._apply(step, key, memory)
            case steps.ReleaseWorkers(name=name, managed_fields=managed, resource_version=seen):
                fields = {"metadata": {"managedFields": list(managed), "resourceVersion": seen}}
                written = await self._kube.merge(f"{workers}/{name}", fields, manager=OPERATOR)
                self._recent.keep_workers(key, written)
            case steps.Disown(kind=kind, name=name, resource_version=seen):
                fields = {"metadata": {"ownerReferences": [], "resourceVersion": seen}}
                await self._kube.merge(f"{objects(kind, key.namespace)}/{name}", fields, manager=OPERATOR)
                self._recent.workers_written(key)
            case steps.DeleteObject(kind=kind, name=name, uid=uid):
                await self._kube.delete(f"{objects(kind, key.namespace)}/{name}", uid=uid)
                self._recent.workers_written(key)
            case _:
                raise TypeError(f"unknown step {type(step).__name__}, or no store for it")

    async def _create_queue_version(self, queue: QueueObject, version: int, partitions: int) -> None:
        name, path = queue_version_name(queue.name, version), queue_versions(queue.namespace)
        key = QueueKey(queue.namespace, queue.name)
        body = {
            "apiVersion": GROUP_VERSION,
            "kind": QUEUE_VERSION_KIND,
            "metadata": {
                "name": name,
                "namespace": queue.namespace,
                "labels": labels(queue) | {"app.kubernetes.io/component": "version"},
                "ownerReferences": [owner_reference(queue)],
            },
            "spec": {
                "queueRef": queue.name,
                "queueName": queue.queue_name,
                "version": version,
                "partitions": partitions,
            },
        }
        try:
            self._recent.keep_version(key, await self._kube.create(path, body, manager=OPERATOR))
        except ApiError as error:
            if error.status != 409 or (found := await self._kube.find(f"{path}/{name}")) is None:
                raise
            whose = ownership(found, queue.name, queue.uid)
            if whose == "ours":  # somebody took its label away, so it was not listed
                own = {"metadata": {"uid": found["metadata"]["uid"], "labels": {QUEUE_LABEL: queue.name}}}
                self._recent.keep_version(key, await self._kube.merge(f"{path}/{name}", own, manager=OPERATOR))
            elif whose == "dying":
                text = f"QueueVersion {name} of an earlier Queue {queue.name} is being deleted"
                raise Refused(Finding(Reason.WAITING_FOR_DELETION, text)) from error
            else:
                text = f"QueueVersion {name} is not this Queue's; delete it, or set spec.version to a higher number"
                raise Refused(Finding(Reason.QUEUE_VERSION_CONFLICT, text)) from error

    async def _apply(self, step: steps.ApplyObject, key: QueueKey, memory: QueueMemory) -> None:
        metadata = step.body["metadata"]
        # The uid makes the server refuse if another object has taken the name since.
        body = {**step.body, "metadata": {**metadata, "uid": step.uid}}
        path = f"{objects(step.kind, key.namespace)}/{metadata['name']}"
        after = await self._kube.apply(path, body, manager=OPERATOR)
        if step.kind == "Deployment":
            self._recent.keep_workers(key, after)
        else:
            self._recent.keep_companion(key, step.kind, after)
        memory.applied.pop(step.kind, None)
        if after["metadata"]["resourceVersion"] == step.resource_version:
            memory.applied[step.kind] = (step.resource_version, metadata["annotations"][RENDERED])


def _workers_refused(queue: QueueObject, error: ApiError) -> Finding:
    templated = (
        queue.spec is not None and queue.spec.workers is not None and queue.spec.workers.pod_template is not None
    )
    reason = Reason.INVALID_POD_TEMPLATE if templated else Reason.INVALID_WORKERS
    where = "spec.workers.podTemplate, or another field of spec.workers" if templated else "spec.workers"
    return Finding(reason, f"the API server refuses the worker Deployment: {error.message}; correct {where}")


def _makes_workers(step: steps.Step) -> bool:
    return isinstance(step, steps.CreateWorkers) or (isinstance(step, steps.ApplyObject) and step.kind == "Deployment")


async def _restore(store: Store, read: Topology | None, topology: Topology) -> Topology:
    grave = await store.read_grave(topology.queue) if read is None else None
    if grave is not None:
        # Somebody deleted the queue of a Queue object that is still there: it is created anew.
        topology = replace(topology, epoch=grave.epoch + 1, incarnation=grave.incarnation + 1)
    await lifecycle.provision(store, topology, None)  # with the settings that are to come
    if not await store.write_topology(read or grave, topology):
        raise Outdated(f"queue {topology.queue!r}: somebody else wrote the topology")
    return await agreement.make_agree(store, topology)


async def _complete(store: Store, queue: str, version: int, memory: QueueMemory) -> None:
    try:
        completed = await lifecycle.complete(store, queue, version)
    except NotDrained as error:
        raise Outdated(str(error)) from error
    except UnknownVersion:
        return  # somebody else, who proved the same, has removed it since
    # Removing a version touches no other partition: what was settled stays so, unless something else differs, too.
    settled = memory.settled
    if settled is not None:
        left = {number: known for number, known in settled.versions.items() if number != version}
        if completed == replace(settled, epoch=completed.epoch, versions=left):
            memory.settled = completed
