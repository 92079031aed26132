"""Queue.status: made anew from what was observed and planned, and compared with the old one before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace_operator.api.names import ACK_DATA_LOSS
from headrace_operator.api.queue_status import (
    Backend as BackendStatus,
)
from headrace_operator.api.queue_status import (
    Condition,
    ConditionStatus,
    Depth,
    QueueStatus,
    VersionStatus,
)
from headrace_operator.observed import Backend, Observed
from headrace_operator.phase import phase_of
from headrace_operator.planning import Plan
from headrace_operator.planning.leader import CONDITION as LEADER_ELECTED
from headrace_operator.planning.leader import leader_of
from headrace_operator.planning.stop import stopped
from headrace_operator.planning.versions import ENDED
from headrace_operator.planning.worker_health import CONDITION
from headrace_operator.reasons import CONFLICTS, Finding, Reason
from headrace_operator.workers.render import selector_of, selector_text

MOVED = 0.2
"""Share by which a measured number has to change to be written again."""
ACTIVE_STEP = timedelta(minutes=5)
"""A queue that is busy all the time says so this often."""
MEASURED = ("arrival_per_second", "service_seconds", "last_active_time")
"""What the scaler measures, beside the depths."""


def build_status(observed: Observed, plan: Plan, failure: Finding | None = None) -> QueueStatus:
    """Return the status that tells what was observed and what the plan says about it.

    ``failure``: a step of the plan that the API server refused. What could not be observed keeps its old value.
    """
    queue, backend = observed.queue, observed.backend
    old = queue.status
    update: dict[str, Any] = {"observed_generation": queue.generation, "leader": leader_of(observed)}
    if queue.spec is not None:
        update["target_version"] = queue.spec.version
        update |= _workers(observed, unscaled=plan.unscaled is not None)
        update["versions"] = [
            VersionStatus(
                version=v.version,
                phase=v.status.phase,
                partitions=v.spec.partitions,
                promoted_at=v.status.promoted_at,
                drained_since=v.status.drained_since,
            )
            for v in sorted(observed.versions, key=lambda v: v.version)
            if v.ownership == "ours" and v.status.phase not in ENDED
        ]
    loss_epoch = plan.epoch_after if plan.data_loss else old.data_loss_epoch
    update["data_loss_epoch"] = loss_epoch
    # While a rebuild is ahead, the old facts stay: they are what it is made from if this process dies now.
    if isinstance(backend, Backend) and plan.connection is None and plan.epoch_after is None and observed.is_ours:
        update |= _facts(backend)
    update["conditions"] = [
        _dated(old, new, queue.generation, observed.now) for new in _conditions(observed, plan, failure, loss_epoch)
    ]
    if observed.drift is not None:
        update["drift"] = observed.drift
    status = old.model_copy(update=update)
    return status.model_copy(update={"phase": phase_of(status, deleting=queue.deleted_at is not None)})


def to_write(old: QueueStatus, new: QueueStatus, *, measured_due: bool) -> bool:
    """Whether ``new`` has to be written over ``old``.

    At once if anything changed that follows from spec and topology; numbers that are only measured when they moved
    by more than a fifth or to or from zero, and ``measured_due`` says that it is time.
    """
    if _derived(old) != _derived(new):
        return True
    return measured_due and _moved(old, new)


def patch(old: QueueStatus, new: QueueStatus) -> dict[str, Any]:
    """Return the merge patch that makes ``old`` into ``new``."""
    before = old.model_dump(mode="json", by_alias=True, exclude_none=True)
    after = new.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _facts(backend: Backend) -> dict[str, Any]:
    topology = backend.topology
    facts: dict[str, Any] = {}
    if backend.marker is not None:
        facts["backend"] = BackendStatus(endpoint=backend.endpoint, marker=backend.marker)
    if topology is None:
        return facts
    counts = [count for version in topology.versions for count in backend.counts.get(version, {}).values()]
    oldest = [count.oldest_ready_at for count in counts if count.oldest_ready_at is not None]
    return facts | {
        "active_version": topology.active,
        "active_partitions": topology.partitions,
        "topology_epoch": topology.epoch,
        "depth": Depth(
            ready=sum(count.ready for count in counts),
            scheduled=sum(count.scheduled for count in counts),
            retry=sum(count.retry for count in counts),
            in_flight=sum(count.leased for count in counts),
            parked=sum(count.parked for count in counts),
            dead=sum(count.dead for count in counts),
        ),
        "oldest_ready_at": datetime.fromtimestamp(min(oldest) // 1000, UTC) if oldest else None,
    }


def _workers(observed: Observed, *, unscaled: bool) -> dict[str, Any]:
    spec, found = observed.queue.spec, observed.scaled
    if spec is None or spec.workers is None:
        gone = ("replicas", "desired_replicas", "selector", "last_scale_time", "scale_target", *MEASURED)
        return dict.fromkeys(gone)
    body = found.body if found is not None else {}
    wanted = None if unscaled else spec.scaling.declared()
    scales = found is not None and not found.other_queue and spec.scaling.mode != "Disabled"
    return {
        "replicas": body.get("status", {}).get("replicas", 0),
        "desired_replicas": wanted if wanted is not None else body.get("spec", {}).get("replicas", 0),
        "selector": selector_text(observed.queue) if found is None else selector_of(found.body),
        "scale_target": spec.scale_target if scales else None,
        "last_scale_time": observed.scaling.scaled_at or observed.queue.status.last_scale_time,
    } | _measured(observed)


def _measured(observed: Observed) -> dict[str, Any]:
    """Return what the scaler measured; what it has not measured since it began keeps its old value."""
    report = observed.scaling
    active_at = None if report.active_at is None else report.active_at.replace(microsecond=0)
    figures = (_rounded(report.arrivals_per_second), _rounded(report.service), active_at)
    return {name: value for name, value in zip(MEASURED, figures, strict=True) if value is not None}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


_REFUSED = (Reason.INVALID_WORKERS, Reason.INVALID_POD_TEMPLATE)
Draft = tuple[str, ConditionStatus, Finding]


def _conditions(observed: Observed, plan: Plan, failure: Finding | None, loss_epoch: int | None) -> Iterator[Draft]:
    health = plan.health
    trouble = plan.stalled or plan.connection or plan.doubt or failure or plan.topology or plan.workers
    if trouble is None and health is not None and health.unready:
        trouble = health.finding
    working = Finding(Reason.WORKING, "the queue is being brought to what the spec says") if plan.steps else None
    yield _condition("Ready", trouble or working, Finding(Reason.READY, _ready_message(observed)))
    stalled = plan.stalled or (failure if failure is not None and failure.reason in _REFUSED else None)
    under_way = None if stalled else trouble or working
    settled = Finding(Reason.SETTLED, "nothing is left to do")
    if stalled is not None:
        settled = Finding(stalled.reason, "waits for a correction of what the condition Stalled names")
    yield _condition("Reconciling", under_way, settled, bad="True")
    yield _condition("Stalled", stalled, Finding(Reason.SETTLED, "nothing is in the way"), bad="True")
    if observed.queue.spec is None:
        return
    yield _conflict(plan, failure)
    yield from _redis_conditions(observed, plan)
    if health is not None:
        trouble = plan.workers or failure
        available = health.available and not trouble
        yield (CONDITION, "True" if available else "False", trouble or health.finding)
        yield _condition(
            "ScalingActive", plan.unscaled, Finding(Reason.SCALING, "replicas are set as spec.scaling says")
        )
        free = Finding(Reason.WITHIN_BOUNDS, "no bound of the spec stands in the way")
        yield _condition("ScalingLimited", plan.limited, free, bad="True")
    if plan.led is not None:
        leads, how = plan.led
        yield (LEADER_ELECTED, "True" if leads else "False", how)
    acknowledged = observed.queue.annotations.get(ACK_DATA_LOSS, "")
    if loss_epoch is None:
        yield ("DataLoss", "False", Finding(Reason.NO_DATA_LOSS, "no loss of jobs is known"))
    elif acknowledged.isdecimal() and int(acknowledged) >= loss_epoch:
        yield ("DataLoss", "False", Finding(Reason.ACKNOWLEDGED, f"the loss before epoch {loss_epoch} is acknowledged"))
    else:
        yield (
            "DataLoss",
            "True",
            Finding(
                Reason.TOPOLOGY_LOST,
                f"Redis lost the queue and its jobs; it was built anew at epoch {loss_epoch}. Enqueue again what is "
                f"missing, then annotate the Queue with {ACK_DATA_LOSS}={loss_epoch}",
            ),
        )


def _conflict(plan: Plan, failure: Finding | None) -> Draft:
    """Say whether somebody else claims, or writes, what is this Queue's."""
    found = (plan.stalled, plan.topology, plan.connection, plan.doubt, plan.workers, failure, plan.unscaled)
    claimed = next((finding for finding in found if finding is not None and finding.reason in CONFLICTS), None)
    if claimed is None and plan.connection is not None:
        return ("Conflict", "Unknown", Finding(Reason.CONNECTION_NOT_READY, "the Redis of the queue cannot be read"))
    return _condition("Conflict", claimed, Finding(Reason.NO_CONFLICT, "nobody else claims what is its"), bad="True")


