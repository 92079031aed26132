"""The worker Deployment: what is rendered, and when it is applied, scaled or left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from headrace_operator import steps
from headrace_operator.api.names import FINALIZER, OWNER_UID, RENDERED, RENDERER
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import Observed, Ownership, QueueObject, WorkersObject, ownership
from headrace_operator.planning import plan
from headrace_operator.planning.drift import differs
from headrace_operator.reasons import Reason
from headrace_operator.workers.companions import KINDS
from headrace_operator.workers.render import render_deployment
from tests.unit.operator.scene import backend, companions, known, observed, queue, queue_version, topology

V1 = backend(topology({1: (4, "active")}))
WORKERS = {"image": "registry/mail:1", "app": "mail.jobs:app", "concurrency": 7}


def given_workers(**changes: Any) -> Workers:
    return Workers.model_validate({**WORKERS, **changes})


def rendered(**changes: Any) -> dict[str, Any]:
    spec = queue(workers={**WORKERS, **changes})
    return render_deployment(spec, given_workers(**changes), V1, None)


def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def stored(deployment: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    """As the API server would return it."""
    body = copy.deepcopy(deployment)
    body["metadata"] |= {"uid": "d1", "resourceVersion": "5", "managedFields": []}
    body["spec"]["replicas"] = replicas
    pod(body)["dnsPolicy"] = "ClusterFirst"
    pod(body)["containers"][0]["imagePullPolicy"] = "Always"
    return body


def seen(
    found: dict[str, Any] | None, whose: Ownership = "ours", spec: QueueObject | None = None, **fields: Any
) -> Observed:
    spec = spec or queue(workers=WORKERS, status=known())
    workers = None if found is None else WorkersObject(found, whose)
    return observed(spec, V1, queue_version(1), workers=workers, **fields)


def test_a_worker_gets_what_it_needs_and_no_more() -> None:
    spec = pod(rendered())
    container = spec["containers"][0]
    values = {entry["name"]: entry.get("value") or entry["valueFrom"] for entry in container["env"]}
    assert (container["command"], container["args"]) == (["headrace"], ["worker", "run", "mail.jobs:app"])
    assert values["HEADRACE_QUEUES"] == "mail"
    assert values["HEADRACE_CONCURRENCY"] == "7"
    assert values["HEADRACE_REDIS_URL"] == "redis://redis"
    assert values["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["automountServiceAccountToken"] is True  # for the Lease of the election, and nothing else
    assert spec["serviceAccountName"] == "mail-workers"
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "startupProbe")} == {"/healthz"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert "replicas" not in rendered()["spec"]


@pytest.mark.parametrize("kind", ["prometheus", "otel"])
def test_metrics_are_told_if_they_are_asked_for(kind: str) -> None:
    def variables(**asked: Any) -> dict[str, Any]:
        return {entry["name"]: entry.get("value") for entry in pod(rendered(**asked))["containers"][0]["env"]}

    assert "HEADRACE_METRICS" not in variables()
    assert variables(metrics=kind)["HEADRACE_METRICS"] == kind


def test_a_url_from_a_secret_is_a_mounted_file_and_never_a_variable() -> None:
    spec = queue(workers=WORKERS)
    assert spec.spec is not None
    assert spec.spec.workers is not None
    secret = backend(V1.topology, secret=("redis", "dsn"))
    body = render_deployment(spec, spec.spec.workers, secret, None)
    container = pod(body)["containers"][0]
    names = {entry["name"]: entry for entry in container["env"]}
    assert "HEADRACE_REDIS_URL" not in names
    mount = container["volumeMounts"][0]["mountPath"]
    assert names["HEADRACE_REDIS_URL_FILE"]["value"] == f"{mount}/url"
    assert pod(body)["volumes"][0]["secret"] == {"secretName": "redis", "items": [{"key": "dsn", "path": "url"}]}


def test_the_users_settings_are_carried_over() -> None:
    given = {
        "app": None,
        "command": ["run", "me"],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "envFrom": [{"configMapRef": {"name": "c"}}],
        "resources": {"limits": {"memory": "1Gi"}},
        "serviceAccountName": "own",
        "terminationGracePeriodSeconds": 5,
    }
    spec = pod(rendered(**given))
    container = spec["containers"][0]
    assert container["command"] == ["run", "me"]
    assert "args" not in container
    assert container["env"][-1] == given["env"][0]  # type: ignore[index]
    assert (container["envFrom"], container["resources"]) == (given["envFrom"], given["resources"])
    assert (spec["serviceAccountName"], spec["terminationGracePeriodSeconds"]) == ("own", 5)


def test_E2_it_is_created_unsigned_and_applied_before_it_is_scaled() -> None:
    (create,) = plan(seen(None)).steps
    assert isinstance(create, steps.CreateWorkers)
    assert "replicas" not in create.body["spec"]
    apply, *rest = plan(seen(stored(dict(create.body), replicas=0))).steps
    assert isinstance(apply, steps.ApplyObject)
    assert rest == []
    declared = queue(workers=WORKERS, scaling={"mode": "Manual", "replicas": 1}, status=known())
    (scale,) = plan(seen(stored(rendered(), replicas=0), spec=declared)).steps
    assert isinstance(scale, steps.Scale)
    assert (scale.replicas, scale.resource_version) == (1, "5")
    assert plan(seen(stored(rendered()))).steps == ()


@pytest.mark.parametrize(
    ("scaling", "wanted"),
    [
        ({}, None),
        ({"minReplicas": 3}, None),
        ({"mode": "Manual", "replicas": 0}, 0),
        ({"mode": "Manual", "replicas": 5, "minReplicas": 9}, 5),
        ({"mode": "Disabled", "replicas": 5}, None),
    ],
)
def test_replicas_follow_the_mode(scaling: dict[str, Any], wanted: int | None) -> None:
    spec = queue(workers=WORKERS, scaling=scaling, status=known())
    planned = plan(seen(stored(rendered(), replicas=7), spec=spec)).steps
    assert [step.replicas for step in planned if isinstance(step, steps.Scale)] == ([] if wanted is None else [wanted])


def test_the_scaler_is_left_with_replicas_only() -> None:
    body = stored(rendered())
    other = {"manager": "headrace-operator", "fieldsV1": {"f:spec": {"f:template": {}}}}
    body["metadata"]["managedFields"] = [
        other,
        {"manager": "headrace-scaler", "fieldsV1": {"f:spec": {"f:template": {}, "f:replicas": {}}}},
    ]
    (release,) = plan(seen(body)).steps
    assert isinstance(release, steps.ReleaseWorkers)
    assert release.managed_fields == (
        other,
        {"manager": "headrace-scaler", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    )


def test_edits_by_hand_are_applied_over_but_defaults_and_spellings_are_not() -> None:
    wanted = rendered(resources={"requests": {"cpu": "1000m"}})
    found = stored(wanted)
    pod(found)["containers"][0]["resources"]["requests"]["cpu"] = "1"
    assert not differs(wanted, found)
    edited = copy.deepcopy(found)
    pod(edited)["containers"][0]["image"] = "other"
    assert differs(wanted, edited)
    longer = copy.deepcopy(found)
    pod(longer)["containers"].append({"name": "injected"})
    assert differs(wanted, longer)


def test_what_stays_different_after_it_was_applied_is_not_applied_for_ever() -> None:
    found = stored(rendered())
    pod(found)["containers"].append({"name": "injected"})
    applied = found["metadata"]["annotations"][RENDERED]
    assert plan(seen(found, applied={"Deployment": ("4", applied)})).steps != ()
    assert plan(seen(found, applied={"Deployment": ("5", applied)})).steps == ()
    changed = queue(workers={**WORKERS, "concurrency": 8}, status=known())
    (apply,) = plan(seen(found, applied={"Deployment": ("5", applied)}, spec=changed)).steps
    assert isinstance(apply, steps.ApplyObject)


def test_E8_a_new_renderer_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace_operator.workers import render

    old, newest = stored(rendered()), max(render.RENDERERS)

    def newer(*args: Any) -> dict[str, Any]:
        template = render.RENDERERS[newest](*args)
        template["spec"]["priorityClassName"] = "new"
        return template

    monkeypatch.setattr(render, "RENDERERS", {**render.RENDERERS, newest + 1: newer})
    assert plan(seen(old)).steps == ()
    (apply,) = plan(seen(old, spec=queue(workers={**WORKERS, "concurrency": 8}, status=known()))).steps
    assert isinstance(apply, steps.ApplyObject)
    assert apply.body["metadata"]["annotations"][RENDERER] == str(newest + 1)
    assert apply.body["metadata"]["annotations"][RENDERED] != old["metadata"]["annotations"][RENDERED]


def test_E9_a_deployment_of_somebody_else_is_left_alone() -> None:
    planned = plan(seen(stored(rendered(image="theirs")), "foreign"))
    assert planned.steps == ()
    assert planned.stalled is not None
    assert planned.stalled.reason is Reason.WORKERS_CONFLICT
    dying = plan(seen(stored(rendered()), "dying"))
    assert dying.steps == ()
    assert dying.stalled is None
    assert dying.look_ms == 1000


def test_removed_workers_are_deleted_only_if_they_are_ours() -> None:
    spec = queue(status=known())
    beside = companions(queue(), given_workers())
    assert plan(seen(stored(rendered()), spec=spec, companions=beside)).steps == (
        steps.DeleteObject("Deployment", "mail-workers", "d1"),
        steps.DeleteObject("ServiceAccount", "mail-workers", "c0"),
        steps.DeleteObject("Lease", "mail-workers", "c1"),
        steps.DeleteObject("Role", "mail-workers", "c2"),
        steps.DeleteObject("RoleBinding", "mail-workers", "c3"),
        steps.DeleteObject("PodDisruptionBudget", "mail-workers", "c4"),
    )
    assert plan(seen(stored(rendered()), "foreign", spec=spec)).steps == ()
    del beside["ServiceAccount"]["metadata"]["labels"]
    beside["ServiceAccount"]["metadata"]["ownerReferences"] = []
    assert (
        steps.DeleteObject("ServiceAccount", "mail-workers", "c0")
        not in plan(seen(stored(rendered()), spec=spec, companions=beside)).steps
    )


def test_what_workers_need_is_claimed_then_applied_then_left_alone() -> None:
    def planned(beside: dict[str, Any], **fields: Any) -> tuple[steps.Step, ...]:
        return plan(seen(stored(rendered()), companions=beside, **fields)).steps

    claims = [step.body for step in planned({}) if isinstance(step, steps.ClaimName)]
    assert [body["kind"] for body in claims] == list(KINDS)
    assert all(body.keys() <= {"apiVersion", "kind", "metadata", "roleRef"} for body in claims)
    claimed = {
        body["kind"]: {**body, "metadata": {**body["metadata"], "uid": "c", "resourceVersion": "8"}} for body in claims
    }
    applied = planned(claimed)
    assert [(step.kind, step.uid) for step in applied if isinstance(step, steps.ApplyObject)] == [
        (kind, "c") for kind in KINDS
    ]
    assert planned(companions(queue(), given_workers())) == ()
    own = queue(workers={**WORKERS, "serviceAccountName": "own"}, status=known())
    body = render_deployment(own, given_workers(serviceAccountName="own"), V1, None)
    bind, delete = plan(seen(stored(body), spec=own, companions=companions(queue(), given_workers()))).steps
    assert isinstance(bind, steps.ApplyObject)
    assert bind.body["subjects"] == [{"kind": "ServiceAccount", "name": "own", "namespace": "ns"}]
    assert delete == steps.DeleteObject("ServiceAccount", "mail-workers", "c0")
    # Somebody else's is used as it is.
    foreign = companions(queue(), given_workers())
    foreign["ServiceAccount"]["metadata"] |= {"ownerReferences": [], "labels": {}}
    assert planned(foreign) == ()
    theirs = companions(queue(), given_workers())
    theirs["PodDisruptionBudget"]["spec"]["maxUnavailable"] = 0
    (apply,) = planned(theirs)
    assert isinstance(apply, steps.ApplyObject)
    assert apply.body["spec"]["maxUnavailable"] == "25%"


def test_a_binding_to_another_role_is_made_anew_since_it_cannot_be_changed() -> None:
    turned = companions(queue(), given_workers())
    turned["RoleBinding"]["roleRef"] = {**turned["RoleBinding"]["roleRef"], "name": "view"}
    assert plan(seen(stored(rendered()), companions=turned)).steps == (
        steps.DeleteObject("RoleBinding", "mail-workers", "c3"),
    )
    del turned["RoleBinding"]
    (create,) = plan(seen(stored(rendered()), companions=turned)).steps
    assert isinstance(create, steps.ClaimName)
    assert create.body["roleRef"]["name"] == "mail-workers"
    # Somebody else's is left alone, whatever it refers to.
    foreign = companions(queue(), given_workers())
    foreign["RoleBinding"]["metadata"] |= {"ownerReferences": [], "labels": {}}
    foreign["RoleBinding"]["roleRef"] = {**foreign["RoleBinding"]["roleRef"], "name": "view"}
    assert plan(seen(stored(rendered()), companions=foreign)).steps == ()


def test_E1_with_policy_drain_nothing_of_the_workers_dies_with_the_queue() -> None:
    spec = queue(workers=WORKERS, status=known(), deletionPolicy="Drain", metadata={"finalizers": [FINALIZER]})
    (create,) = plan(seen(None, spec=spec)).steps
    assert isinstance(create, steps.CreateWorkers)
    assert "ownerReferences" not in create.body["metadata"]
    owned = seen(stored(rendered()), spec=spec, companions=companions(queue(), given_workers()))
    assert plan(owned).steps == (
        *(steps.Disown(kind, "mail-workers", str(number)) for number, kind in enumerate(KINDS)),
        steps.Disown("Deployment", "mail-workers", "5"),
    )
    # Back to Retain: the finalizer stays until everything is owned again.
    back = queue(workers=WORKERS, status=known(), metadata={"finalizers": ["other/one", FINALIZER]})
    drained = companions(spec, given_workers())
    applied = plan(seen(stored(dict(create.body)), spec=back, companions=drained)).steps
    assert [step.kind for step in applied if isinstance(step, steps.ApplyObject)] == [
        *KINDS,
        "Deployment",
    ]
    assert plan(seen(stored(rendered()), spec=back)).steps == (steps.SetFinalizers(("other/one",), "70"),)


def test_O40_what_an_earlier_queue_of_the_name_left_without_an_owner_is_adopted() -> None:
    left = stored(rendered())
    left["metadata"]["ownerReferences"] = []
    left["metadata"]["annotations"][OWNER_UID] = "u0"
    whose = ownership(left, "mail", "u1")
    assert whose == "orphan"
    (apply,) = plan(seen(left, whose)).steps
    assert isinstance(apply, steps.ApplyObject)
    assert apply.uid == "d1"
    left["metadata"]["labels"]["headrace.dev/queue"] = "another"
    assert ownership(left, "mail", "u1") == "foreign"
