"""Observed values for the tests of pure decisions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from headrace.stores.base import Counts, PartitionState
from headrace.topology import Topology, Version, VersionState
from headrace_operator.api.names import GROUP_VERSION
from headrace_operator.api.queue_status import Backend as BackendStatus
from headrace_operator.api.queue_status import Phase, QueueStatus
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import Backend, Observed, Ownership, QueueObject, QueueVersionObject
from headrace_operator.planning import Plan
from headrace_operator.workers.companions import render_companions

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OWNER = {"cluster": "c1", "namespace": "ns", "name": "mail", "uid": "u1"}
ENDPOINT, MARKER = "redis:6379/0", "m1"


def queue(
    version: int = 1,
    partitions: int = 4,
    *,
    status: QueueStatus | None = None,
    annotations: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> QueueObject:
    body = {
        "apiVersion": GROUP_VERSION,
        "kind": "Queue",
        "metadata": {
            "namespace": "ns",
            "name": "mail",
            "uid": "u1",
            "generation": 7,
            "resourceVersion": "70",
            "annotations": annotations or {},
            **(metadata or {}),
        },
        "spec": {"version": version, "partitions": partitions, **spec},
    }
    return replace(QueueObject.parse(body), status=status or QueueStatus())


def topology(
    versions: dict[int, tuple[int, VersionState]], epoch: int = 5, owner: dict[str, str] | None = None
) -> Topology:
    active = next(number for number, (_, state) in versions.items() if state == "active")
    settings = queue().spec.settings()  # type: ignore[union-attr]  # the spec is a valid one
    return Topology(
        "mail",
        epoch,
        active,
        max(versions),
        {number: Version(partitions, state) for number, (partitions, state) in versions.items()},
        OWNER if owner is None else owner,
        settings,
    )


def counts(
    state: PartitionState = "active", *, ready: int = 0, scheduled: int = 0, dead: int = 0, **changes: Any
) -> Counts:
    empty = Counts(state, ready, scheduled, 0, 0, 0, 0, 0, dead, None, None, None, 1_000_000)
    return empty._replace(**changes)


def filled(topology: Topology, **partition_counts: Counts) -> dict[int, dict[int, Counts]]:
    """Counts of every partition; ``v1=...`` gives those of the first partition of v1, the others of it are empty."""
    result = {}
    for number, version in topology.versions.items():
        state: PartitionState = "active" if version.state == "active" else "draining"
        result[number] = {partition: counts(state) for partition in range(version.partitions)}
        if (given := partition_counts.get(f"v{number}")) is not None:
            result[number] = dict.fromkeys(result[number], given)
    return result


def queue_version(
    version: int, partitions: int = 4, phase: Phase = "Active", ownership: Ownership = "ours"
) -> QueueVersionObject:
    return QueueVersionObject(
        f"mail-v{version}",
        f"uid-{version}",
        QueueVersionSpec(queue_ref="mail", queue_name="mail", version=version, partitions=partitions),
        QueueVersionStatus(observed_generation=1, phase=phase, promoted_at=None if phase == "Pending" else NOW),
        ownership,
    )


def companions(queue: QueueObject, workers: Workers) -> dict[str, Any]:
    """What is beside the worker Deployment, as it should be."""
    made = {}
    for number, body in enumerate(render_companions(queue, workers)):
        body["metadata"] |= {"uid": f"c{number}", "resourceVersion": str(number)}
        made[body["kind"]] = body
    return made


def observed(
    queue: QueueObject,
    backend: Backend,
    *versions: QueueVersionObject,
    settled: bool = True,
    **fields: Any,
) -> Observed:
    agreed = backend.topology if settled else None
    if "companions" not in fields and queue.spec is not None and queue.spec.made_workers is not None:
        fields["companions"] = companions(queue, queue.spec.made_workers)
    return Observed(queue, versions, backend, fields.pop("workers", None), OWNER, NOW, settled=agreed, **fields)


def backend(topology: Topology | None = None, marker: str | None = MARKER, **fields: Any) -> Backend:
    if topology is not None and "counts" not in fields:
        fields["counts"] = filled(topology)
    return Backend(ENDPOINT, marker, topology, url="redis://redis", **fields)


def known(active: int = 1, partitions: int = 4, epoch: int = 5, **fields: Any) -> QueueStatus:
    """The status of a queue that was well before."""
    return QueueStatus(
        active_version=active,
        active_partitions=partitions,
        topology_epoch=epoch,
        backend=BackendStatus(endpoint=ENDPOINT, marker=MARKER),
        **fields,
    )


V1 = topology({1: (4, "active")})
V2_OVER_V1 = topology({1: (4, "draining"), 2: (8, "active")})


def kinds(planned: Plan) -> list[str]:
    return [type(step).__name__ for step in planned.steps]


def bumped(**spec: object) -> QueueObject:
    return queue(2, 8, status=known(), **spec)  # type: ignore[arg-type]


PROVISIONED = filled(V1) | {2: dict.fromkeys(range(8), counts())}
