"""What runs for the workers: created, applied when the spec or somebody changed it, scaled, removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace_operator.api.names import RENDERED, SCALER, workers_name
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import Case, Observed, WorkersObject, ownership
from headrace_operator.planning.drift import rendered_from, to_apply
from headrace_operator.reasons import Finding, Reason, normal
from headrace_operator.scaling.policy import Limit
from headrace_operator.steps import (
    ApplyObject,
    ClaimName,
    CreateWorkers,
    DeleteObject,
    Disown,
    ReleaseWorkers,
    Scale,
    Step,
)
from headrace_operator.workers import grace
from headrace_operator.workers.companions import claim, render_companions
from headrace_operator.workers.pod_template import TemplateRefused
from headrace_operator.workers.render import render_deployment


def workers(case: Case) -> tuple[list[Step], Finding | None]:
    """Return the steps for the worker Deployment and what it needs, and what is in their way."""
    workers, found = case.spec.made_workers, case.seen.workers
    name = workers_name(case.queue.name)
    if workers is None:
        return [*remove_workers(case.seen), *scale(case)], None
    if found is not None and found.ownership in ("foreign", "dying"):
        return [], _in_the_way(name, found)

    steps = list(_companions(case, workers))
    try:
        wanted = render_deployment(case.queue, workers, case.backend, None if found is None else found.body)
    except TemplateRefused as error:
        return [], Finding(Reason.INVALID_POD_TEMPLATE, f"spec.workers.podTemplate.{error}")
    if found is None:
        # Without the hash, so that it is applied next: only then the applier owns what it applies.
        return [*steps, CreateWorkers(_unsigned(wanted))], None

    metadata = found.body["metadata"]
    if put_right := list(_put_right(case, wanted, found.body)):
        steps += put_right
    elif released := _released(metadata.get("managedFields", [])):
        steps.append(ReleaseWorkers(name, released, metadata["resourceVersion"]))
    if not steps:
        steps += scale(case)
    return steps, None


def scale(case: Case) -> list[Step]:
    """Return the step that sets the replicas that the spec declares; those that follow the load are not set here."""
    found, replicas = case.seen.scaled, case.spec.scaling.declared()
    if found is None or not_scaled(case.seen) is not None or replicas is None or replicas == found.replicas:
        return []
    event = normal(Reason.SCALED, f"{found.name}: {found.replicas} -> {replicas} replicas (scaling.replicas)")
    return [Scale(found.body, replicas, event=event)]


def not_scaled(seen: Observed) -> Finding | None:
    """Say why the operator does not set the replicas of the workers; None if it does, or runs none."""
    spec, found = seen.queue.spec, seen.scaled
    if spec is None or spec.workers is None:
        return None
    if spec.scaling.mode == "Disabled":
        return Finding(Reason.SCALING_DISABLED, "spec.scaling.mode is Disabled: somebody else sets the replicas")
    if found is None:
        if spec.scale_target is None:
            return Finding(Reason.WORKERS_STARTING, "the worker Deployment does not exist yet")
        return Finding(
            Reason.SCALE_TARGET_MISSING,
            f"Deployment {spec.scale_target}, which spec.workers.scaleTargetRef names, does not exist; create it, or "
            "correct the name",
        )
    if found.other_queue:
        return Finding(
            Reason.SCALE_TARGET_TAKEN,
            f"Deployment {found.name} is scaled by Queue {found.other_queue}, so its replicas are not touched; name "
            "another one in spec.workers.scaleTargetRef, or set spec.scaling.mode to Disabled",
        )
    if found.autoscalers:
        return Finding(
            Reason.CONFLICTING_AUTOSCALER,
            f"Deployment {found.name} is scaled by the HorizontalPodAutoscaler {', '.join(found.autoscalers)} as well, "
            "so its replicas are not touched; delete that one, or what it is made for, or set spec.scaling.mode to "
            "Disabled",
        )
    return None


def hampered(seen: Observed) -> Finding | None:
    """Say why the operator sets the replicas of the workers, but not as the load asks for; None if it does."""
    spec, found, report = seen.queue.spec, seen.scaled, seen.scaling
    if spec is None or found is None or spec.scaling.mode != "Backlog":
        return None
    if report.writer:
        return Finding(
            Reason.CONFLICTING_WRITER,
            f"replicas of Deployment {found.name} are written by {report.writer} as well; take spec.replicas out of "
            "what it applies, or set spec.scaling.mode to Disabled",
        )
    if report.limit is Limit.FALLBACK:
        return Finding(
            Reason.METRICS_UNKNOWN,
            "the load of the queue cannot be read, so replicas are not lowered, and at least "
            f"spec.scaling.fallback.replicas {spec.scaling.fallback.replicas}; see ConnectionReady",
        )
    return None


def scaling_limit(seen: Observed) -> Finding | None:
    """Say which bound of the spec holds the replicas back or up; None if they follow the load."""
    spec, limit = seen.queue.spec, seen.scaling.limit
    if spec is None or spec.scaling.mode != "Backlog" or limit is None:
        return None
    scaling = spec.scaling
    told = {
        Limit.MAX_REPLICAS: (Reason.MAX_REPLICAS, f"more would be wanted than spec.scaling.maxReplicas "
                             f"{scaling.max_replicas}"),
        Limit.MIN_REPLICAS: (Reason.MIN_REPLICAS, f"spec.scaling.minReplicas {scaling.min_replicas} are kept"),
        Limit.MAX_IN_FLIGHT: (Reason.MAX_IN_FLIGHT, "more workers could run no more jobs than spec.limits.maxInFlight"),
        Limit.RATE: (Reason.RATE_LIMIT, "more workers could start no more jobs than spec.limits.ratePerSecond"),
        Limit.HOLD: (Reason.HOLD, "the queue is paused: no worker is added"),
    }  # fmt: skip
    return Finding(*told[limit]) if limit in told else None


def idle_drain(case: Case, draining: Finding | None) -> Finding | None:
    """Return what a drain waits for: if that is jobs which could run now, and no worker is wanted, then for workers."""
    found = case.seen.scaled
    if draining is None or draining.reason not in (Reason.JOBS_REMAIN, Reason.DRAIN_STUCK):
        return draining
    if found is None or found.replicas > 0:
        return draining
    topology = case.backend.topology
    older = () if topology is None else topology.older
    counts = [count for version in older for count in case.backend.counts.get(version, {}).values()]
    if not any(count.ready or count.leased for count in counts):
        return draining
    if case.spec.scaling.mode == "Backlog" and not_scaled(case.seen) is None:
        return draining  # what could run is counted, and raises a worker
    how = "raise spec.scaling.replicas" if case.spec.scaling.mode == "Manual" else f"scale Deployment {found.name} up"
    return Finding(Reason.NO_WORKERS, f"{draining.message}; no worker runs, as spec.scaling says: {how}")


def grace_advice(seen: Observed) -> Finding | None:
    """Say that jobs may take longer than a worker that is stopped gives them; None if they may not."""
    spec, found = seen.queue.spec, seen.scaled
    if spec is None or spec.workers is None:
        return None
    body, longest, made = None if found is None else found.body, spec.timeout_seconds, spec.made_workers
    if made is not None:
        given, wanted = grace.in_force(made, longest, body), grace.needed(longest)
        how = f"set spec.workers.terminationGracePeriodSeconds to {wanted}, which restarts the workers"
        if made.termination_grace_period_seconds is None:
            how = f"workers get {wanted} s from their next rollout on; to have that now, {how}"
    elif body is not None:
        given, wanted = grace.of_template(body), grace.needed(longest)
        how = (
            f"set terminationGracePeriodSeconds of Deployment {spec.scale_target} to {wanted}, and "
            f"HEADRACE_GRACE_SECONDS of its workers to {wanted - grace.WIND_DOWN_SECONDS}"
        )
    else:
        return None
    if given >= wanted:
        return None
    return Finding(
        Reason.GRACE_TOO_SHORT,
        f"a job may run for {longest} s (spec.timeoutSeconds), and a worker that is stopped gives it "
        f"{max(0, given - grace.WIND_DOWN_SECONDS)} s; a longer one is handed back and runs again: {how}",
    )


def remove_workers(seen: Observed, *, unowned: bool = False) -> list[Step]:
    """Return the steps that delete what was made for the workers; ``unowned``: only what would outlive the Queue."""
    queue = seen.queue
    found = {} if seen.workers is None else {"Deployment": (seen.workers.body, seen.workers.ownership)}
    beside = seen.companions or {}
    found |= {kind: (body, ownership(body, queue.name, queue.uid)) for kind, body in beside.items()}
    return [
        DeleteObject(kind, body["metadata"]["name"], body["metadata"]["uid"])
        for kind, (body, whose) in found.items()
        if whose == "ours"
        and "deletionTimestamp" not in body["metadata"]
        and not (unowned and body["metadata"].get("ownerReferences"))
    ]


def _put_right(case: Case, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Step]:
    """Yield what makes ``found``, which is ours or becomes so, into ``wanted``."""
    kind, metadata = str(wanted["kind"]), found["metadata"]
    if metadata.get("ownerReferences") and "ownerReferences" not in wanted["metadata"]:
        yield Disown(kind, metadata["name"], metadata["resourceVersion"])
    elif to_apply(wanted, found, case.seen.applied.get(kind)):
        drift = rendered_from(found) == rendered_from(wanted)
        yield ApplyObject(wanted, metadata["uid"], metadata["resourceVersion"], drift=drift)


def _companions(case: Case, workers: Workers) -> Iterator[Step]:
    if case.seen.companions is None:
        return
    queue, wanted = case.queue, {body["kind"]: body for body in render_companions(case.queue, workers)}
    for kind, body in wanted.items():
        found = case.seen.companions.get(kind)
        whose = None if found is None else ownership(found, queue.name, queue.uid)
        if found is None:
            yield ClaimName(claim(body))
        elif whose == "ours" and found.get("roleRef") != body.get("roleRef"):
            # It can be written once only: made anew when this one is gone.
            yield DeleteObject(kind, found["metadata"]["name"], found["metadata"]["uid"])
        # One of somebody else is used as it is; one that dies is made anew when it is gone.
        elif whose in ("ours", "orphan"):
            yield from _put_right(case, body, found)
    for kind, found in case.seen.companions.items():
        if kind not in wanted and ownership(found, queue.name, queue.uid) == "ours":
            yield DeleteObject(kind, found["metadata"]["name"], found["metadata"]["uid"])


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
