"""Which Deployment is scaled, when it is left alone, and what is told about workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from headrace.stores.base import Beat, Store, WorkerEntry
from headrace_operator import steps
from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.observed import ConnectionProblem, Observed, QueueObject, WorkersObject
from headrace_operator.planning import plan
from headrace_operator.reasons import Finding, Reason
from headrace_operator.scaling import Limit
from headrace_operator.scaling.report import ScalingReport
from headrace_operator.scaling.rival_queues import other_scaler
from headrace_operator.scaling.target import target_of
from headrace_operator.status import build_status, to_write
from tests.unit.operator.scene import NOW, backend, counts, filled, known, observed, queue, queue_version, topology

V1 = topology({1: (4, "active")})
TARGET = {"scaleTargetRef": {"name": "theirs"}}


def deployment(name: str = "theirs", replicas: int = 1, available: int = 1, **fields: Any) -> WorkersObject:
    body = {
        "metadata": {"name": name, "resourceVersion": "9", "uid": "d9", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}},
        "status": {"replicas": replicas, "availableReplicas": available},
    }
    return WorkersObject(body, "foreign", **fields)


def seen(target: WorkersObject | None, **spec: Any) -> Observed:
    return observed(queue(workers=TARGET, status=known(), **spec), backend(V1), queue_version(1), target=target)


def condition(observed: Observed, kind: str) -> tuple[str, str]:
    found = build_status(observed, plan(observed)).condition(kind)
    assert found is not None
    return found.status, found.reason


def test_a_foreign_deployment_is_scaled_and_nothing_else_of_it_is_touched() -> None:
    there = seen(deployment(), scaling={"mode": "Manual", "replicas": 3})
    (scale,) = plan(there).steps
    assert isinstance(scale, steps.Scale)
    assert (scale.name, scale.replicas, scale.resource_version) == ("theirs", 3, "9")
    status = build_status(there, plan(there))
    assert (status.replicas, status.desired_replicas, status.selector) == (1, 3, "app=x")
    assert condition(there, "ScalingActive") == ("True", "Scaling")


def test_a_scale_target_that_is_missing_is_told_and_the_topology_goes_on() -> None:
    there = seen(None, maxDrainingVersions=2)
    assert plan(there).steps == ()
    assert condition(there, "ScalingActive") == ("False", "ScaleTargetMissing")
    assert condition(there, "WorkersAvailable") == ("False", "ScaleTargetMissing")
    assert condition(there, "Ready") == ("True", "Ready")
    bump = replace(there, queue=queue(2, 8, workers=TARGET, status=known()))
    assert plan(bump).steps == (steps.CreateQueueVersion(2, 8),)


def test_the_deployment_of_earlier_is_removed_when_a_foreign_one_is_named() -> None:
    own = WorkersObject({"metadata": {"name": "mail-workers", "uid": "d1"}, "spec": {"replicas": 5}}, "ours")
    there = replace(seen(deployment(), scaling={"minReplicas": 1}), workers=own, companions={})
    assert plan(there).steps == (steps.DeleteObject("Deployment", "mail-workers", "d1"),)


@pytest.mark.parametrize("mode", ["Backlog", "Manual"])
def test_beside_another_autoscaler_replicas_are_not_written(mode: str) -> None:
    scaling = {"mode": mode, "replicas": 4} if mode == "Manual" else {"mode": mode, "minReplicas": 4}
    there = seen(deployment(autoscalers=("keda-hpa-x",)), scaling=scaling)
    assert plan(there).steps == ()
    assert condition(there, "ScalingActive") == ("False", "ConflictingAutoscaler")
    assert build_status(there, plan(there)).desired_replicas == 1
    off = seen(deployment(autoscalers=("keda-hpa-x",)), scaling={"mode": "Disabled"})
    assert plan(off).steps == ()
    assert condition(off, "ScalingActive") == ("False", "ScalingDisabled")


def naming(name: str = "mail", *, created: int = 1, scales: str | None = None, **spec: Any) -> QueueObject:
    status = known().model_copy(update={"scale_target": scales})
    metadata = {"name": name, "uid": f"u-{name}", "creationTimestamp": f"2026-01-0{created}T00:00:00Z"}
    return queue(metadata=metadata, status=status, **{"workers": TARGET, **spec})


def test_O28_of_two_queues_that_name_one_deployment_the_second_reports_a_conflict() -> None:
    there = seen(deployment(other_queue="first"), scaling={"mode": "Manual", "replicas": 4})
    assert plan(there).steps == ()
    assert target_of(there, cast(Store, object()), plan(there)) is None
    assert condition(there, "ScalingActive") == ("False", "ScaleTargetTaken")
    assert condition(there, "Ready") == ("True", "Ready")
    status = build_status(there, plan(there))
    assert "scaled by Queue first" in str(status.condition("ScalingActive"))
    assert (status.desired_replicas, status.scale_target) == (1, None)
    alone = seen(deployment())
    assert build_status(alone, plan(alone)).scale_target == "theirs"
    missing, off = seen(None), seen(deployment(), scaling={"mode": "Disabled"})
    assert build_status(missing, plan(missing)).scale_target is None
    assert build_status(off, plan(off)).scale_target is None


def test_O28_who_scales_goes_on_and_else_the_oldest_begins() -> None:
    body = deployment().body
    old, young = naming("old", created=1), naming("young", created=2)
    assert other_scaler(old, body, [old, young]) == ""
    assert other_scaler(young, body, [old, young]) == "old"
    scaling = naming("young", created=2, scales="theirs")
    assert other_scaler(old, body, [old, scaling]) == "young"
    assert other_scaler(scaling, body, [old, scaling]) == ""
    both = naming("old", created=1, scales="theirs")
    assert (other_scaler(both, body, [scaling]), other_scaler(scaling, body, [both])) == ("", "old")


def test_O28_a_queue_that_does_not_scale_the_deployment_is_in_nobodys_way() -> None:
    body, mine = deployment().body, naming("mine", created=5)
    elsewhere = replace(naming("a"), namespace="other")
    others = [
        naming("b", workers={"scaleTargetRef": {"name": "another"}}, scales="theirs"),
        naming("c", scaling={"mode": "Disabled"}),
        naming("d", workers={"image": "w", "app": "a:b"}),
        replace(naming("e"), spec=None),
        elsewhere,
    ]
    assert other_scaler(mine, body, others) == ""


def test_O28_the_workers_that_were_made_for_a_queue_are_its_own() -> None:
    labels = {"app.kubernetes.io/managed-by": "headrace-operator", "headrace.dev/queue": "other"}
    body = {"metadata": {"name": "other-workers", "labels": labels}}
    assert other_scaler(naming("mine", scales="other-workers"), body, []) == "other"
    assert other_scaler(naming("other"), body, []) == ""


def report(**told: Any) -> Observed:
    there = seen(deployment(), limits={"maxInFlight": 5}, scaling={"minReplicas": 1, "fallback": {"replicas": 2}})
    return replace(there, scaling=ScalingReport(**told))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ("False", "WithinBounds")),
        (Limit.MAX_REPLICAS, ("True", "MaxReplicas")),
        (Limit.MIN_REPLICAS, ("True", "MinReplicas")),
        (Limit.MAX_IN_FLIGHT, ("True", "MaxInFlight")),
        (Limit.RATE, ("True", "RateLimit")),
        (Limit.HOLD, ("True", "Hold")),
        (Limit.WINDOW, ("False", "WithinBounds")),
    ],
)
def test_what_limits_the_number_of_workers_is_told(limit: Limit | None, expected: tuple[str, str]) -> None:
    assert condition(report(limit=limit), "ScalingLimited") == expected
    assert condition(report(limit=limit), "ScalingActive") == ("True", "Scaling")


@pytest.mark.parametrize(
    ("told", "reason", "text"),
    [
        ({"limit": Limit.FALLBACK}, "MetricsUnknown", "at least spec.scaling.fallback.replicas 2"),
        ({"writer": "argocd-controller"}, "ConflictingWriter", "written by argocd-controller as well"),
    ],
)
def test_O12_O29_what_hampers_scaling_is_told(told: dict[str, Any], reason: str, text: str) -> None:
    there = report(**told)
    assert condition(there, "ScalingActive") == ("False", reason)
    assert text in str(build_status(there, plan(there)).condition("ScalingActive"))


def test_when_the_number_was_last_set_is_told_and_stays_told() -> None:
    there = report(scaled_at=NOW)
    status = build_status(there, plan(there))
    assert status.last_scale_time == NOW
    restarted = replace(there, scaling=ScalingReport(), queue=replace(there.queue, status=status))
    assert build_status(restarted, plan(restarted)).last_scale_time == NOW


def test_what_was_measured_is_told_and_stays_told_and_is_no_reason_to_look_again() -> None:
    there = report(arrivals_per_second=12.3456, service=0.25, active_at=NOW)
    assert there.scaling == ScalingReport()
    status = build_status(there, plan(there))
    assert (status.arrival_per_second, status.service_seconds, status.last_active_time) == (12.3, 0.25, NOW)
    restarted = replace(there, scaling=ScalingReport(), queue=replace(there.queue, status=status))
    assert build_status(restarted, plan(restarted)).arrival_per_second == 12.3
    idle = replace(restarted, scaling=ScalingReport(arrivals_per_second=0.0, service=0.25, active_at=NOW))
    assert build_status(idle, plan(idle)).arrival_per_second == 0


def test_E13_what_was_measured_is_written_with_the_other_measurements() -> None:
    def status(**told: Any) -> QueueStatus:
        return build_status(report(**told), plan(report(**told)))

    before = status(arrivals_per_second=10.0, service=0.2, active_at=NOW)
    for told, moved in (
        ({"arrivals_per_second": 11.0}, False),
        ({"arrivals_per_second": 13.0}, True),
        ({"arrivals_per_second": 0.0}, True),
        ({"service": 0.3}, True),
        ({"active_at": NOW + timedelta(minutes=4)}, False),
        ({"active_at": NOW + timedelta(minutes=5)}, True),
    ):
        after = status(**({"arrivals_per_second": 10.0, "service": 0.2, "active_at": NOW} | told))
        assert not to_write(before, after, measured_due=False)
        assert to_write(before, after, measured_due=True) == moved, told


def test_what_is_scaled_by_load_is_ours_and_measured_only_where_that_can_be_trusted() -> None:
    there, store = seen(deployment()), cast(Store, object())
    found = target_of(there, store, plan(there))
    assert found is not None
    assert (found.deployment.name, found.store, found.topology) == ("theirs", store, V1)
    for unscaled in (
        seen(deployment(), scaling={"mode": "Disabled"}),
        seen(deployment(), scaling={"mode": "Manual", "replicas": 1}),
        seen(deployment(autoscalers=("keda-hpa-x",))),
        seen(None),
        replace(there, owner={**there.owner, "uid": "another"}),
    ):
        assert target_of(unscaled, store, plan(unscaled)) is None
    away = replace(there, backend=ConnectionProblem(Finding(Reason.UNREACHABLE, "redis is away")))
    lost = replace(there, backend=backend(None))
    for unknown in (away, lost):
        blind = target_of(unknown, store, plan(unknown))
        assert blind is not None
        assert blind.store is None


def test_what_one_pod_can_do_is_what_foreign_workers_say_and_else_what_the_spec_says() -> None:
    said = [WorkerEntry("w1", 0, Beat(pod="p1", slots=3)), WorkerEntry("w2", 0, Beat(pod="p1", slots=2))]

    def slots(entries: list[WorkerEntry], **workers: Any) -> int:
        there = observed(queue(workers=workers, status=known()), backend(V1), queue_version(1), target=deployment())
        if "image" in workers:
            there = replace(there, workers=WorkersObject(deployment().body, "ours"))
        found = target_of(there, cast(Store, object()), plan(there))
        assert found is not None
        return found.slots(entries)

    assert slots([], **TARGET, concurrency=7) == 7
    assert slots(said, **TARGET, concurrency=7) == 5
    assert slots(said, image="w", app="a:b", concurrency=7) == 7


def test_K6_a_drain_without_workers_says_so_only_if_jobs_could_run() -> None:
    both = topology({1: (4, "draining"), 2: (8, "active")})

    def draining(replicas: int, mode: str, **held: Any) -> Finding | None:
        spec = queue(2, 8, workers=TARGET, status=known(2, 8), scaling={"mode": mode, "replicas": replicas})
        there = backend(both, counts=filled(both, v1=counts("draining", **held)))
        objects = (queue_version(1, phase="Draining"), queue_version(2, 8))
        planned = plan(observed(spec, there, *objects, target=deployment(replicas=replicas)))
        assert planned.steps == ()
        return planned.draining

    idle = draining(0, "Manual", ready=2)
    assert idle is not None
    assert idle.reason is Reason.NO_WORKERS
    assert idle.message == "v1 holds 8 ready; no worker runs, as spec.scaling says: raise spec.scaling.replicas"
    later = draining(0, "Manual", scheduled=2)
    assert later is not None
    assert later.reason is Reason.JOBS_REMAIN
    running = draining(1, "Manual", ready=2)
    assert running is not None
    assert running.reason is Reason.JOBS_REMAIN
    off = draining(0, "Disabled", ready=2)
    assert off is not None
    assert off.message.endswith("scale Deployment theirs up")
