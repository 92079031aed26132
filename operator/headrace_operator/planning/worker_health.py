"""Are the workers available, and if not, why: from the Deployment and, while it is not as wanted, its Pods.

A rollout that fails leaves the old Pods running, so the number of available ones alone says nothing about it. Messages
hold no counts that change all the time: each change is a write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.observed import Object, Observed, WorkersObject
from headrace_operator.reasons import ACTIONABLE, Finding, Reason

CONDITION = "WorkersAvailable"
UNREADY_SECONDS = 60.0
"""A queue is not Ready any more when its workers have failed, or none was available, for longer than this."""
STEADY_SECONDS = 60.0
"""A container that has crashed twice is well again when it has run for this time."""
UNSCHEDULABLE_SECONDS = 30.0
"""A cluster that adds nodes gets this time to do so."""
SLOW_SECONDS = 150.0
"""A Pod that is not ready after this time, which is more than its start-up probe allows, has failed."""
LOOK_MS = 10_000
_IMAGE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_ERRORS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


@dataclass(frozen=True, slots=True)
class Health:
    """Whether all wanted workers are available and their rollout goes on, and why.

    ``unready``: it has been otherwise for so long that the queue is not Ready. ``look_ms``: when to look again (None:
    nothing is expected).
    """

    available: bool
    finding: Finding
    unready: bool = False
    look_ms: int | None = None


def worth_listing(deployment: Object, status: QueueStatus) -> bool:
    """Whether the Pods have to be looked at: they are not all as wanted, or were failing when last told of."""
    told = status.condition(CONDITION)
    failing = told is not None and told.status == "False" and told.reason in ACTIONABLE
    none = deployment["spec"].get("replicas", 1) == 0 and not deployment.get("status", {}).get("replicas")
    return not none and (failing or not _complete(deployment))


def worker_health(observed: Observed) -> Health | None:
    """Return how the workers are; None if the operator runs none."""
    spec, found = observed.queue.spec, observed.scaled
    if spec is None or spec.workers is None:
        return None
    if found is None:
        return _missing(observed, spec.scale_target)
    wanted, available = found.replicas, int(found.body.get("status", {}).get("availableReplicas", 0))
    if wanted == 0:
        return Health(True, Finding(Reason.SCALED_TO_ZERO, "no worker is wanted"))
    text = f"{available} of {wanted} workers are available"
    if failure := _failure(found, observed.now):
        finding = Finding(failure.reason, f"{text}; {failure.message}")
    elif available < wanted:
        finding = Finding(Reason.WORKERS_STARTING, text)
    else:
        going = None if _complete(found.body) else LOOK_MS
        return Health(True, Finding(Reason.AVAILABLE, text), look_ms=going)
    unready = _failing_seconds(observed) > UNREADY_SECONDS and (failure is not None or available == 0)
    return Health(False, finding, unready, None if unready else LOOK_MS)


def _missing(observed: Observed, target: str | None) -> Health:
    if target is None:
        return Health(False, Finding(Reason.WORKERS_STARTING, "the worker Deployment does not exist yet"))
    finding = Finding(Reason.SCALE_TARGET_MISSING, f"Deployment {target} does not exist")
    unready = _failing_seconds(observed) > UNREADY_SECONDS
    return Health(False, finding, unready, None if unready else LOOK_MS)


def _failing_seconds(observed: Observed) -> float:
    """Since when the workers have not been available, as the status tells."""
    told = observed.queue.status.condition(CONDITION)
    if told is None or told.status != "False":
        return 0.0
    return (observed.now - told.last_transition_time).total_seconds()


def replica_failure(deployment: Mapping[str, Any]) -> str | None:
    """Return why Pods of a Deployment cannot be created (quota, pod security, missing account); None if they can."""
    for condition in deployment.get("status", {}).get("conditions", []):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            # Each attempt has a name of its own, which would make the message another one.
            return re.sub(r'^pods "[^"]*" is ', "", str(condition.get("message", "")))
    return None


def _complete(deployment: Object) -> bool:
    """Whether all wanted Pods are there, of the newest template, and available, and no others."""
    status, wanted = deployment.get("status", {}), int(deployment["spec"].get("replicas", 1))
    sizes = (status.get("updatedReplicas", 0), status.get("availableReplicas", 0), status.get("replicas", 0))
    return status.get("observedGeneration") == deployment["metadata"].get("generation") and sizes == (wanted,) * 3


def _failure(workers: WorkersObject, now: datetime) -> Finding | None:
    if failure := replica_failure(workers.body):
        return Finding(Reason.REPLICA_FAILURE, f"Pods cannot be created: {failure}")
    pods = sorted(workers.pods, key=lambda pod: str(pod["metadata"]["name"]))
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    found = [finding for pod in living for finding in _failures(pod, now)]
    # The most telling one: a Pod that crashes says more than one that is not ready.
    return min(found, key=lambda finding: _ORDER.index(finding.reason), default=None)


_ORDER = (Reason.CRASH_LOOP_BACK_OFF, Reason.IMAGE_PULL_BACK_OFF, Reason.WORKERS_NOT_READY, Reason.UNSCHEDULABLE)


def _failures(pod: Object, now: datetime) -> Iterator[Finding]:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        yield from _container_failures(name, container, now)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        if _age(scheduled.get("lastTransitionTime"), now) > UNSCHEDULABLE_SECONDS:
            text = f"Pod {name} finds no node: {scheduled.get('message', '')}"
            yield Finding(Reason.UNSCHEDULABLE, text)
        return
    if conditions.get("Ready", {}).get("status") == "True":
        return
    since = conditions.get("Ready", {}).get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
    if _age(since, now) > SLOW_SECONDS:
        text = f"Pod {name} has not been ready for more than {SLOW_SECONDS:g} s; see `kubectl describe pod {name}`"
        yield Finding(Reason.WORKERS_NOT_READY, text)


def _container_failures(pod: str, container: Mapping[str, Any], now: datetime) -> Iterator[Finding]:
    state = container.get("state", {})
    waiting, reason = state.get("waiting", {}), state.get("waiting", {}).get("reason")
    if reason in _IMAGE:
        text = f"Pod {pod}: the image {container.get('image')} cannot be pulled; see `kubectl describe pod {pod}`"
        yield Finding(Reason.IMAGE_PULL_BACK_OFF, text)
    elif reason in _ERRORS:
        text = f"Pod {pod}: the container cannot be started ({reason}): {waiting.get('message', '')}"
        yield Finding(Reason.WORKERS_NOT_READY, text)
    elif _crashes(container, now):
        ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
        code = f" with exit code {ended['exitCode']}" if "exitCode" in ended else ""
        why = f" ({ended['reason']})" if ended.get("reason") not in (None, "Error", "Completed") else ""
        text = f"Pod {pod} ends again and again{code}{why}; see `kubectl logs {pod} --previous`"
        yield Finding(Reason.CRASH_LOOP_BACK_OFF, text)


def _crashes(container: Mapping[str, Any], now: datetime) -> bool:
    """Whether a container is in a loop of crashes, also in the moments when it runs."""
    state = container.get("state", {})
    if state.get("waiting", {}).get("reason") == "CrashLoopBackOff":
        return True
    if container.get("restartCount", 0) < 2:
        return False
    return "running" not in state or _age(state["running"].get("startedAt"), now) < STEADY_SECONDS


def _age(since: str | None, now: datetime) -> float:
    return 0.0 if since is None else (now - datetime.fromisoformat(since)).total_seconds()
