"""What is made for the workers beside their Deployment, each object under the Deployment's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_operator.api.names import RENDERED
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import QueueObject
from headrace_operator.render import digest, metadata, selector

KINDS = ("ServiceAccount", "PodDisruptionBudget")


def render_companions(queue: QueueObject, workers: Workers) -> tuple[dict[str, Any], ...]:
    """Return the objects as they have to be applied, the ones that Pods need before they start first."""
    bodies = [_disruption_budget(queue)]
    if workers.service_account_name is None:
        bodies.insert(0, _service_account(queue))
    for body in bodies:
        body["metadata"]["annotations"][RENDERED] = digest(body)
    return tuple(bodies)


def claim(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an object is created with, so that it can be applied: its name, and whose it is."""
    metadata = {**body["metadata"], "annotations": {**body["metadata"]["annotations"]}}
    del metadata["annotations"][RENDERED]
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata}


def _service_account(queue: QueueObject) -> dict[str, Any]:
    """Return the ServiceAccount of workers that name none. It has no right, and no token is mounted."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(queue),
        "automountServiceAccountToken": False,
    }


def _disruption_budget(queue: QueueObject) -> dict[str, Any]:
    """Return the budget that lets a drain of nodes take a quarter of the workers at a time, at least one."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(queue),
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": selector(queue)}},
    }
