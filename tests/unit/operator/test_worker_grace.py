"""Workers that are stopped get as long as the queue's longest run, and their handlers that less the wind-down."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from headrace_operator import steps
from headrace_operator.api.names import GRACE
from headrace_operator.observed import Observed, WorkersObject
from headrace_operator.planning import plan
from headrace_operator.reasons import Reason
from headrace_operator.workers.render import render_deployment
from tests.unit.operator.scene import backend, known, observed, queue, queue_version, topology

V1 = backend(topology({1: (4, "active")}))
WORKERS = {"image": "mail:1", "app": "mail.jobs:app"}


def seen(longest: int, found: dict[str, Any] | None = None, target: bool = False, **workers: Any) -> Observed:
    given = workers if target else {**WORKERS, **workers}
    spec = queue(workers=given, timeoutSeconds=longest, status=known())
    there = None if found is None else WorkersObject(found, "foreign" if target else "ours")
    assert spec.spec is not None
    assert V1.topology is not None
    current = replace(V1, topology=replace(V1.topology, settings=spec.spec.settings()))
    if target:
        return observed(spec, current, queue_version(1), target=there)
    return observed(spec, current, queue_version(1), workers=there)


def rendered(longest: int, found: dict[str, Any] | None = None, **workers: Any) -> dict[str, Any]:
    spec = seen(longest, **workers).queue
    assert spec.spec is not None
    assert spec.spec.workers is not None
    return render_deployment(spec, spec.spec.workers, V1, found)


def stored(deployment: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    body = copy.deepcopy(deployment)
    body["metadata"] |= {"uid": "d1", "resourceVersion": "5", "managedFields": []}
    body["spec"]["replicas"] = replicas
    return body


def graces(deployment: dict[str, Any]) -> tuple[int, int]:
    """Return those of the Pod and of its handlers."""
    pod = deployment["spec"]["template"]["spec"]
    values = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    return pod["terminationGracePeriodSeconds"], int(values["HEADRACE_GRACE_SECONDS"])


@pytest.mark.parametrize(("pod", "handlers"), [(60, 55), (3600, 3595), (1, 0)])
def test_J17_handlers_get_the_pods_grace_less_the_wind_down(pod: int, handlers: int) -> None:
    assert graces(rendered(30, terminationGracePeriodSeconds=pod)) == (pod, handlers)


@pytest.mark.parametrize(
    ("longest", "pod"), [(1, 60), (30, 60), (55, 60), (56, 61), (3600, 3605), (86_395, 86_400), (1_000_000, 86_400)]
)
def test_QG8_the_grace_follows_the_longest_run(longest: int, pod: int) -> None:
    assert graces(rendered(longest)) == (pod, pod - 5)


def test_QG8_a_longer_run_alone_restarts_nobody_and_holds_from_the_next_rollout_on() -> None:
    found = stored(rendered(600))
    assert plan(seen(600, found)).steps == ()
    for longest in (30, 7200):
        assert plan(seen(longest, found)).steps == ()
        (apply,) = plan(seen(longest, found, concurrency=7)).steps
        assert isinstance(apply, steps.ApplyObject)
        assert graces(dict(apply.body)) == graces(rendered(longest))
    told = plan(seen(7200, found)).advice
    assert told is not None
    assert told.reason is Reason.GRACE_TOO_SHORT
    assert "gives it 600 s" in told.message
    assert "workers get 7205 s from their next rollout on" in told.message
    assert plan(seen(600, found)).advice is None


def test_QG8_without_a_pod_that_would_restart_it_follows_at_once() -> None:
    found = stored(rendered(600), replicas=0)
    (apply,) = plan(seen(7200, found)).steps
    assert isinstance(apply, steps.ApplyObject)
    assert graces(dict(apply.body)) == (7205, 7200)
    leaving = {**found, "status": {"replicas": 1}}  # the last one has not ended
    assert plan(seen(7200, leaving)).steps == ()


def test_QG8_a_deployment_that_says_nothing_of_it_is_not_rolled_out_again() -> None:
    found = stored(rendered(600))
    del found["metadata"]["annotations"][GRACE]
    assert graces(rendered(7200, found)) == (605, 600)


@pytest.mark.parametrize("edited", ["", "soon", "-1", "0", "99999999"])
def test_what_somebody_wrote_over_the_kept_grace_does_no_harm(edited: str) -> None:
    found = stored(rendered(600))
    found["metadata"]["annotations"][GRACE] = edited
    assert graces(rendered(600, found)) == (605, 600)


def test_QG8_what_the_user_has_set_is_checked_and_not_changed() -> None:
    def advice(longest: int) -> str:
        found = plan(seen(longest, stored(rendered(longest, terminationGracePeriodSeconds=60)),
                          terminationGracePeriodSeconds=60)).advice  # fmt: skip
        return "" if found is None else found.message

    assert advice(55) == ""
    assert advice(56).endswith("set spec.workers.terminationGracePeriodSeconds to 61, which restarts the workers")
    assert GRACE not in rendered(30, terminationGracePeriodSeconds=60)["metadata"]["annotations"]


@pytest.mark.parametrize(("pod", "longest", "told"), [({}, 25, False), ({}, 26, True), ({"s": 605}, 600, False)])
def test_QG8_the_grace_of_a_deployment_that_is_only_scaled_is_checked(
    pod: dict[str, int], longest: int, told: bool
) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": pod["s"]} if pod else {}}
    body = {
        "metadata": {"name": "theirs", "resourceVersion": "9", "uid": "d9"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    found = plan(seen(longest, body, target=True, scaleTargetRef={"name": "theirs"})).advice
    assert (found is not None) == told
    if found is not None:
        assert "terminationGracePeriodSeconds of Deployment theirs to 31" in found.message
        assert "HEADRACE_GRACE_SECONDS of its workers to 26" in found.message
