"""The worker Deployment: created, applied when the spec or somebody changed it, scaled, removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_operator.api.names import RENDERED, SCALER, workers_name
from headrace_operator.api.scaling_spec import Scaling
from headrace_operator.observed import Case, WorkersObject
from headrace_operator.reasons import Finding, Reason, normal
from headrace_operator.render import render_deployment, render_service_account
from headrace_operator.steps import (
    ApplyWorkers,
    CreateServiceAccount,
    CreateWorkers,
    DeleteWorkers,
    ReleaseWorkers,
    Scale,
    Step,
)


def workers(case: Case) -> tuple[list[Step], Finding | None]:
    """Return the steps for the worker Deployment, and what is in their way."""
    spec, found = case.spec, case.seen.workers
    name = workers_name(case.queue.name)
    if spec.workers is None:
        if found is None or found.ownership != "ours":
            return [], None
        return [DeleteWorkers(name, found.body["metadata"]["uid"])], None
    if found is not None and found.ownership != "ours":
        return [], _in_the_way(name, found)

    account: list[Step] = []
    if spec.workers.service_account_name is None and not case.seen.has_account:
        account = [CreateServiceAccount(render_service_account(case.queue))]
    if found is None:
        # Without the hash, so that it is applied next: only then the applier owns what it applies.
        body = _unsigned(render_deployment(case.queue, spec.workers, case.backend, None))
        return [*account, CreateWorkers(body)], None

    steps = account
    wanted = render_deployment(case.queue, spec.workers, case.backend, found.body)
    metadata = found.body["metadata"]
    if differs(wanted, found.body) and metadata["resourceVersion"] != case.seen.applied:
        steps.append(ApplyWorkers(wanted, metadata["uid"]))
    elif released := _released(metadata.get("managedFields", [])):
        steps.append(ReleaseWorkers(name, released, metadata["resourceVersion"]))
    replicas = spec.scaling.desired()
    if not steps and replicas is not None and replicas != found.replicas:
        event = normal(Reason.SCALED, f"{name}: {found.replicas} -> {replicas} replicas ({_why(spec.scaling)})")
        steps.append(Scale(name, replicas, metadata["resourceVersion"], event=event))
    return steps, None


def differs(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether ``found`` has to be applied again: it was rendered from something else, or somebody edited it.

    Quantities are compared by the hash of what was rendered only: the API server writes them in its own way.
    """
    if wanted["metadata"]["annotations"][RENDERED] != found["metadata"].get("annotations", {}).get(RENDERED):
        return True
    return not _contained(wanted, found)


def _contained(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return False
        return all(key == "resources" or _contained(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(found, Sequence) or len(wanted) != len(found):
            return False
        return all(_contained(one, other) for one, other in zip(wanted, found, strict=True))
    return bool(wanted == found) or (not wanted and found is None)


def _unsigned(deployment: dict[str, Any]) -> dict[str, Any]:
    del deployment["metadata"]["annotations"][RENDERED]
    return deployment


def _released(managed: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return ``managed`` with the scaler owning replicas only; empty if that is so already."""
    entries = [
        {**entry, "fieldsV1": {"f:spec": {"f:replicas": {}}}} if _holds_template(entry) else entry for entry in managed
    ]
    return tuple(entries) if entries != list(managed) else ()


def _holds_template(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == SCALER and "f:template" in entry.get("fieldsV1", {}).get("f:spec", {})


def _in_the_way(name: str, found: WorkersObject) -> Finding:
    if found.ownership == "dying":
        return Finding(Reason.WAITING_FOR_DELETION, f"Deployment {name} of an earlier Queue is being deleted")
    return Finding(
        Reason.WORKERS_CONFLICT,
        f"Deployment {name} is not this Queue's and is left alone; rename or delete it, or remove spec.workers",
    )


def _why(scaling: Scaling) -> str:
    if scaling.mode == "Manual":
        return "scaling.replicas"
    return "scaling.minReplicas" if scaling.min_replicas > 1 else "at least one worker"