def _redis_conditions(observed: Observed, plan: Plan) -> Iterator[Draft]:
    backend = observed.backend
    endpoint = backend.endpoint if isinstance(backend, Backend) else ""
    yield _condition("ConnectionReady", plan.connection or plan.doubt, Finding(Reason.CONNECTED, f"{endpoint} answers"))
    known = isinstance(backend, Backend) and backend.unsafe is not None
    if plan.unsafe is None and not known:
        yield ("UnsafeRedis", "Unknown", Finding(Reason.CONNECTION_NOT_READY, "its settings are not known"))
    else:
        yield _condition("UnsafeRedis", plan.unsafe, Finding(Reason.SAFE, "nothing endangers jobs there"), bad="True")
    if plan.connection is not None:
        unknown = Finding(Reason.CONNECTION_NOT_READY, "the Redis of the queue cannot be read")
        yield ("TopologyApplied", "Unknown", unknown)
        yield ("Paused", "Unknown", unknown)
        yield ("Draining", "Unknown", unknown)
        return
    topology = backend.topology if isinstance(backend, Backend) else None
    missing = Finding(Reason.WORKING, "the queue does not exist in Redis yet") if topology is None else None
    applied = Finding(Reason.APPLIED, _ready_message(observed))
    yield _condition("TopologyApplied", plan.topology or missing, applied)
    if topology is None or not observed.is_ours:
        yield ("Paused", "Unknown", plan.topology or Finding(Reason.WORKING, "the queue is not this Queue's yet"))
    else:
        held, how = stopped(topology.settings)
        yield ("Paused", "True" if held else "False", how)
    nothing = Finding(Reason.NOT_DRAINING, "no older version")
    yield _condition("Draining", plan.draining, nothing, bad="True")


