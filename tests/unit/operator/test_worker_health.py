"""How the workers are: told from the Deployment and its Pods, with the cause, and not forgotten between two crashes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace_operator.api.queue_status import Condition, QueueStatus
from headrace_operator.observed import WorkersObject
from headrace_operator.planning import plan
from headrace_operator.planning.worker_health import (
    SLOW_SECONDS,
    STEADY_SECONDS,
    UNREADY_SECONDS,
    UNSCHEDULABLE_SECONDS,
    Health,
    worker_health,
    worth_listing,
)
from headrace_operator.reasons import Reason
from headrace_operator.status import build_status
from tests.unit.operator.scene import NOW, backend, known, observed, queue, queue_version, topology

V1 = backend(topology({1: (4, "active")}))
WORKERS = {"image": "registry/mail:1", "app": "mail.jobs:app"}


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def deployment(replicas: int = 1, *, available: int = 0, updated: int = 1, total: int = 1, **status: Any) -> Any:
    sizes = {"availableReplicas": available, "updatedReplicas": updated, "replicas": total, "observedGeneration": 3}
    return {
        "metadata": {"name": "mail-workers", "uid": "d1", "generation": 3, "resourceVersion": "5"},
        "spec": {"replicas": replicas},
        "status": sizes | status,
    }


def pod(container: dict[str, Any] | None = None, *, age: float = 5, ready: bool = False, **changes: Any) -> Any:
    """A Pod as a kubelet reports it."""
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(age)},
        {"type": "Ready", "status": str(ready), "lastTransitionTime": ago(age)},
    ]
    status = {"conditions": conditions, "containerStatuses": [{"name": "worker", "image": "i:1", **(container or {})}]}
    return {"metadata": {"name": "mail-workers-a", "creationTimestamp": ago(age)}, "status": status | changes}


def told(reason: str, seconds: float, status: Any = "False") -> QueueStatus:
    since: datetime = NOW - timedelta(seconds=seconds)
    condition = Condition(
        type="WorkersAvailable",
        status=status,
        observed_generation=7,
        last_transition_time=since,
        reason=reason,
        message="m",
    )
    return known(conditions=[condition])


def health(body: Any, *pods: Any, status: QueueStatus | None = None) -> Health:
    spec = queue(workers=WORKERS, status=status or known())
    found = worker_health(observed(spec, V1, queue_version(1), workers=WorkersObject(body, "ours", pods)))
    assert found is not None
    return found


def reason(*pods: Any, **fields: Any) -> tuple[bool, Reason]:
    found = health(deployment(**fields), *pods)
    return found.available, found.finding.reason


def test_availability_is_told_with_its_cause() -> None:
    assert reason(replicas=2, available=2, updated=2, total=2) == (True, Reason.AVAILABLE)
    assert reason(replicas=2, available=1, updated=2, total=2) == (False, Reason.WORKERS_STARTING)
    assert reason(replicas=0, updated=0, total=0) == (True, Reason.SCALED_TO_ZERO)
    quota = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": 'pods "mail-workers-x1" is forbidden: exceeded quota',
    }
    found = health(deployment(available=1, total=1, conditions=[quota]))
    assert (found.available, found.finding.reason) == (False, Reason.REPLICA_FAILURE)
    assert found.finding.message == "1 of 1 workers are available; Pods cannot be created: forbidden: exceeded quota"


CRASHED = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": ago(9)}}
LOOP = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": CRASHED, "restartCount": 4}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (pod(LOOP), Reason.CRASH_LOOP_BACK_OFF, "Pod mail-workers-a ends again and again with exit code 3; see"),
        (
            pod({"state": KILLED, "lastState": KILLED, "restartCount": 2}),
            Reason.CRASH_LOOP_BACK_OFF,
            "with exit code 137 (OOMKilled)",
        ),
        (
            pod({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}),
            Reason.IMAGE_PULL_BACK_OFF,
            "the image i:1 cannot be pulled",
        ),
        (pod({"state": {"waiting": {"reason": "ErrImagePull"}}}), Reason.IMAGE_PULL_BACK_OFF, "kubectl describe pod"),
        (
            pod({"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}}}),
            Reason.WORKERS_NOT_READY,
            '(CreateContainerConfigError): secret "s" not found',
        ),
        (
            pod({"state": {"running": {"startedAt": ago(200)}}}, age=SLOW_SECONDS + 1),
            Reason.WORKERS_NOT_READY,
            "has not been ready for more than 150 s",
        ),
    ],
)
def test_E14_a_rollout_that_fails_is_told_although_the_old_workers_are_available(
    found: Any, expected: Reason, words: str
) -> None:
    failing = health(deployment(available=1, total=2), found)
    assert (failing.available, failing.finding.reason) == (False, expected)
    assert failing.finding.message.startswith("1 of 1 workers are available; Pod mail-workers-a")
    assert words in failing.finding.message
    assert not failing.unready
    assert failing.look_ms == 10_000


@pytest.mark.parametrize(("seconds", "expected"), [(5, True), (UNSCHEDULABLE_SECONDS + 1, False)])
def test_E14_a_pod_without_a_node_is_told_once_the_cluster_had_time_to_add_one(seconds: float, expected: bool) -> None:
    waiting = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
        "lastTransitionTime": ago(seconds),
    }
    found = health(deployment(available=1, total=2), pod(conditions=[waiting], containerStatuses=[]))
    assert found.available is expected
    if not expected:
        assert found.finding.reason is Reason.UNSCHEDULABLE
        assert "Insufficient cpu" in found.finding.message


@pytest.mark.parametrize(
    "fine",
    [
        pod({"state": {"waiting": {"reason": "ContainerCreating"}}}),
        pod({"state": {"running": {"startedAt": ago(1)}}, "lastState": CRASHED, "restartCount": 1}),
        pod({"state": {"running": {"startedAt": ago(STEADY_SECONDS + 1)}}, "restartCount": 9}, ready=True),
        pod({"state": {"running": {}}}, age=SLOW_SECONDS + 9, ready=True),
    ],
    ids=["created", "one crash", "steady again", "old and ready"],
)
def test_what_comes_up_is_no_failure(fine: Any) -> None:
    assert health(deployment(available=1, total=2), fine).available
    dying = pod(LOOP)
    dying["metadata"]["deletionTimestamp"] = ago(1)
    assert health(deployment(available=1, total=2), fine, dying).available


def test_E14_a_loop_of_crashes_is_not_forgotten_while_the_container_runs_for_a_moment() -> None:
    between = pod({"state": {"running": {"startedAt": ago(3)}}, "lastState": CRASHED, "restartCount": 2}, ready=True)
    whole = deployment(available=1)
    assert not worth_listing(whole, known())
    assert worth_listing(whole, told("CrashLoopBackOff", 5))
    found = health(whole, between, status=told("CrashLoopBackOff", 5))
    assert (found.available, found.finding.reason) == (False, Reason.CRASH_LOOP_BACK_OFF)


@pytest.mark.parametrize(
    "body",
    [
        deployment(available=1, total=2),
        deployment(available=1, updated=0),
        deployment(replicas=2, available=1, updated=2, total=2),
        deployment(available=1, observedGeneration=2),
        deployment() | {"status": {}},
    ],
)
def test_pods_are_listed_only_while_something_is_under_way(body: Any) -> None:
    assert worth_listing(body, known())
    assert not worth_listing(deployment(available=1), told("WorkersStarting", 9))


def test_E14_the_queue_is_ready_for_a_minute_longer() -> None:
    def ready(seconds: float, *pods: Any, available: int = 1) -> tuple[str, str]:
        body = deployment(replicas=2, available=available, updated=1, total=3)
        body["metadata"]["annotations"] = {}
        spec = queue(workers=WORKERS, status=told("WorkersStarting", seconds))
        seen = observed(spec, V1, queue_version(1), workers=WorkersObject(body, "ours", pods))
        # As if the Deployment were the wanted one: only its health counts here.
        decided = plan(seen)
        status = build_status(seen, type(decided)(health=decided.health))
        condition = status.condition("Ready")
        assert condition is not None
        return condition.status, condition.reason

    assert ready(UNREADY_SECONDS - 1, pod(LOOP)) == ("True", "Ready")
    assert ready(UNREADY_SECONDS + 1, pod(LOOP)) == ("False", "CrashLoopBackOff")
    # Slow is not failed, unless nobody works at all.
    assert ready(UNREADY_SECONDS + 1) == ("True", "Ready")
    assert ready(UNREADY_SECONDS + 1, available=0) == ("False", "WorkersStarting")
