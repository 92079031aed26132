"""How the workers of a Queue elect their leader: what is rendered for it, and what is told of the leader."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.election.fence import Claim
from headrace.leadership.locks import beside, shown_fence
from headrace.leadership.overview import Leader
from headrace.leadership.settings import LeaderSettings
from headrace_operator.api.leader_election_spec import LeaderElection
from headrace_operator.api.names import RENDERED_FROM, RENDERER
from headrace_operator.api.queue_status import Leader as LeaderStatus
from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import ConnectionProblem, Observed, WorkersObject
from headrace_operator.planning import plan
from headrace_operator.planning.leader import changed, leader_event, leader_of
from headrace_operator.reasons import Finding, Reason
from headrace_operator.reconciler import _events
from headrace_operator.status import build_status, patch, to_write
from headrace_operator.workers.companions import KINDS, companion_name, render_companions
from headrace_operator.workers.render import render_deployment
from tests.unit.operator.scene import NOW, backend, known, observed, queue, queue_version, topology
from tests.unit.operator.test_convergence import World
from tests.unit.operator.test_metrics import values

V1 = topology({1: (4, "active")})
WORKERS: dict[str, Any] = {"image": "w", "app": "a:b", "env": [{"name": "MINE", "value": "1"}]}
MONGO = {"secretRef": {"name": "mongo", "key": "dsn"}}
LEADER_ONLY: dict[str, Any] = {"mode": "LeaderOnly", "scaling": {"mode": "Manual", "replicas": 2}}


def variables(body: dict[str, Any]) -> dict[str, str]:
    env = body["spec"]["template"]["spec"]["containers"][0]["env"]
    return {entry["name"]: entry.get("value", "") for entry in env}


def rendered(election: dict[str, Any] | None = None, found: Any = None, **spec: Any) -> dict[str, Any]:
    given = {"workers": WORKERS, **spec} | ({} if election is None else {"leaderElection": election})
    return render_deployment(queue(**given), Workers.model_validate(WORKERS), backend(V1), found)


def campaign(**election: Any) -> dict[str, str]:
    """Variables of the election; those of the user come last."""
    made = variables(rendered(election))
    assert list(made)[-1] == "MINE"
    return {name.removeprefix("HEADRACE_LEADER_"): value for name, value in made.items() if "_LEADER_" in name}


def made(election: dict[str, Any] | None = None, **spec: Any) -> dict[str, dict[str, Any]]:
    given = {"workers": WORKERS, **spec} | ({} if election is None else {"leaderElection": election})
    of = queue(**given)
    assert of.spec is not None
    assert of.spec.workers is not None
    return {body["kind"]: body for body in render_companions(of, of.spec.workers)}


@pytest.mark.parametrize(
    ("election", "expected"),
    [
        ({}, {"BACKENDS": "lease,redis", "LEASE_NAME": "mail-workers"}),
        ({"profile": "fast"}, {"BACKENDS": "lease,redis", "LEASE_NAME": "mail-workers", "PROFILE": "fast"}),
        (
            {"mongo": MONGO, "leaseName": "mine"},
            {"BACKENDS": "lease,mongo,redis", "LEASE_NAME": "mine", "MONGO_URL_FILE": "/etc/headrace/mongo/url"},
        ),
        ({"backends": ["redis"]}, {"BACKENDS": "redis"}),
        ({"enabled": False, "mongo": MONGO}, {"BACKENDS": "none"}),
        (
            {"leaseDurationSeconds": 6, "renewDeadlineSeconds": 4, "retryPeriodSeconds": 0.5},
            {
                "BACKENDS": "lease,redis",
                "LEASE_NAME": "mail-workers",
                "LEASE_DURATION": "6",
                "RENEW_DEADLINE": "4",
                "RETRY_PERIOD": "0.5",
            },
        ),
    ],
)
def test_workers_campaign_as_the_spec_says(
    election: dict[str, Any], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert campaign(**election) == expected
    # The workers take it as it is.
    for name, value in expected.items():
        monkeypatch.setenv(f"HEADRACE_LEADER_{name}", value)
    settings = LeaderSettings()
    assert settings.leader_timings(exclusive=True).lease_duration == {"fast": 4}.get(
        str(election.get("profile")), election.get("leaseDurationSeconds", 15)
    )


def test_the_url_of_mongodb_is_a_mounted_file_and_only_a_lease_needs_a_token() -> None:
    pod = rendered({"backends": ["mongo"], "mongo": MONGO})["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {"name": "mongo", "secret": {"secretName": "mongo", "items": [{"key": "dsn", "path": "url"}]}} in pod[
        "volumes"
    ]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "mongo", "mountPath": "/etc/headrace/mongo", "readOnly": True}
    ]
    assert rendered()["spec"]["template"]["spec"]["automountServiceAccountToken"] is True


def test_E12_the_role_reaches_one_lease_by_name_and_is_bound_to_the_account_of_the_workers() -> None:
    beside = made()
    assert list(beside) == list(KINDS)
    lease = beside["Lease"]["metadata"]
    assert beside["Role"]["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [lease["name"]],
            "verbs": ["get", "update"],
        }
    ]
    assert "spec" not in beside["Lease"]  # who holds it is the workers' to write
    assert beside["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "mail-workers", "namespace": "ns"}]
    assert all(body["metadata"]["ownerReferences"][0]["name"] == "mail" for body in beside.values())
    own = {**WORKERS, "serviceAccountName": "own"}
    assert made(workers=own)["RoleBinding"]["subjects"][0]["name"] == "own"
    named = made({"leaseName": "mine"})
    assert named["Lease"]["metadata"]["name"] == "mine"
    assert named["Role"]["rules"][0]["resourceNames"] == ["mine"]


@pytest.mark.parametrize("election", [{"backends": ["redis"]}, {"enabled": False}])
def test_without_a_lease_there_is_no_right(election: dict[str, Any]) -> None:
    assert list(made(election)) == ["ServiceAccount", "PodDisruptionBudget"]


def test_a_lease_is_looked_for_under_its_own_name_also_when_it_is_used_no_more() -> None:
    off = queue(leaderElection={"enabled": False, "leaseName": "mine"})
    assert {kind: companion_name(off, kind) for kind in ("Lease", "Role")} == {"Lease": "mine", "Role": "mail-workers"}
    assert companion_name(queue(), "Lease") == "mail-workers"
    assert companion_name(queue(version=0), "Lease") == "mail-workers"  # a spec that cannot be understood


def test_E8_workers_of_before_there_was_an_election_to_speak_of_go_on_until_the_spec_changes() -> None:
    from headrace_operator.workers import render

    old = rendered()
    old["metadata"]["annotations"][RENDERER] = "1"
    again = rendered(found=old)
    assert again["metadata"]["annotations"][RENDERED_FROM] == old["metadata"]["annotations"][RENDERED_FROM]
    assert again["metadata"]["annotations"][RENDERER] == "1"
    assert not [name for name in variables(again) if "_LEADER_" in name]
    assert rendered({"profile": "fast"}, found=old)["metadata"]["annotations"][RENDERER] == str(max(render.RENDERERS))
    # The mode is live: it changes nothing of the Pods.
    assert rendered(**LEADER_ONLY)["spec"]["template"] == rendered()["spec"]["template"]


@pytest.mark.parametrize(
    ("election", "problem"),
    [
        ({"leaseDurationSeconds": 14, "renewDeadlineSeconds": 10, "retryPeriodSeconds": 2}, "14 is below 15"),
        ({"leaseDurationSeconds": 15, "renewDeadlineSeconds": 3, "retryPeriodSeconds": 2}, "3 is below 2 x retry"),
        ({"leaseDurationSeconds": 15}, "together, or none"),
        (
            {"profile": "fast", "leaseDurationSeconds": 15, "renewDeadlineSeconds": 10, "retryPeriodSeconds": 2},
            "either profile or",
        ),
        ({"backends": ["redis", "lease"]}, "in the order of rank"),
        ({"backends": ["mongo"]}, "if and only if"),
        ({"backends": ["redis"], "leaseName": "x"}, "lacks lease"),
    ],
)
def test_what_the_api_server_refuses_is_refused_by_the_models_too(election: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        LeaderElection.model_validate(election)


@pytest.mark.parametrize("lease", range(1, 301, 13))
def test_durations_that_the_rules_of_the_api_server_admit_are_good_for_the_workers(lease: int) -> None:
    for share in (1.0, 0.5):
        for retries in (2.0, 3.0, 40.0):
            renew = lease / 1.5 * share
            given = {
                "leaseDurationSeconds": lease,
                "renewDeadlineSeconds": renew,
                "retryPeriodSeconds": renew / retries,
            }
            LeaderElection.model_validate(given)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mode": "LeaderOnly", "workers": WORKERS}, "set scaling.mode to Manual"),
        ({"mode": "LeaderOnly", "leaderElection": {"enabled": False}}, "needs a leader"),
    ],
)
def test_leader_only_needs_a_leader_and_a_number_of_pods(spec: dict[str, Any], problem: str) -> None:
    assert problem in queue(**spec).problem


def test_the_mode_goes_into_the_settings_that_workers_obey() -> None:
    for spec, mode in (({}, "shared"), (LEADER_ONLY, "leader_only"), ({"mode": "LeaderOnly"}, "leader_only")):
        given = queue(**spec).spec
        assert given is not None
        assert given.settings().mode == mode


# ---- what is told ---------------------------------------------------------------------------------------------------

FIRST = Leader("mail-workers-a-1", "lease", 3)


def led(leader: Leader | None, status: QueueStatus | None = None, **fields: Any) -> Observed:
    spec = queue(**LEADER_ONLY, status=status or known())
    assert spec.spec is not None
    current = replace(V1, settings=spec.spec.settings())
    return observed(spec, backend(current, leader=leader), queue_version(1), **fields)


def told(seen: Observed) -> QueueStatus:
    return build_status(seen, plan(seen))


def condition(status: QueueStatus) -> tuple[str, str]:
    found = status.condition("LeaderElected")
    assert found is not None
    return found.status, found.reason


def test_the_status_names_the_leader_its_lock_and_its_epoch() -> None:
    status = told(led(FIRST))
    assert status.leader == LeaderStatus(holder=FIRST.worker, backend="lease", epoch=3)
    assert condition(status) == ("True", "Leading")
    later = led(replace(FIRST, epoch=4), status)
    assert to_write(status, told(later), measured_due=False)
    assert patch(status, told(later))["leader"] == {"holder": FIRST.worker, "backend": "lease", "epoch": 4}
    assert patch(status, told(led(None, status)))["leader"] is None


def test_what_cannot_be_read_is_as_it_was_told_last() -> None:
    status = told(led(FIRST))
    problem = ConnectionProblem(Finding(Reason.UNREACHABLE, "no answer"))
    seen = replace(led(FIRST, status), backend=problem)
    assert leader_of(seen) == status.leader
    assert told(seen).condition("LeaderElected") is None


def test_the_leader_of_a_queue_that_belongs_to_another_is_not_told() -> None:
    seen = led(FIRST)
    theirs = replace(seen, backend=backend(replace(V1, owner={"cluster": "other"}), leader=FIRST))
    assert leader_of(theirs) is None
    assert told(theirs).condition("LeaderElected") is None


def test_a_queue_without_a_leader_is_told_when_nobody_can_be_expected_to_take_over_any_more() -> None:
    status = told(led(None))
    assert condition(status) == ("False", "Electing")
    assert condition(told(replace(led(None, status), now=NOW + timedelta(seconds=59)))) == ("False", "Electing")
    late = replace(led(None, status), now=NOW + timedelta(seconds=61))
    assert condition(told(late)) == ("False", "NoLeader")
    assert plan(late).look_ms == 10_000
    assert [event.reason for event in _events(plan(late), None)] == ["NoLeader"]
    none = {**rendered(), "spec": {**rendered()["spec"], "replicas": 0}}
    none["metadata"] |= {"uid": "d", "resourceVersion": "5"}
    spec = queue(**LEADER_ONLY, workers=WORKERS, status=status)
    idle = replace(late, workers=WorkersObject(none, "ours"), queue=spec, companions=None)
    assert condition(told(idle)) == ("False", "ScaledToZero")


def test_of_a_queue_that_every_worker_runs_no_condition_is_told_and_nobody_looks_more_often() -> None:
    seen = observed(queue(status=known()), backend(V1), queue_version(1))
    assert told(seen).condition("LeaderElected") is None
    assert plan(seen).look_ms is None


def test_another_holder_or_another_lock_is_a_change_and_another_epoch_is_none() -> None:
    first = LeaderStatus(holder="a", backend="lease", epoch=1)
    assert changed(None, first)
    assert changed(first, first.model_copy(update={"holder": "b"}))
    assert changed(first, first.model_copy(update={"backend": "redis"}))
    assert not changed(first, first.model_copy(update={"epoch": 2}))
    assert not changed(first, None)


def test_changes_are_told_once_a_minute_at_most_and_the_last_one_is() -> None:
    told, first, last = (LeaderStatus(holder=name, backend="lease", epoch=n) for n, name in enumerate("abc"))
    assert leader_event(told, first, 59.0) is None
    event = leader_event(told, last, 60.0)
    assert event is not None
    assert (event.type, event.reason) == ("Normal", "LeaderChanged")
    assert event.message == "worker c leads through lease (epoch 2)"
    assert leader_event(last, last, 1e9) is None
    assert leader_event(last, None, 1e9) is None


async def test_who_leads_is_read_beside_the_queue_and_its_changes_are_counted() -> None:
    world = World()
    await world.create()
    await world.rest()
    assert "leader" not in world.queue["status"]
    place = beside(world.store, "mail")
    assert place is not None
    fence = shown_fence(place())
    for term, pod in enumerate(("a", "b"), 1):
        await fence.claim(Claim(f"pod-{pod}-12345678_0f", f"nonce-{pod}", "memory", 1, term), 3600, 1)
        await world.rest()
        assert world.queue["status"]["leader"] == {"holder": f"pod-{pod}-12345678", "backend": "memory", "epoch": term}
    assert values(world.metrics)["headrace_operator_leader_changes_total{backend=memory}"] == 2
    await fence.release("nonce-b", 1)
    await world.rest()
    assert "leader" not in world.queue["status"]
