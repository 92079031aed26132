"""The operator goes before its Queues: nothing of theirs is lost, and nothing waits for it for ever."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.conftest import HELM_NAMESPACE, install
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, APPS, Queues, idle_workers
from tests.cluster.operator.release import Release
from tests.services.redis import RedisServer

DEFINITIONS = ("queues.headrace.dev", "queueversions.headrace.dev")


def test_O53_the_hook_lets_go_of_queues_before_the_operator_goes(
    cluster: LocalCluster, installed: str, namespace: str, redis: RedisServer
) -> None:
    queues = Queues(cluster, namespace)
    queues.secret(redis.url)
    values = {"uninstall.releaseFinalizers": "true"}
    with Release(cluster, namespace, **values).installed() as release:
        for name, policy in (("drained", "Drain"), ("deleted", "Delete"), ("kept", "Retain")):
            queues.apply(name, deletionPolicy=policy, workers=idle_workers())
            queues.wait(name)
        queues.wait_scaled("drained")
        jobs.put(redis.url, queues.queue_name("drained"), ["a"])
        assert queues.get("drained")["metadata"]["finalizers"] == ["headrace.dev/deletion"]
        release.uninstall()
    for name in ("drained", "deleted"):
        assert queues.get(name)["metadata"].get("finalizers", []) == []
    workers = queues.deployment("drained")
    assert workers["spec"]["replicas"] == 1, "the workers go on"
    for name in ("drained", "deleted", "kept"):
        queues.delete(name)
        queues.gone(name)
    cluster.wait_for(
        lambda: cluster.get(APPS, "Deployment", "drained-workers", namespace) is None, what="they go with their Queue"
    )
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name("drained"), 1)) == 1


def test_O52_uninstalling_the_chart_keeps_definitions_and_queues_and_installing_it_goes_on(
    cluster: LocalCluster, installed: str, redis: RedisServer, tmp_path: Path
) -> None:
    queues = Queues(cluster, installed)
    queues.secret(redis.url)
    queues.apply("letters", workers=idle_workers())
    queues.wait("letters")
    jobs.put(redis.url, queues.queue_name("letters"), ["a"])
    uid, workers = queues.get("letters")["metadata"]["uid"], queues.deployment("letters")["metadata"]["uid"]
    cluster.helm("uninstall", "headrace", "--namespace", HELM_NAMESPACE, "--wait", "--timeout", "240s")
    try:
        for name in DEFINITIONS:
            assert cluster.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name) is not None
        assert queues.get("letters")["metadata"]["uid"] == uid
        queues.patch("letters", version=2, partitions=8)
    finally:
        install(cluster, installed)
    queues.wait("letters")
    assert jobs.known_topology(redis.url, queues.queue_name("letters")).active == 2
    assert queues.deployment("letters")["metadata"]["uid"] == workers
    cluster.delete(API, "Queue", "letters", installed)
    queues.gone("letters")


def test_O53_the_documented_way_out_ends_a_deletion_that_nobody_looks_after(
    cluster: LocalCluster, installed: str, namespace: str, redis: RedisServer, tmp_path: Path
) -> None:
    queues = Queues(cluster, namespace)
    with OperatorProcess(cluster, tmp_path / "operator.log", HEADRACE_WATCH_NAMESPACES=namespace):
        queues.apply("mail", deletionPolicy="Drain", connection={"url": redis.url})
        queues.wait("mail")
        jobs.put(redis.url, queues.queue_name("mail"), ["a"])
    queues.delete("mail")
    assert queues.get("mail")["metadata"]["deletionTimestamp"]
    page = (Path(__file__).resolve().parents[3] / "docs/queue.md").read_text()
    command = 'kubectl patch queue NAME --type=merge --patch \'{"metadata": {"finalizers": null}}\''
    assert command in page
    patch = '--patch={"metadata": {"finalizers": null}}'
    cluster.kubectl("patch", "queue", "mail", "--namespace", namespace, "--type=merge", patch)
    queues.gone("mail")
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name("mail"), 1)) == 1
