"""``headrace queue pause`` of a queue whose object the cluster does not have: gone, or of another cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.lifecycle import promote
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.services.redis import RedisServer

RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: queues}
rules:
- {apiGroups: [headrace.dev], resources: [queues], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: queues}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: queues}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: dora}
"""


@pytest.fixture
def queue(namespace: str) -> str:
    return f"{namespace}.mail"


def signed(redis: RedisServer, queue: str, namespace: str, cluster: str) -> None:
    """A queue of an object that this cluster does not have."""
    owner = {"cluster": cluster, "namespace": namespace, "name": "mail", "uid": "1"}
    jobs.on_store(redis.url, lambda store: promote(store, queue, 1, 1, owner=owner))


def identity(cluster: LocalCluster) -> str:
    return str(cluster.rest.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"])


def pause(redis: RedisServer, queue: str, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    command = ["queue", "pause", queue, "--redis-url", redis.url, "-o", "json"]
    return subprocess.run(
        [sys.executable, "-m", "headrace", *command],
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def stop(redis: RedisServer, queue: str) -> str:
    return jobs.known_topology(redis.url, queue).settings.stop


def test_the_cluster_that_had_the_object_says_that_it_is_gone(
    cluster: LocalCluster, redis: RedisServer, queue: str, namespace: str
) -> None:
    signed(redis, queue, namespace, identity(cluster))
    done = pause(redis, queue, cluster.kubeconfig)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["where"] == "topology"
    assert stop(redis, queue) == "hold"


@pytest.mark.parametrize("there", ["6b0a3c1e-0000-4000-8000-000000000000", ""])
def test_another_cluster_does_not_and_nothing_is_changed(
    cluster: LocalCluster, redis: RedisServer, queue: str, namespace: str, there: str
) -> None:
    signed(redis, queue, namespace, there)
    done = pause(redis, queue, cluster.kubeconfig)
    assert done.returncode == 1
    assert "KUBECONFIG leads to another cluster" in done.stderr
    assert identity(cluster) in done.stderr
    assert (there or "unknown") in done.stderr
    assert f"kubectl -n {namespace} patch queue mail" in done.stderr
    assert stop(redis, queue) == "none"


def test_one_that_may_not_say_who_it_is_is_not_believed(
    cluster: LocalCluster, redis: RedisServer, queue: str, namespace: str
) -> None:
    signed(redis, queue, namespace, identity(cluster))
    cluster.apply(RIGHTS, namespace=namespace)
    kubeconfig = cluster.control_plane.user_kubeconfig("dora", namespace=namespace)
    done = pause(redis, queue, kubeconfig)
    assert done.returncode == 1
    assert "the namespace kube-system, cannot be read: the API server answered 403" in done.stderr
    assert stop(redis, queue) == "none"
