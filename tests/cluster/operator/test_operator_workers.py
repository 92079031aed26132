"""The worker Deployment, and what the operator leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, APPS, REPOSITORY, Queues, idle_workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")
MARKER = "kopf.zalando.org/KopfFinalizerMarker"


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def is_newer(queues: Queues, generation: int) -> bool:
    return bool(queues.deployment("mail")["metadata"]["generation"] > generation)


def is_gone(queues: Queues, api: str, kind: str, name: str) -> bool:
    return queues.cluster.get(api, kind, name, queues.namespace) is None


def container(deployment: Object) -> Object:
    found: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_E2_what_was_scaled_to_zero_stays_at_zero_when_it_is_applied_again(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={"mode": "Manual", "replicas": 2})
    queues.cluster.wait_for(lambda: queues.deployment("mail")["spec"]["replicas"] == 2, what="2 replicas")
    queues.cluster.kubectl("scale", "queue/mail", "--replicas=0", "--namespace", queues.namespace)
    queues.cluster.wait_for(lambda: queues.deployment("mail")["spec"]["replicas"] == 0, what="0 replicas")
    for number in range(3):
        before = queues.deployment("mail")
        queues.patch("mail", workers={"env": [{"name": "ROUND", "value": str(number)}]})
        queues.cluster.wait_for(
            partial(is_newer, queues, before["metadata"]["generation"]), what="the Deployment is applied again"
        )
        assert queues.deployment("mail")["spec"]["replicas"] == 0
    queues.wait("mail", "WorkersAvailable", "True", "ScaledToZero")
    assert queues.status("mail")["replicas"] == 0


def test_E2_a_queue_made_with_zero_replicas_never_starts_a_pod(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={"mode": "Manual", "replicas": 0})
    queues.wait("mail", "WorkersAvailable", "True", "ScaledToZero")
    queues.cluster.wait_for(
        lambda: queues.deployment("mail").get("status", {}).get("observedGeneration"), what="the Deployment was seen"
    )
    pods = [e for e in queues.cluster.objects("v1", "Event", queues.namespace) if e["reason"] == "SuccessfulCreate"]
    assert pods == []


def test_replicas_of_mode_disabled_belong_to_somebody_else(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={"mode": "Disabled"})
    queues.wait("mail")
    queues.cluster.kubectl("scale", "deployment/mail-workers", "--replicas=2", "--namespace", queues.namespace)
    queues.cluster.wait_for(lambda: queues.status("mail")["replicas"] == 2, what="replicas reported")
    queues.patch("mail", workers={"concurrency": 3})
    queues.cluster.wait_for(
        lambda: {"name": "HEADRACE_CONCURRENCY", "value": "3"} in container(queues.deployment("mail"))["env"],
        what="the Deployment is applied again",
    )
    assert queues.deployment("mail")["spec"]["replicas"] == 2


def test_a_field_that_is_removed_from_the_spec_leaves_the_deployment(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]))
    queues.wait("mail")
    queues.wait_scaled("mail")
    assert {e["name"] for e in container(queues.deployment("mail"))["env"]} >= {"A", "B"}
    queues.patch("mail", workers={"env": [{"name": "B", "value": "2"}]})
    queues.cluster.wait_for(
        lambda: "A" not in {e["name"] for e in container(queues.deployment("mail"))["env"]}, what="A gone"
    )
    managers = {
        entry["manager"]: entry["fieldsV1"]
        for entry in queues.deployment("mail")["metadata"]["managedFields"]
        if entry["manager"].startswith("headrace")
    }
    assert managers["headrace-scaler"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in managers["headrace-operator"]["f:spec"]


def test_a_deployment_edited_by_hand_is_put_right(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={"mode": "Manual", "replicas": 1})
    queues.wait("mail")
    queues.cluster.kubectl("set", "image", "deployment/mail-workers", "worker=other", "--namespace", queues.namespace)
    queues.cluster.wait_for(lambda: container(queues.deployment("mail"))["image"] == "idle", what="image put right")
    told = "Deployment mail-workers was edited by somebody else; it is applied again"
    queues.cluster.wait_for(lambda: queues.status("mail")["drift"]["what"] == told, what="what was put right is told")
    queues.cluster.kubectl("scale", "deployment/mail-workers", "--replicas=4", "--namespace", queues.namespace)
    queues.cluster.wait_for(lambda: queues.deployment("mail")["spec"]["replicas"] == 1, what="replicas put right")
    queues.cluster.delete(APPS, "Deployment", "mail-workers", queues.namespace)
    queues.cluster.wait_for(lambda: queues.deployment("mail")["spec"]["replicas"] == 1, what="Deployment made again")


def test_quantities_in_any_spelling_are_applied_once(queues: Queues) -> None:
    resources = {"requests": {"cpu": "0.05", "memory": "33554432"}, "limits": {"cpu": "1000m"}}
    queues.apply("mail", workers=idle_workers(resources=resources))
    queues.wait("mail")
    queues.wait_scaled("mail")
    before = queues.deployment("mail")["metadata"]["generation"]
    queues.patch("mail", leaseSeconds=31)
    queues.wait("mail")
    assert queues.deployment("mail")["metadata"]["generation"] == before
    assert container(queues.deployment("mail"))["resources"]["requests"]["cpu"] == "50m"


def test_workers_that_the_api_server_refuses_are_told_and_can_be_corrected(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "no.such"}}}]))
    problem = queues.wait("mail", "Stalled", "True", "InvalidWorkers")
    assert "correct spec.workers" in problem["message"]
    assert queues.condition("mail", "TopologyApplied")["status"] == "True"
    queues.patch("mail", workers={"env": []})
    queues.wait("mail")


def test_workers_removed_from_the_spec_are_removed(queues: Queues) -> None:
    queues.apply("mail", workers=idle_workers())
    queues.wait("mail")
    queues.patch("mail", workers=None)
    queues.cluster.wait_for(
        lambda: queues.cluster.get(APPS, "Deployment", "mail-workers", queues.namespace) is None, what="gone"
    )
    queues.wait("mail")
    assert "replicas" not in queues.status("mail")


def test_a_deleted_queue_takes_its_objects_along_and_leaves_redis(queues: Queues, redis: RedisServer) -> None:
    queues.apply("mail", workers=idle_workers())
    queues.wait("mail")
    jobs.put(redis.url, queues.queue_name("mail"), ["kept"])
    queues.cluster.delete(API, "Queue", "mail", queues.namespace)
    for api, kind, name in (
        (APPS, "Deployment", "mail-workers"),
        (API, "QueueVersion", "mail-v1"),
        ("v1", "ServiceAccount", "mail-workers"),
    ):
        queues.cluster.wait_for(partial(is_gone, queues, api, kind, name), what=f"{kind} {name} gone")
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name("mail"), 1)) == 1


def test_what_a_deleted_queue_left_is_removed_as_the_page_says_and_nothing_of_another(
    queues: Queues, redis: RedisServer
) -> None:
    page = (Path(REPOSITORY) / "docs/queue.md").read_text()
    (command,) = re.findall(r"`(headrace queue delete emails)`", page)
    for name in ("mail", "mail2"):
        queues.apply(name)
        queues.wait(name)
        jobs.put(redis.url, queues.queue_name(name), ["a", "b"])
    queues.cluster.delete(API, "Queue", "mail", queues.namespace)
    queues.cluster.wait_for(partial(is_gone, queues, API, "QueueVersion", "mail-v1"), what="QueueVersion gone")
    name, other = queues.queue_name("mail"), queues.queue_name("mail2")
    words = command.replace("emails", name).split()
    ran = subprocess.run(
        [Path(sys.executable).with_name(words[0]), *words[1:], "--yes", "--redis-url", redis.url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert jobs.topology(redis.url, name) is None
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, other, 1)) == 2
    queues.apply("mail", version=1, partitions=2)
    queues.wait("mail")
    assert queues.condition("mail", "DataLoss")["status"] == "False"
    assert jobs.known_topology(redis.url, name).incarnation == 2


def test_E9_objects_of_others_are_never_patched(queues: Queues) -> None:
    cluster, namespace = queues.cluster, queues.namespace
    foreign = {
        "apiVersion": APPS,
        "kind": "Deployment",
        "metadata": {"name": "mail-workers"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "other"}},
            "template": {
                "metadata": {"labels": {"app": "other"}},
                "spec": {"containers": [{"name": "main", "image": "other"}]},
            },
        },
    }
    version = {
        "apiVersion": API,
        "kind": "QueueVersion",
        "metadata": {"name": "sms-v1", "finalizers": [MARKER]},
        "spec": {"queueRef": "sms", "queueName": "sms", "version": 1, "partitions": 9},
    }
    objects = cluster.apply([foreign, version], namespace=namespace)
    queues.apply("mail", workers=idle_workers())
    queues.apply("sms")
    problem = queues.wait("mail", "Stalled", "True", "WorkersConflict")
    assert "Deployment mail-workers is not this Queue's and is left alone" in problem["message"]
    queues.wait("sms", "Ready", "False", "QueueVersionConflict")
    # kopf strips this finalizer from whatever it sees, unless it is told to use another one.
    cluster.patch(API, "Queue", "sms", namespace, {"metadata": {"finalizers": [MARKER]}})
    queues.annotate("sms", seen="again")
    queues.patch("sms", leaseSeconds=77)
    queues.wait("sms", "Ready", "False", "QueueVersionConflict")
    assert queues.get("sms")["metadata"]["finalizers"] == [MARKER]
    for found in objects:
        now = cluster.get(found["apiVersion"], found["kind"], found["metadata"]["name"], namespace)
        assert now is not None
        if found["kind"] == "QueueVersion":
            assert now["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
        # The Deployment's own controller may write to it at any time.
        managers = {entry["manager"] for entry in now["metadata"]["managedFields"]}
        assert not {manager for manager in managers if manager.startswith(("headrace", "kopf"))}
        for field in ("uid", "generation", "finalizers", "ownerReferences", "labels"):
            assert now["metadata"].get(field) == found["metadata"].get(field)
        assert now["spec"] == found["spec"]
    cluster.patch(API, "Queue", "sms", namespace, {"metadata": {"finalizers": None}})
    cluster.patch(API, "QueueVersion", "sms-v1", namespace, {"metadata": {"finalizers": None}})


PEERING = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Cluster",
        "names": {"plural": "clusterkopfpeerings", "singular": "clusterkopfpeering", "kind": "ClusterKopfPeering"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_E15_a_foreign_peering_object_pauses_nobody(
    cluster: LocalCluster, queues: Queues, operator: OperatorProcess, tmp_path: Path
) -> None:
    cluster.apply(PEERING)
    cluster.kubectl("wait", "crd/clusterkopfpeerings.kopf.dev", "--for=condition=Established", "--timeout=90s")
    other = {"priority": 1000, "lifetime": 3600, "lastseen": "2999-01-01T00:00:00+00:00"}
    peering = {
        "apiVersion": "kopf.dev/v1",
        "kind": "ClusterKopfPeering",
        "metadata": {"name": "default"},
        "status": {"another-operator@elsewhere": other},
    }
    cluster.wait_for(lambda: cluster.apply(peering), what="the peering object")
    try:
        operator.kill()
        operator.start()
        queues.apply("mail")
        queues.wait("mail")
        stored = cluster.get("kopf.dev/v1", "ClusterKopfPeering", "default")
        assert stored is not None
        assert stored["status"] == {"another-operator@elsewhere": other}
    finally:
        cluster.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", "clusterkopfpeerings.kopf.dev")
