"""The operator as Helm installs it: a Pod with a service account of its own, and the rights of its Roles only."""

from __future__ import annotations

import json

import pytest
import urllib3
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.cluster import CommandError, LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.conftest import HELM_NAMESPACE
from tests.cluster.operator.queues import API, Queues, idle_workers
from tests.cluster.operator.release import CHART
from tests.cluster.rest import Object
from tests.services.redis import RedisServer


def test_helm_brings_the_operator_up_and_its_rights_suffice(
    cluster: LocalCluster, installed: str, redis: RedisServer
) -> None:
    queues = Queues(cluster, installed)
    pods = cluster.pods(HELM_NAMESPACE, labels="app.kubernetes.io/name=headrace-operator")
    assert [pod["spec"]["serviceAccountName"] for pod in pods] == ["headrace"] * 2
    queues.secret(redis.url)
    queues.apply("mail", workers=idle_workers())
    try:
        queues.wait("mail")
        jobs.put(redis.url, queues.queue_name("mail"), ["a"])
        queues.patch("mail", version=2, partitions=8, workers={"concurrency": 3})
        queues.wait("mail", "Draining", "True")
        queues.cluster.delete(API, "QueueVersion", "mail-v2", installed)
        store = jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name("mail"), 1))
        assert store == 1
        queues.wait("mail", "Draining", "False")
        queues.wait_versions("mail", {1: "Completed", 2: "Active"})
        queues.patch("mail", workers=None)
        cluster.wait_for(lambda: cluster.get("apps/v1", "Deployment", "mail-workers", installed) is None, what="gone")
        queues.wait_events("mail", "Promoted", "Completed", "Scaled")
        names = [pod["metadata"]["name"] for pod in pods]
        said = [json.loads(line) for name in names for line in cluster.logs(HELM_NAMESPACE, name).splitlines()]
        assert len([line for line in said if line["message"].startswith("leads now")]) == 1
        done = {line["queue"] for line in said if ": done: " in line["message"]}
        assert f"{installed}/mail" in done
        assert {queue.partition("/")[0] for queue in done} == {installed}, "nothing of other namespaces"
        pages = [metrics_of(pod) for pod in pods]
        assert sorted(page["headrace_operator_is_leader"] for page in pages) == [0, 1]
        leader = max(pages, key=lambda page: page["headrace_operator_is_leader"])
        assert leader["headrace_operator_queues"] == 1
        assert leader["headrace_operator_queue_condition"] == 2, "Ready and ConnectionReady"
        assert leader["headrace_operator_steps_total"] > 10
        assert leader["headrace_operator_api_calls_total"] > 10
        assert [line for line in said if " 403 " in line["message"] or "error" in line] == []
    finally:
        cluster.delete(API, "Queue", "mail", installed)


def metrics_of(pod: Object) -> dict[str, float]:
    """Values of the metrics of an operator Pod by name, over all labels."""
    answer = urllib3.request("GET", f"http://{pod['status']['podIP']}:8080/metrics", timeout=10)
    assert answer.status == 200
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.data.decode()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def objects_of(cluster: LocalCluster, *values: str) -> list[Object]:
    options = [part for value in values for part in ("--set", value)]
    found = yaml.safe_load_all(cluster.helm("template", "x", str(CHART), *options))
    return [body for body in found if body is not None]


def test_helm_renders_what_monitoring_and_the_network_need_only_if_asked(cluster: LocalCluster) -> None:
    def kinds(*values: str) -> list[str]:
        return [body["kind"] for body in objects_of(cluster, *values)]

    plain = kinds()
    assert {"Service", "ServiceMonitor", "PodMonitor", "NetworkPolicy", "Job"}.isdisjoint(plain)
    assert "PodDisruptionBudget" in plain
    assert "PodDisruptionBudget" not in kinds("replicas=1")
    added = kinds(
        "metrics.serviceMonitor.enabled=true",
        "metrics.podMonitor.enabled=true",
        "metrics.alerts.enabled=true",
        "networkPolicy.enabled=true",
        "uninstall.releaseFinalizers=true",
        "extraObjects[0].kind=ConfigMap",
    )
    assert sorted(set(added) - set(plain)) == [
        "ConfigMap",
        "Job",
        "NetworkPolicy",
        "PodMonitor",
        "PrometheusRule",
        "Service",
        "ServiceMonitor",
    ]


def test_helm_installs_the_alert_rules_as_they_are_tested(cluster: LocalCluster) -> None:
    found = objects_of(cluster, "metrics.alerts.enabled=true", "metrics.alerts.labels.release=prometheus")
    (rule,) = (body for body in found if body["kind"] == "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_helm_lets_workers_be_scraped_where_their_queues_are_watched(cluster: LocalCluster) -> None:
    def workers(*values: str) -> Object:
        found = objects_of(cluster, "metrics.workers.podMonitor.enabled=true", *values)
        (monitor,) = (body for body in found if body["kind"] == "PodMonitor")
        spec: Object = monitor["spec"]
        return spec

    assert workers()["namespaceSelector"] == {"any": True}
    assert workers("watchNamespaces={a,b}")["namespaceSelector"] == {"matchNames": ["a", "b"]}
    labels = {"app.kubernetes.io/managed-by": "headrace-operator", "app.kubernetes.io/component": "worker"}
    assert workers()["selector"]["matchLabels"] == labels
    assert workers()["podMetricsEndpoints"] == [{"port": "health", "path": "/metrics", "interval": "30s"}]


def test_helm_mounts_what_a_redis_url_names(cluster: LocalCluster) -> None:
    found = objects_of(
        cluster,
        *("extraVolumes[0].name=authority", "extraVolumes[0].configMap.name=authority"),
        *("extraVolumeMounts[0].name=authority", "extraVolumeMounts[0].mountPath=/etc/authority"),
    )
    (pod,) = (body["spec"]["template"]["spec"] for body in found if body["kind"] == "Deployment")
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp", "authority"]
    assert pod["containers"][0]["volumeMounts"][1] == {"name": "authority", "mountPath": "/etc/authority"}


def test_helm_gives_no_right_outside_of_the_watched_namespaces(cluster: LocalCluster, installed: str) -> None:
    account = f"system:serviceaccount:{HELM_NAMESPACE}:headrace"

    def may(verb: str, resource: str, namespace: str, name: str = "", group: str = "") -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": account,
                "resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace, "name": name}
                | ({"group": group} if group else {}),
            },
        }
        answer = cluster.rest.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    assert may("get", "secrets", installed)
    assert not may("list", "secrets", installed)
    assert not may("get", "secrets", "default")
    # Used above while the workers came up; patch is for the cost of their deletion, and nothing more of Pods.
    assert may("list", "pods", installed)
    assert [verb for verb in ("get", "watch", "create", "delete") if may(verb, "pods", installed)] == []
    assert not may("list", "pods", "default")
    assert may("patch", "deployments", installed, group="apps")
    assert not may("patch", "deployments", "default", group="apps")
    assert may("get", "namespaces", "kube-system", name="kube-system")
    assert not may("get", "namespaces", "default", name="default")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("defaultRedisUrl=redis://:password@redis", "defaultRedisUrl"),
        ("image.digest=latest", "digest"),
        ("replicas=0", "replicas"),
        ("leaderElection.profile=off", "profile"),
    ],
)
def test_values_that_make_no_sense_are_refused(cluster: LocalCluster, value: str, word: str) -> None:
    with pytest.raises(CommandError, match=word):
        cluster.helm("template", "x", str(CHART), "--set", value)
