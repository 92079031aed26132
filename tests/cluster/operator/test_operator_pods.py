"""What becomes of spec.workers on a real API server: pod templates, budgets, foreign Deployments, rolling updates."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from headrace.producer import JobSpec
from headrace.sync_producer import SyncProducer
from headrace_operator.workers.pod_template import MERGE_KEYS
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.queues import APPS, Queues, idle_workers, workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def pod_spec(queues: Queues, name: str = "mail") -> Object:
    found: Object = queues.deployment(name)["spec"]["template"]["spec"]
    return found


def is_complete(queues: Queues, name: str) -> bool:
    """Whether the newest template runs and nothing else does."""
    body = queues.deployment(name)
    status, wanted = body["status"], body["spec"]["replicas"]
    sizes = (status.get("updatedReplicas"), status.get("availableReplicas"), status.get("replicas"))
    return bool(status.get("observedGeneration") == body["metadata"]["generation"] and sizes == (wanted,) * 3)


def test_merge_keys_are_those_that_the_api_server_publishes(cluster: LocalCluster) -> None:
    definitions = cluster.rest.request("GET", "/openapi/v2")["definitions"]
    published: dict[tuple[str, ...], str] = {}

    def read(name: str, path: tuple[str, ...]) -> None:
        for field, schema in definitions[name]["properties"].items():
            item = schema.get("items", {}).get("$ref", "").rpartition("/")[2]
            if key := schema.get("x-kubernetes-patch-merge-key"):
                published[(*path, field)] = key
                if item:
                    read(item, (*path, field))

    read("io.k8s.api.core.v1.PodSpec", ("spec",))
    assert dict(MERGE_KEYS) == published


def test_a_pod_template_is_merged_over_the_rendered_one_and_a_typo_is_told(queues: Queues) -> None:
    template: dict[str, Any] = {
        "metadata": {"annotations": {"team": "mail"}},
        "spec": {
            "nodeSelector": {"disk": "fast"},
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1024Mi"}}],
            "containers": [
                {
                    "name": "worker",
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "securityContext": {"readOnlyRootFilesystem": True},
                },
                {"name": "proxy", "image": "proxy", "command": ["sleep", "600"]},
            ],
        },
    }
    queues.apply("mail", workers=idle_workers(podTemplate=template))
    queues.wait("mail")
    queues.wait_scaled("mail")
    spec = pod_spec(queues)
    worker, proxy = spec["containers"]
    assert (worker["name"], proxy["name"], worker["image"]) == ("worker", "proxy", "idle")
    assert {mount["mountPath"] for mount in worker["volumeMounts"]} == {"/etc/headrace/redis", "/scratch"}
    assert worker["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["nodeSelector"] == {"disk": "fast"}
    generation = queues.deployment("mail")["metadata"]["generation"]

    wrong = {"spec": {**template["spec"], "nodeSelektor": {"disk": "fast"}}}
    queues.patch("mail", workers={"podTemplate": wrong})
    refused = queues.wait("mail", "Stalled", "True", "InvalidPodTemplate")
    assert "nodeSelektor" in refused["message"]
    assert queues.deployment("mail")["metadata"]["generation"] == generation
    queues.patch("mail", workers={"podTemplate": {"spec": {"nodeSelektor": None, "terminationGracePeriodSeconds": 9}}})
    refused = queues.wait("mail", "Stalled", "True", "InvalidPodTemplate")
    assert "spec.workers.terminationGracePeriodSeconds instead" in refused["message"]
    queues.patch("mail", workers={"podTemplate": None})
    queues.wait("mail")
    assert [container["name"] for container in pod_spec(queues)["containers"]] == ["worker"]
    # A new Queue is refused the same way: nothing of a typo is dropped in silence.
    queues.apply("sms", workers=idle_workers(podTemplate={"spec": {"nodeSelektor": {}}}))
    queues.wait("sms", "Stalled", "True", "InvalidPodTemplate")


def test_E14_workers_run_under_the_restricted_pod_security_standard(queues: Queues, cluster: LocalCluster) -> None:
    enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.patch("v1", "Namespace", queues.namespace, None, enforced)
    queues.apply("mail", workers=idle_workers())
    cluster.wait_for(lambda: len(cluster.pods(queues.namespace)) == 1, what="a Pod is admitted")
    queues.apply("root", workers=idle_workers(podTemplate={"spec": {"securityContext": {"runAsNonRoot": False}}}))
    refused = queues.wait("root", "WorkersAvailable", "False", "ReplicaFailure")
    assert "violates PodSecurity" in refused["message"]
    budget = cluster.get("policy/v1", "PodDisruptionBudget", "mail-workers", queues.namespace)
    assert budget is not None
    assert budget["spec"]["maxUnavailable"] == "25%"
    cluster.wait_for(lambda: budget_of(queues).get("expectedPods") == 1, what="the budget counts the worker")


def budget_of(queues: Queues) -> Object:
    found = queues.cluster.get("policy/v1", "PodDisruptionBudget", "mail-workers", queues.namespace)
    assert found is not None
    status: Object = found.get("status", {})
    return status


def foreign(replicas: int = 0) -> Object:
    return {
        "apiVersion": APPS,
        "kind": "Deployment",
        "metadata": {"name": "theirs"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {
                "metadata": {"labels": {"app": "theirs"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": "idle", "command": ["sleep", "600"]}],
                },
            },
        },
    }


def test_a_foreign_deployment_is_scaled_only_and_not_beside_another_autoscaler(
    queues: Queues, cluster: LocalCluster
) -> None:
    target = {"scaleTargetRef": {"name": "theirs"}}
    queues.apply("mail", workers=target, scaling={"mode": "Manual", "replicas": 2})
    queues.wait("mail", "ScalingActive", "False", "ScaleTargetMissing")
    assert queues.status("mail")["activeVersion"] == 1
    cluster.apply(foreign(), namespace=queues.namespace)
    queues.wait("mail", "ScalingActive", "True")
    queues.wait("mail", "WorkersAvailable", "True", "Available")
    theirs = cluster.get(APPS, "Deployment", "theirs", queues.namespace)
    assert theirs is not None
    assert theirs["spec"]["replicas"] == 2
    assert "labels" not in theirs["metadata"]
    assert queues.status("mail")["selector"] == "app=theirs"
    cluster.kubectl("scale", "queue/mail", "--replicas=1", "--namespace", queues.namespace)
    cluster.wait_for(partial(replicas_are, queues, 1), what="kubectl scale reaches the Deployment")

    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "other"},
        "spec": {
            "scaleTargetRef": {"apiVersion": APPS, "kind": "Deployment", "name": "theirs"},
            "minReplicas": 1,
            "maxReplicas": 3,
        },
    }
    cluster.apply(autoscaler, namespace=queues.namespace)
    queues.wait("mail", "ScalingActive", "False", "ConflictingAutoscaler")
    cluster.kubectl("scale", "queue/mail", "--replicas=3", "--namespace", queues.namespace)
    told = queues.wait("mail", "ScalingActive", "False", "ConflictingAutoscaler")
    assert "HorizontalPodAutoscaler other" in told["message"]
    assert replicas_are(queues, 1)
    queues.wait_events("mail", "ConflictingAutoscaler")


def replicas_are(queues: Queues, expected: int) -> bool:
    found = queues.cluster.get(APPS, "Deployment", "theirs", queues.namespace)
    return found is not None and found["spec"]["replicas"] == expected


def test_K6_K5_workers_scaled_to_zero_while_versions_drain_are_told_and_nothing_is_forced(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", workers=workers(), scaling={"mode": "Manual", "replicas": 1})
    queues.wait("mail", "WorkersAvailable", "True", "Available")
    cluster.kubectl("scale", "queue/mail", "--replicas=0", "--namespace", queues.namespace)
    cluster.wait_for(lambda: cluster.pods(queues.namespace) == [], what="no worker is left")
    for version, partitions in ((1, 4), (2, 8), (3, 16)):
        if version > 1:
            queues.patch("mail", version=version, partitions=partitions)
            queues.wait("mail")
        jobs.put(redis.url, name, [f"v{version}-{number}" for number in range(5)])
    told = queues.wait("mail", "Draining", "True", "NoWorkers")
    assert told["message"] == "v1 holds 5 ready; no worker runs, as spec.scaling says: raise spec.scaling.replicas"
    assert queues.versions("mail") == {1: "Draining", 2: "Draining", 3: "Active"}
    assert jobs.known_topology(redis.url, name).draining == (1, 2)
    cluster.kubectl("scale", "queue/mail", "--replicas=1", "--namespace", queues.namespace)
    queues.wait("mail", "Draining", "False")
    queues.wait_versions("mail", {1: "Completed", 2: "Completed", 3: "Active"})
    ran = jobs.runs(redis.url, name)
    assert ran == {f"v{version}-{number}@v{version}": 1 for version in (1, 2, 3) for number in range(5)}


@pytest.mark.timeout(420)
def test_K8_a_rolling_update_under_load_loses_and_doubles_no_job(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", workers=workers(concurrency=4), scaling={"mode": "Manual", "replicas": 2})
    queues.wait("mail", "WorkersAvailable", "True", "Available")
    before = {pod["metadata"]["uid"] for pod in cluster.pods(queues.namespace)}
    sent = 0
    with SyncProducer(redis.url) as producer:

        def send(number: int) -> None:
            nonlocal sent
            producer.enqueue_many(name, [JobSpec("count", None, id=f"job-{sent + n}") for n in range(number)])
            sent += number

        def complete_under_load() -> bool:
            send(10)
            return is_complete(queues, "mail")

        send(100)
        generation = queues.deployment("mail")["metadata"]["generation"]
        queues.patch("mail", workers={"concurrency": 5})
        cluster.wait_for(lambda: queues.deployment("mail")["metadata"]["generation"] > generation, what="a rollout")
        cluster.wait_for(complete_under_load, 240, what="the rollout is complete")
    cluster.wait_for(lambda: len(cluster.pods(queues.namespace)) == 2, what="the old Pods are gone")
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in cluster.pods(queues.namespace))
    cluster.wait_for(lambda: len(jobs.runs(redis.url, name)) >= sent, what="all jobs run")
    assert jobs.runs(redis.url, name) == {f"job-{number}@v1": 1 for number in range(sent)}


def test_a_grace_below_the_longest_run_is_told_and_restarts_nobody(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(terminationGracePeriodSeconds=60))
    queues.wait("mail")
    queues.wait_scaled("mail")
    generation = queues.deployment("mail")["metadata"]["generation"]
    queues.patch("mail", timeoutSeconds=600)
    queues.wait_events("mail", "GraceTooShort")
    queues.wait("mail")
    assert queues.deployment("mail")["metadata"]["generation"] == generation


def test_kubectl_explains_every_field(cluster: LocalCluster, installed: str) -> None:
    text = cluster.kubectl("explain", "queue.spec.workers.podTemplate.spec")
    assert "merge keys" in text
    schema = json.loads(cluster.kubectl("get", "crd", "queues.headrace.dev", "--output=json"))
    root = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    bare = list(undescribed(root["spec"], "spec")) + list(undescribed(root["status"], "status"))
    assert bare == []


def undescribed(schema: Object, path: str) -> Any:
    """Yield the paths of fields that say nothing about themselves."""
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(field, f"{path}.{name}")
        yield from undescribed(field.get("items", {}), f"{path}.{name}[]")
