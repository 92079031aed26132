"""What the API server refuses before the operator sees it: each message names the field and what to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import CommandError, LocalCluster
from tests.cluster.operator.queues import API, Queues
from tests.cluster.rest import ApiError

APP = {"image": "w", "app": "a:b"}


def durations(lease: float, renew: float, retry: float) -> dict[str, float]:
    return {"leaseDurationSeconds": lease, "renewDeadlineSeconds": renew, "retryPeriodSeconds": retry}


REFUSED_AT_CREATION: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no version", {"version": None}, ["spec.version"]),
    ("version 0", {"version": 0}, ["spec.version", "greater than or equal to 1"]),
    ("no partition", {"partitions": 0}, ["spec.partitions", "greater than or equal to 1"]),
    ("too many partitions", {"partitions": 1025}, ["spec.partitions", "less than or equal to 1024"]),
    ("queue name", {"queueName": "Emails!"}, ["spec.queueName", "must be lower-case letters, digits, '-' and '.'"]),
    ("queue name's end", {"queueName": "emails-"}, ["spec.queueName", "beginning and ending with a letter or digit"]),
    ("queue name's length", {"queueName": "a" * 64}, ["spec.queueName", "63"]),
    ("two connections", {"connection": {"url": "redis://r", "secretRef": {"name": "s"}}}, ["exactly one of secretRef"]),
    ("no connection", {"connection": {}}, ["spec.connection", "set exactly one of secretRef and url"]),
    ("password", {"connection": {"url": "redis://:p@r"}}, ["spec.connection.url", "put the URL into a Secret"]),
    ("scheme", {"connection": {"url": "http://r"}}, ["spec.connection.url", "must begin with redis://, rediss://"]),
    ("no server", {"connection": {"url": "memory://"}}, ["spec.connection.url", "which every Pod can reach"]),
    ("socket", {"connection": {"url": "unix:///run/redis"}}, ["spec.connection.url", "or rediss+sentinel://"]),
    ("cluster", {"connection": {"url": "redis+cluster://:p@r"}}, ["spec.connection.url", "must not hold credentials"]),
    ("retry", {"retry": {"baseMilliseconds": 9, "capMilliseconds": 8}}, ["spec.retry", "lower the one or raise"]),
    ("retries", {"retry": {"maxRetries": 1001}}, ["spec.retry.maxRetries", "less than or equal to 1000"]),
    ("strategy", {"retry": {"strategy": "random"}}, ["spec.retry.strategy", "exponential"]),
    ("no app", {"workers": {"image": "w"}}, ["spec.workers", "set exactly one of app"]),
    ("app and command", {"workers": {**APP, "command": ["x"]}}, ["spec.workers", "set exactly one of app"]),
    ("no image", {"workers": {"app": "a:b"}}, ["spec.workers", "set exactly one of image"]),
    ("image and target", {"workers": {**APP, "scaleTargetRef": {"name": "x"}}}, ["set exactly one of image"]),
    ("target with app", {"workers": {"scaleTargetRef": {"name": "x"}, "app": "a:b"}}, ["with scaleTargetRef none"]),
    ("target kind", {"workers": {"scaleTargetRef": {"name": "x", "kind": "Pod"}}}, ["scaleTargetRef.kind"]),
    ("template field", {"workers": {**APP, "podTemplate": {"spce": {}}}}, ["podTemplate", "spce"]),
    ("app form", {"workers": {"image": "w", "app": "a.b"}}, ["spec.workers.app", "must be module:attribute"]),
    ("our variable", {"workers": {**APP, "env": [{"name": "HEADRACE_QUEUES"}]}}, ["spec.workers.env", "choose other"]),
    ("pod variable", {"workers": {**APP, "env": [{"name": "POD_IP"}]}}, ["spec.workers.env", "choose other names"]),
    ("concurrency", {"workers": {**APP, "concurrency": 0}}, ["spec.workers.concurrency"]),
    ("quantity", {"workers": {**APP, "resources": {"requests": {"cpu": "much"}}}}, ["spec.workers.resources.requests"]),
    ("replicas", {"scaling": {"replicas": 2}}, ["spec.scaling", "set scaling.minReplicas instead and leave replicas"]),
    ("no replicas", {"scaling": {"mode": "Disabled", "replicas": 2}}, ["or set scaling.mode to Manual as well"]),
    ("bounds", {"scaling": {"minReplicas": 11}}, ["spec.scaling", "lower the one or raise the other"]),
    ("wait", {"scaling": {"targetWaitSeconds": 0}}, ["spec.scaling.targetWaitSeconds"]),
    ("paused as text", {"paused": "false"}, ["spec.paused", "boolean"]),
    ("stop policy", {"stopPolicy": "Stop"}, ["spec.stopPolicy", "HoldAndDrain"]),
    ("two ways to stop", {"paused": True, "stopPolicy": "HoldAndDrain"}, ["spec", "set stopPolicy to None to pause"]),
    ("rate", {"limits": {"ratePerSecond": 0}}, ["spec.limits.ratePerSecond", "greater than 0"]),
    ("in flight", {"limits": {"maxInFlight": 0}}, ["spec.limits.maxInFlight", "greater than or equal to 1"]),
    ("crash limit", {"retry": {"crashLimit": 0}}, ["spec.retry.crashLimit", "greater than or equal to 1"]),
    ("strict drain", {"drain": {"order": "Strict"}}, ["spec.drain", "set drain.policy to Migrate"]),
    ("drain outcome", {"drain": {"onTimeout": "Migrate"}}, ["spec.drain", "set drain.timeoutSeconds"]),
    ("promotion", {"promotion": "Maybe"}, ["spec.promotion", "Auto"]),
    ("deletion policy", {"deletionPolicy": "Keep"}, ["spec.deletionPolicy", "Retain"]),
    ("deletion time", {"drain": {"deletionTimeoutSeconds": 0}}, ["spec.drain.deletionTimeoutSeconds"]),
    ("unknown field", {"modes": "LeaderOnly"}, ["modes"]),
    ("mode", {"mode": "Leader"}, ["spec.mode", "LeaderOnly"]),
    ("stand-bys", {"mode": "LeaderOnly", "workers": APP}, ["spec", "set scaling.mode to Manual and scaling.replicas"]),
    ("no election", {"mode": "LeaderOnly", "leaderElection": {"enabled": False}}, ["set leaderElection.enabled to"]),
    ("profile", {"leaderElection": {"profile": "quick"}}, ["spec.leaderElection.profile", "fast"]),
    (
        "lease too short",
        {"leaderElection": durations(14, 10, 2)},
        ["spec.leaderElection", "leaseDurationSeconds must be at least 1.5 times", "14 is below 1.5 x 10; raise"],
    ),
    (
        "one renewal",
        {"leaderElection": durations(4, 2.5, 1.5)},
        ["renewDeadlineSeconds must be at least 2 times", "2.5 is below 2 x 1.5; raise the one or lower"],
    ),
    ("one duration", {"leaderElection": {"leaseDurationSeconds": 30}}, ["retryPeriodSeconds together, or none"]),
    ("profile too", {"leaderElection": {"profile": "fast", **durations(15, 10, 2)}}, ["set either profile or the"]),
    (
        "order of locks",
        {"leaderElection": {"backends": ["redis", "lease"]}},
        ["backends", "in the order of rank"],
    ),
    ("lock twice", {"leaderElection": {"backends": ["redis", "redis"]}}, ["backends must be in the order of rank"]),
    ("no MongoDB", {"leaderElection": {"backends": ["mongo"]}}, ["set mongo.secretRef if and only if backends names"]),
    (
        "MongoDB unused",
        {"leaderElection": {"backends": ["redis"], "mongo": {"secretRef": {"name": "m"}}}},
        ["spec.leaderElection", "set mongo.secretRef if and only if"],
    ),
    (
        "Lease unused",
        {"leaderElection": {"backends": ["redis"], "leaseName": "mine"}},
        ["backends lacks lease; set backends to include it"],
    ),
    ("Lease name", {"leaderElection": {"leaseName": "Mine"}}, ["spec.leaderElection.leaseName"]),
    ("typo", {"partition": 3}, ["partition"]),
]


@pytest.mark.parametrize(
    ("spec", "words"), [case[1:] for case in REFUSED_AT_CREATION], ids=[c[0] for c in REFUSED_AT_CREATION]
)
def test_invalid_spec_is_refused_with_field_and_remedy(queues: Queues, spec: dict[str, Any], words: list[str]) -> None:
    body = {key: value for key, value in ({"version": 1, "partitions": 4} | spec).items() if value is not None}
    queue = {"apiVersion": API, "kind": "Queue", "metadata": {"name": "emails"}, "spec": body}
    path = queues.cluster.rest.path(API, "Queue", None, queues.namespace, fieldValidation="Strict")
    with pytest.raises(ApiError) as refused:
        queues.cluster.rest.request("POST", path, queue)
    for word in words:
        assert word in str(refused.value)


def test_the_name_of_a_queue_leaves_room_for_the_names_made_from_it(queues: Queues) -> None:
    queues.apply("a" * 50, queueName=None)
    for name in ("a" * 51, "a.b"):
        with pytest.raises(CommandError, match=r"metadata\.name must be at most 50"):
            queues.apply(name, queueName=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": 8}, "spec.partitions may change only together with spec.version; raise spec.version too"),
        ({"version": 2}, "spec.version may only grow .* set a higher version with the old number of partitions"),
        ({"queueName": "other"}, "spec.queueName cannot be changed, added or removed; create another Queue"),
        ({"scaling": {"replicas": 3}}, "scaling.replicas counts only with scaling.mode Manual"),
        ({"scaling": {"mode": "Disabled", "replicas": 3}}, "scaling.replicas counts only with scaling.mode Manual"),
        ({"scaling": {"mode": "Manual"}}, "must carry scaling.replicas above 0"),
        ({"leaderElection": {"leaseName": "mine"}}, "leaderElection.leaseName cannot be changed, added or removed"),
    ],
)
def test_forbidden_change_is_refused(queues: Queues, change: dict[str, Any], message: str) -> None:
    queues.apply("emails", version=3)
    with pytest.raises(ApiError, match=message):
        queues.patch("emails", **change)


SCALING = {
    "mode": "Backlog",
    "replicas": 0,
    "minReplicas": 0,
    "maxReplicas": 10,
    "targetWaitSeconds": 10,
    "idleSeconds": 60,
    "keepWarmSeconds": 0,
    "headroom": 1,
    "fallback": {"failureThreshold": 3, "replicas": 1},
}
"""What the API server fills in."""
REPLICAS = r"scaling\.replicas counts only with scaling\.mode Manual"


def test_E7_kubectl_scale_of_a_backlog_queue_is_refused_with_a_message(queues: Queues) -> None:
    scale = ("scale", "queue/emails", "--namespace", queues.namespace)
    queues.apply("emails")
    for mode in ("Backlog", "Disabled"):
        queues.patch("emails", scaling={"mode": mode})
        with pytest.raises(CommandError, match=REPLICAS):
            queues.cluster.kubectl(*scale, "--replicas=3")
    queues.patch("emails", scaling={"mode": "Manual", "replicas": 2})
    for replicas in (5, 0, 2):
        queues.cluster.kubectl(*scale, f"--replicas={replicas}")
        assert queues.get("emails")["spec"]["scaling"]["replicas"] == replicas
    # Back to Backlog, with the replicas that are there: they may stay or go to 0, and no other number is taken.
    queues.patch("emails", scaling={"mode": "Backlog"})
    for refused in (1, 3):
        with pytest.raises(CommandError, match=REPLICAS):
            queues.cluster.kubectl(*scale, f"--replicas={refused}")
    queues.cluster.kubectl(*scale, "--replicas=0")
    with pytest.raises(CommandError, match=REPLICAS):
        queues.cluster.kubectl(*scale, "--replicas=2")
    with pytest.raises(ApiError, match=r"must carry scaling\.replicas above 0"):
        queues.patch("emails", scaling={"mode": "Manual"})


@pytest.mark.parametrize("how", [("--server-side",), ()], ids=["server-side", "client-side"])
def test_E7_each_remedy_that_the_message_about_replicas_names_is_taken(queues: Queues, how: tuple[str, ...]) -> None:
    def apply(**scaling: Any) -> dict[str, Any]:
        spec = {"version": 1, "partitions": 4, "scaling": scaling}
        body = {"apiVersion": API, "kind": "Queue", "metadata": {"name": "emails"}, "spec": spec}
        where = ("--filename=-", "--namespace", queues.namespace)
        queues.cluster.kubectl("apply", *how, *where, stdin=yaml.safe_dump(body))
        found: dict[str, Any] = queues.get("emails")["spec"]["scaling"]
        return found

    for scaling in ({"replicas": 2}, {"mode": "Backlog", "replicas": 2}):
        with pytest.raises(CommandError, match=REPLICAS):
            apply(**scaling)
    assert apply(minReplicas=2) == SCALING | {"minReplicas": 2}
    with pytest.raises(CommandError, match=REPLICAS):
        apply(replicas=2)
    assert apply(mode="Manual", replicas=2)["replicas"] == 2
    # Whoever switches back without touching the other lines is not refused, then or later; nor is who cleans up.
    assert apply(mode="Backlog", replicas=2)["replicas"] == 2
    assert apply(mode="Backlog", replicas=2, minReplicas=1)["minReplicas"] == 1
    queues.patch("emails", leaseSeconds=31)
    assert apply(mode="Backlog") == SCALING


def test_E7_a_queue_of_an_older_schema_with_replicas_can_still_be_changed(
    queues: Queues, cluster: LocalCluster
) -> None:
    """A rule that is newer than the object must not lock it."""
    name = "queues.headrace.dev"
    kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
    current = cluster.get(*kind)
    assert current is not None
    older = copy.deepcopy(current["spec"]["versions"])
    scaling = older[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["scaling"]
    del scaling["x-kubernetes-validations"]

    def create() -> bool:
        queues.apply("emails", scaling={"replicas": 2})
        return True

    def strict() -> bool:
        with pytest.raises(CommandError, match=REPLICAS):
            queues.apply("other", scaling={"replicas": 2})
        return True

    cluster.patch(*kind, None, {"spec": {"versions": older}})
    try:
        _until(cluster, create, CommandError)
    finally:
        cluster.patch(*kind, None, {"spec": {"versions": current["spec"]["versions"]}})
    _until(cluster, strict, pytest.fail.Exception)
    queues.patch("emails", leaseSeconds=31)
    cluster.patch(API, "Queue", "emails", queues.namespace, {"status": {"replicas": 1}}, subresource="status")
    queues.patch("emails", scaling={"minReplicas": 2})
    assert queues.patch("emails", scaling={"replicas": 0})["spec"]["scaling"]["replicas"] == 0


def _until(cluster: LocalCluster, check: Callable[[], bool], error: type[BaseException]) -> None:
    """Wait until ``check`` passes: a changed definition takes effect a moment after it is written."""

    def tried() -> bool:
        try:
            return check()
        except error:
            return False

    cluster.wait_for(tried, what="the changed definition is in effect")


@pytest.mark.parametrize(
    "url", ["redis://r:1/2", "rediss://r", "rediss+cluster://a:1,b:2", "redis+sentinel://a/main/0"]
)
def test_urls_of_one_server_a_cluster_and_sentinels_are_taken(queues: Queues, url: str) -> None:
    assert queues.apply("emails", connection={"url": url})["spec"]["connection"]["url"] == url


def test_defaults_are_filled_in_by_the_api_server(queues: Queues) -> None:
    spec = queues.apply("emails")["spec"]
    assert spec["retry"] == {
        "maxRetries": 3,
        "strategy": "exponential",
        "baseMilliseconds": 1000,
        "capMilliseconds": 60000,
        "crashLimit": 3,
    }
    assert (spec["paused"], spec["stopPolicy"], spec["limits"]) == (False, "None", {})
    assert spec["scaling"] == SCALING
    assert (spec["promotion"], spec["deletionPolicy"], spec["historyLimit"]) == ("Auto", "Retain", 3)


def test_kubectl_explain_describes_every_field_of_the_spec(cluster: LocalCluster, installed: str) -> None:
    said = cluster.kubectl("explain", "queue.spec", "--recursive=false")
    assert "Partitions of this version" in said
    assert "<no description>" not in said