def _condition(kind: str, problem: Finding | None, fine: Finding, *, bad: ConditionStatus = "False") -> Draft:
    if problem is not None:
        return (kind, bad, problem)
    return (kind, "True" if bad == "False" else "False", fine)


def _ready_message(observed: Observed) -> str:
    topology = observed.backend.topology if isinstance(observed.backend, Backend) else None
    if topology is None:
        return "the queue does not exist in Redis yet"
    return f"v{topology.active} with {topology.partitions} partitions takes jobs"


def _dated(old: QueueStatus, draft: Draft, generation: int, now: datetime) -> Condition:
    kind, status, finding = draft
    before = old.condition(kind)
    since = before.last_transition_time if before is not None and before.status == status else None
    return Condition(
        type=kind,
        status=status,
        observed_generation=generation,
        last_transition_time=since or now.replace(microsecond=0),
        reason=finding.reason,
        message=finding.message + finding.detail,
    )


def _derived(status: QueueStatus) -> Any:
    conditions = [
        condition.model_copy(update={"message": ""}) if condition.type == "Draining" else condition
        for condition in status.conditions
    ]
    measured = {"depth": status.depth is not None, "oldest_ready_at": None, **dict.fromkeys(MEASURED)}
    return status.model_copy(update={"conditions": conditions, **measured})


def _moved(old: QueueStatus, new: QueueStatus) -> bool:
    before, after = old.depth or Depth(), new.depth or Depth()
    told = new.condition("Draining")
    if told is not None and told.reason == Reason.DRAIN_STUCK and told != old.condition("Draining"):
        return True  # who looks for the job that is named has to find it
    last, now = old.last_active_time, new.last_active_time
    if now is not None and (last is None or now - last >= ACTIVE_STEP):
        return True
    pairs = [
        *zip(before.model_dump().values(), after.model_dump().values(), strict=True),
        (old.arrival_per_second or 0, new.arrival_per_second or 0),
        (old.service_seconds or 0, new.service_seconds or 0),
    ]
    return any((a == 0) != (b == 0) or abs(a - b) > MOVED * max(a, b) for a, b in pairs)
