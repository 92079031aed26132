"""What is made for the workers beside their Deployment, each object under the Deployment's name.

Workers that elect their leader through a Lease get it ready-made, with the right to read and renew this one and no
other: to create one cannot be limited to a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_operator.api.names import RENDERED, workers_name
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import QueueObject
from headrace_operator.workers.render import digest, lease_name, metadata, selector

KINDS = ("ServiceAccount", "Lease", "Role", "RoleBinding", "PodDisruptionBudget")
_RBAC = "rbac.authorization.k8s.io"


def render_companions(queue: QueueObject, workers: Workers) -> tuple[dict[str, Any], ...]:
    """Return the objects as they have to be applied, the ones that Pods need before they start first."""
    bodies = [_service_account(queue)] if workers.service_account_name is None else []
    if (name := lease_name(queue)) is not None:
        bodies += [_lease(queue, name), _role(queue, name), _role_binding(queue, workers)]
    bodies.append(_disruption_budget(queue))
    for body in bodies:
        body["metadata"]["annotations"][RENDERED] = digest(body)
    return tuple(bodies)


def companion_name(queue: QueueObject, kind: str) -> str:
    """Return the name of the object of a kind: that of the Deployment, but for a Lease that the spec names."""
    given = queue.spec.leader_election.lease_name if kind == "Lease" and queue.spec is not None else None
    return given or workers_name(queue.name)


def claim(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an object is created with, so that it can be applied: its name, whose it is, what cannot change."""
    metadata = {**body["metadata"], "annotations": {**body["metadata"]["annotations"]}}
    del metadata["annotations"][RENDERED]
    fixed = {key: body[key] for key in ("apiVersion", "kind", "roleRef") if key in body}
    return {**fixed, "metadata": metadata}


def _service_account(queue: QueueObject) -> dict[str, Any]:
    """Return the ServiceAccount of workers that name none. Only Pods that need its token mount one."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(queue),
        "automountServiceAccountToken": False,
    }


def _lease(queue: QueueObject, name: str) -> dict[str, Any]:
    """Return the Lease of the workers' leader, whose spec is theirs alone."""
    given = metadata(queue)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": given
        | {"name": name, "labels": {**given["labels"], "app.kubernetes.io/component": "leader-election"}},
    }


def _role(queue: QueueObject, lease: str) -> dict[str, Any]:
    """Return the Role of the workers: one Lease, by name."""
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": metadata(queue),
        "rules": [{**leases, "resourceNames": [lease], "verbs": ["get", "update"]}],
    }


def _role_binding(queue: QueueObject, workers: Workers) -> dict[str, Any]:
    """Return the RoleBinding that gives the Role to the ServiceAccount that the workers run as."""
    account = workers.service_account_name or workers_name(queue.name)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(queue),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": workers_name(queue.name)},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": queue.namespace}],
    }


def _disruption_budget(queue: QueueObject) -> dict[str, Any]:
    """Return the budget that lets a drain of nodes take a quarter of the workers at a time, at least one."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(queue),
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": selector(queue)}},
    }
