"""A newer operator, or newer definitions, over what is there."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from headrace_operator.crds import queue_crd
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, Queues, idle_workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "queues.headrace.dev")


def test_E8_a_newer_operator_restarts_no_worker_until_the_spec_changes(
    cluster: LocalCluster, installed: str, namespace: str, redis: RedisServer, tmp_path: Path
) -> None:
    queues = Queues(cluster, namespace)
    queues.secret(redis.url)
    environment = {"HEADRACE_WATCH_NAMESPACES": namespace}
    with OperatorProcess(cluster, tmp_path / "old.log", **environment):
        queues.apply("mail", workers=idle_workers())
        queues.wait("mail")
        cluster.wait_for(lambda: len(cluster.pods(namespace)) == 1, what="a Pod")
    before = queues.deployment("mail")
    (pod,) = cluster.pods(namespace)
    newer = [sys.executable, "-m", "tests.cluster.operator.newer"]
    with OperatorProcess(cluster, tmp_path / "new.log", command=newer, **environment):
        queues.patch("mail", leaseSeconds=77)
        queues.wait("mail")
        assert queues.deployment("mail")["metadata"]["generation"] == before["metadata"]["generation"]
        assert [each["metadata"]["uid"] for each in cluster.pods(namespace)] == [pod["metadata"]["uid"]]
        queues.patch("mail", workers={"concurrency": 3})
        template = cluster.wait_for(
            lambda: queues.deployment("mail")["spec"]["template"]["metadata"].get("annotations"),
            what="the new template",
        )
        assert template == {"made-by": "a newer renderer"}


def without_rules(schema: Any) -> Any:
    """A definition as it was before anything was forbidden."""
    if isinstance(schema, dict):
        dropped = ("x-kubernetes-validations", "maxLength", "maximum", "minimum", "pattern", "enum", "maxItems")
        return {key: without_rules(value) for key, value in schema.items() if key not in dropped}
    return [without_rules(each) for each in schema] if isinstance(schema, list) else schema


def test_E5_objects_of_looser_definitions_can_still_be_written_where_they_do_not_change(
    cluster: LocalCluster, installed: str, namespace: str
) -> None:
    queues = Queues(cluster, namespace)
    name = "a" * 60
    looser = copy.deepcopy(queue_crd())
    (version,) = looser["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    version["schema"]["openAPIV3Schema"].pop("x-kubernetes-validations")
    properties["spec"] = without_rules(properties["spec"])
    try:
        define(cluster, looser)
        cluster.wait_for(
            lambda: queues.apply(
                name,
                paused=True,
                stopPolicy="HoldAndDrain",
                retry={"baseMilliseconds": 900, "capMilliseconds": 100},
                workers={"image": "w", "app": "no colon", "concurrency": 0},
                scaling={"mode": "Manual", "replicas": 2, "minReplicas": -1},
            ),
            what="the looser definition is in force",
        )
    finally:
        define(cluster, queue_crd())
    cluster.wait_for(lambda: is_refused(queues), what="the definition of now is in force")

    cluster.patch(API, "Queue", name, namespace, {"status": {"activeVersion": 1}}, subresource="status")
    cluster.patch(API, "Queue", name, namespace, {"metadata": {"finalizers": ["example.dev/theirs"]}})
    cluster.patch(API, "Queue", name, namespace, {"metadata": {"finalizers": None, "labels": {"team": "a"}}})
    queues.patch(name, leaseSeconds=77)
    cluster.kubectl("scale", f"queue/{name}", "--replicas=3", "--namespace", namespace)
    queues.patch(name, paused=False, workers={"app": "a:b", "concurrency": 4})
    queues.delete(name)
    queues.gone(name)


def define(cluster: LocalCluster, definition: Object) -> None:
    """Put the versions of a definition in force; a merge patch replaces a list as a whole."""
    api, kind, name = CRD
    cluster.patch(api, kind, name, None, {"spec": {"versions": definition["spec"]["versions"]}})


def is_refused(queues: Queues) -> bool:
    """Whether a Queue that only the looser definition takes is refused; LookupError while it is not."""
    try:
        queues.apply("probe", leaseSeconds=0)
    except Exception as error:  # kubectl's, with the API server's words
        return "leaseSeconds" in str(error)
    queues.delete("probe")
    return False
