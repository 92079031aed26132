"""The rights that the chart grants, compared with those that are used, by the audit log of the API server."""

from __future__ import annotations

from typing import Any

from headrace.stores.base import Beat
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.queues import API, Queues, idle_workers
from tests.cluster.operator.release import Release
from tests.services.redis import RedisServer

RBAC = "rbac.authorization.k8s.io/v1"
Right = tuple[str, str, str]
NOT_ASKED_FOR: set[Right] = {
    # Checked by the admission plugin OwnerReferencesPermissionEnforcement, which is off here and on elsewhere.
    ("headrace.dev", "queues/finalizers", "update"),
}


def granted(release: Release, watched: str) -> set[Right]:
    """Rights by API group, resource and verb, from the Roles of the release."""
    names = {
        watched: [release.name],
        "kube-system": [f"{release.name}-{release.namespace}-cluster-identity"],
        release.namespace: [f"{release.name}-election"],
    }
    found: set[Right] = set()
    for namespace, roles in names.items():
        for role in roles:
            body = release.cluster.get(RBAC, "Role", role, namespace)
            assert body is not None, f"no Role {role} in {namespace}"
            for rule in body["rules"]:
                found |= {
                    (group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return found


def used(requests: list[dict[str, Any]]) -> set[Right]:
    found = set()
    for entry in requests:
        if (target := entry.get("objectRef")) is not None:
            resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
            found.add((target.get("apiGroup", ""), resource, entry["verb"]))
    return found


def queue_version(name: str, version: int, **labels: str) -> dict[str, Any]:
    queue = name.rpartition("-v")[0]
    return {
        "apiVersion": API,
        "kind": "QueueVersion",
        "metadata": {"name": name, "labels": labels},
        "spec": {"queueRef": queue, "queueName": queue, "version": version, "partitions": 4},
    }


def test_E10_installed_for_two_namespaces_nothing_is_forbidden_and_no_right_is_unused(
    cluster: LocalCluster, installed: str, redis: RedisServer
) -> None:
    with (
        cluster.namespace() as first,
        cluster.namespace() as second,
        Release(cluster, first, second).installed() as release,
    ):
        queues, others = Queues(cluster, first), Queues(cluster, second)
        others.apply("lost", connection={"secretRef": {"name": "nowhere"}})
        queues.secret(redis.url)
        queues.apply("mail", workers=idle_workers(), deletionPolicy="Drain", historyLimit=0)
        queues.wait("mail")
        others.wait("lost", "Ready", "False", "SecretMissing")

        # Of two workers one is busy: it is told which Pod goes first when there is to be one.
        queues.patch("mail", scaling={"mode": "Manual", "replicas": 2})
        pods = cluster.wait_for(
            lambda: found if len(found := cluster.objects("v1", "Pod", first)) == 2 else None, what="two workers"
        )
        beat, name = Beat(pod=pods[0]["metadata"]["name"], in_flight=1), queues.queue_name("mail")
        jobs.on_store(redis.url, lambda store: store.tick(name, "busy", beat))
        queues.patch("mail", scaling={"replicas": 1})
        cluster.wait_for(lambda: queues.deployment("mail")["spec"]["replicas"] == 1, what="one worker")

        # A QueueVersion of somebody else is looked at, one without an owner adopted, an ended one deleted.
        elsewhere = queue_version("mail-v2", 2)
        elsewhere["spec"]["queueRef"] = "another"
        cluster.apply(elsewhere, namespace=first)
        jobs.put(redis.url, queues.queue_name("mail"), ["a"])
        queues.patch("mail", version=2, partitions=4)
        queues.wait("mail", "Ready", "False", "QueueVersionConflict")
        cluster.delete(API, "QueueVersion", "mail-v2", first)
        ours = {"app.kubernetes.io/managed-by": "headrace-operator", "headrace.dev/queue": "mail"}
        orphan = queue_version("mail-v3", 3, **ours)
        orphan["spec"]["queueName"] = queues.queue_name("mail")
        cluster.apply(orphan, namespace=first)
        queues.patch("mail", version=3, partitions=4)
        queues.wait("mail")
        assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name("mail"), 1)) == 1
        queues.wait_versions("mail", {3: "Active"})

        # The next leader tells again what the last one has told: the Event is there already.
        leader = release.leader()
        cluster.delete("v1", "Pod", leader, release.namespace)
        cluster.wait_for(lambda: release.leader() != leader, what="another leader")
        # A Drain takes everything along that was made for the workers.
        queues.delete("mail")
        queues.gone("mail")

        requests = release.requests()
        forbidden = [entry["requestURI"] for entry in requests if entry["responseStatus"]["code"] == 403]
        assert forbidden == []
        rights = granted(release, first)
        assert rights == granted(release, second)

        def unused() -> set[Right]:
            return rights - used(release.requests()) - NOT_ASKED_FOR

        cluster.wait_for(lambda: not unused(), what=f"every right used; not: {unused()}")
        assert used(release.requests()) - rights == set()
