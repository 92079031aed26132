"""Workers that do not come up: the cause is told within a minute, although the old ones are still there."""

from __future__ import annotations

import pytest

from tests.cluster.operator.queues import Queues, workers
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


def test_E14_crash_loop_no_node_and_quota_are_told_with_their_cause_and_clear_by_themselves(
    queues: Queues, redis: RedisServer
) -> None:
    cluster, namespace = queues.cluster, queues.namespace
    names = ("crash", "large", "quota")
    queues.secret(redis.url)
    for name in names:
        queues.apply(name, workers=workers())
    for name in names:
        queues.wait(name, "WorkersAvailable", "True", "Available")

    queues.patch("crash", workers={"app": None, "command": ["false"]})
    queues.patch("large", workers={"resources": {"requests": {"cpu": "1000"}}})
    cluster.wait_for(lambda: len(cluster.pods(namespace)) == 5, what="a new Pod beside the old one of two queues")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "5"}}}
    cluster.apply(quota, namespace=namespace)
    cluster.wait_for(lambda: _used(queues) == "5", what="the quota is counted")
    queues.patch("quota", workers={"env": [{"name": "ROUND", "value": "2"}]})

    crashing = queues.wait("crash", "WorkersAvailable", "False", "CrashLoopBackOff")
    assert "1 of 1 workers are available; Pod crash-workers-" in crashing["message"]
    assert "ends again and again with exit code 1; see `kubectl logs crash-workers-" in crashing["message"]
    forbidden = queues.wait("quota", "WorkersAvailable", "False", "ReplicaFailure")
    assert "exceeded quota: full" in forbidden["message"]
    waiting = queues.wait("large", "WorkersAvailable", "False", "Unschedulable")
    assert "Insufficient cpu" in waiting["message"]
    reasons = {"crash": "CrashLoopBackOff", "quota": "ReplicaFailure", "large": "Unschedulable"}
    for name, reason in reasons.items():
        queues.wait(name, "Ready", "False", reason, deadline=120)
        queues.wait_events(name, reason)

    cluster.delete("v1", "ResourceQuota", "full", namespace)
    queues.patch("crash", workers=workers() | {"command": None})
    queues.patch("large", workers={"resources": None})
    queues.patch("quota", workers={"env": workers()["env"] + [{"name": "ROUND", "value": "3"}]})
    for name in names:
        queues.wait(name, "WorkersAvailable", "True", "Available")
        queues.wait(name)


def _used(queues: Queues) -> str | None:
    found = queues.cluster.get("v1", "ResourceQuota", "full", queues.namespace)
    return None if found is None else found.get("status", {}).get("used", {}).get("pods")


def test_E14_an_image_that_cannot_be_pulled_is_told_with_its_name(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)
    queues.apply("mail", workers=workers(image="registry.invalid/mail:0"))
    failing = queues.wait("mail", "WorkersAvailable", "False", "ImagePullBackOff")
    assert "the image registry.invalid/mail:0 cannot be pulled" in failing["message"]
    queues.wait("mail", "Ready", "False", "ImagePullBackOff")
    queues.patch("mail", workers=workers())
    queues.wait("mail", "WorkersAvailable", "True")
    queues.wait("mail", "Ready", "True")
