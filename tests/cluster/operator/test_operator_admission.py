"""What the API server refuses before the operator sees it: each message names the field and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.cluster import CommandError, LocalCluster
from tests.cluster.operator.queues import API, Queues
from tests.cluster.rest import ApiError

APP = {"image": "w", "app": "a:b"}

REFUSED_AT_CREATION: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no version", {"version": None}, ["spec.version"]),
    ("version 0", {"version": 0}, ["spec.version", "greater than or equal to 1"]),
    ("no partition", {"partitions": 0}, ["spec.partitions", "greater than or equal to 1"]),
    ("too many partitions", {"partitions": 1025}, ["spec.partitions", "less than or equal to 1024"]),
    ("queue name", {"queueName": "Emails!"}, ["spec.queueName"]),
    ("two connections", {"connection": {"url": "redis://r", "secretRef": {"name": "s"}}}, ["exactly one of secretRef"]),
    ("no connection", {"connection": {}}, ["spec.connection", "set exactly one of secretRef and url"]),
    ("password", {"connection": {"url": "redis://:p@r"}}, ["spec.connection.url", "put the URL into a Secret"]),
    ("scheme", {"connection": {"url": "http://r"}}, ["spec.connection.url"]),
    ("retry", {"retry": {"baseMilliseconds": 9, "capMilliseconds": 8}}, ["spec.retry", "lower the one or raise"]),
    ("retries", {"retry": {"maxRetries": 1001}}, ["spec.retry.maxRetries", "less than or equal to 1000"]),
    ("strategy", {"retry": {"strategy": "random"}}, ["spec.retry.strategy", "exponential"]),
    ("no app", {"workers": {"image": "w"}}, ["spec.workers", "set exactly one of app"]),
    ("app and command", {"workers": {**APP, "command": ["x"]}}, ["spec.workers", "set exactly one of app"]),
    ("no image", {"workers": {"app": "a:b"}}, ["spec.workers.image"]),
    ("app form", {"workers": {"image": "w", "app": "a.b"}}, ["spec.workers.app"]),
    ("our variable", {"workers": {**APP, "env": [{"name": "HEADRACE_QUEUES"}]}}, ["spec.workers.env", "choose other"]),
    ("pod variable", {"workers": {**APP, "env": [{"name": "POD_IP"}]}}, ["spec.workers.env", "choose other names"]),
    ("concurrency", {"workers": {**APP, "concurrency": 0}}, ["spec.workers.concurrency"]),
    ("quantity", {"workers": {**APP, "resources": {"requests": {"cpu": "much"}}}}, ["spec.workers.resources.requests"]),
    ("promotion", {"promotion": "Maybe"}, ["spec.promotion", "Auto"]),
    ("deletion policy", {"deletionPolicy": "Delete"}, ["spec.deletionPolicy", "Retain"]),
    ("unknown field", {"mode": "LeaderOnly"}, ["mode"]),
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
        ({"scaling": {"mode": "Manual"}}, "must carry scaling.replicas above 0"),
    ],
)
def test_forbidden_change_is_refused(queues: Queues, change: dict[str, Any], message: str) -> None:
    queues.apply("emails", version=3)
    with pytest.raises(ApiError, match=message):
        queues.patch("emails", **change)


def test_E7_kubectl_scale_of_a_backlog_queue_is_refused_with_a_message(queues: Queues) -> None:
    queues.apply("emails")
    with pytest.raises(CommandError, match=r"scaling\.replicas counts only with scaling\.mode Manual"):
        queues.cluster.kubectl("scale", "queue/emails", "--replicas=3", "--namespace", queues.namespace)
    queues.patch("emails", scaling={"mode": "Manual", "replicas": 2})
    queues.cluster.kubectl("scale", "queue/emails", "--replicas=0", "--namespace", queues.namespace)
    assert queues.get("emails")["spec"]["scaling"]["replicas"] == 0


def test_defaults_are_filled_in_by_the_api_server(queues: Queues) -> None:
    spec = queues.apply("emails")["spec"]
    assert spec["retry"] == {
        "maxRetries": 3,
        "strategy": "exponential",
        "baseMilliseconds": 1000,
        "capMilliseconds": 60000,
    }
    assert spec["scaling"] == {"mode": "Backlog", "replicas": 0, "minReplicas": 0}
    assert (spec["promotion"], spec["deletionPolicy"], spec["historyLimit"]) == ("Auto", "Retain", 3)


def test_kubectl_explain_describes_every_field_of_the_spec(cluster: LocalCluster, installed: str) -> None:
    said = cluster.kubectl("explain", "queue.spec", "--recursive=false")
    assert "Partitions of this version" in said
    assert "<no description>" not in said
