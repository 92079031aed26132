"""Deletions that meet others: a namespace that ends, other finalizers, writers at the same moment."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from headrace_operator import steps
from headrace_operator.api.names import FINALIZER, QueueKey
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.inprocess import OperatorInTest
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, APPS, Queues, idle_workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def found(queues: Queues, api: str, kind: str, name: str) -> Object | None:
    return queues.cluster.get(api, kind, name, queues.namespace)


def is_gone(queues: Queues, api: str, kind: str) -> bool:
    return found(queues, api, kind, "mail-workers") is None


def left(redis: RedisServer, queues: Queues, name: str) -> int:
    """Jobs that can be claimed from what a deleted Queue has left."""
    return jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name(name), 1))


def test_O5_O6_O35_a_namespace_that_ends_is_not_held_and_its_jobs_stay(
    cluster: LocalCluster, installed: str, redis: RedisServer, tmp_path: Path
) -> None:
    with cluster.namespace() as namespace, OperatorProcess(cluster, tmp_path / "operator.log") as operator:
        queues = Queues(cluster, namespace)
        queues.secret(redis.url)
        for name, policy in (("drained", "Drain"), ("deleted", "Delete"), ("empty", "Delete"), ("retained", "Retain")):
            queues.apply(name, deletionPolicy=policy, workers=idle_workers())
            queues.wait(name)
            if name != "empty":
                jobs.put(redis.url, queues.queue_name(name), ["kept"])
        before = len(operator.log.read_text().splitlines())
        # The Secret is gone first, as in a namespace that is taken down in any order.
        cluster.delete("v1", "Secret", "headrace-redis", namespace)
        cluster.delete("v1", "Namespace", namespace)
        for name in ("drained", "deleted", "empty", "retained"):
            queues.gone(name)
        cluster.wait_for(lambda: cluster.get("v1", "Namespace", namespace) is None, what="the namespace ended")
        said = operator.log.read_text().splitlines()[before:]
        assert len(said) < 60, said
        assert not [line for line in said if "Traceback" in line]
        for name in ("drained", "deleted", "retained"):
            assert left(redis, queues, name) == 1


async def test_O23_O7_finalizers_of_others_and_status_writes_meet_ours_without_loss(
    cluster: LocalCluster, queues: Queues, redis: RedisServer
) -> None:
    key = QueueKey(queues.namespace, "mail")
    theirs = "example.dev/theirs"

    def patch(**metadata: object) -> None:
        cluster.patch(API, "Queue", "mail", queues.namespace, {"metadata": metadata})

    def patch_status(message: str) -> None:
        body = {"status": {"selector": message}}
        cluster.patch(API, "Queue", "mail", queues.namespace, body, subresource="status")

    async def meddle(step: steps.Step) -> None:
        """Somebody writes the object between the look and the removal of the finalizer."""
        if isinstance(step, steps.RemoveQueue):
            await asyncio.to_thread(patch, annotations={"somebody": "else"})

    await asyncio.to_thread(queues.apply, "mail", deletionPolicy="Delete")
    await asyncio.to_thread(patch, finalizers=[theirs])
    async with OperatorInTest(cluster, after_step=meddle) as operator:
        await operator.reconciler.reconcile(key)
        assert queues.get("mail")["metadata"]["finalizers"] == [theirs, FINALIZER]
        seen = await operator.observer.observe(key)
        assert isinstance(seen, tuple)
        observed, store = seen
        # Of two writers that have read the same object, one looks again, whichever it is.
        await asyncio.to_thread(patch_status, "by somebody else")
        stale = steps.SetFinalizers((), observed.queue.resource_version)
        with pytest.raises(Exception, match="409"):
            await operator.applier.run(stale, observed.queue, store)
        assert queues.get("mail")["metadata"]["finalizers"] == [theirs, FINALIZER]
        queues.delete("mail")
        assert await operator.reconciler.reconcile(key) is None
        assert queues.get("mail")["metadata"]["finalizers"] == [theirs]
        assert await asyncio.to_thread(jobs.topology, redis.url, queues.queue_name("mail")) is None
        await asyncio.to_thread(patch, finalizers=[])
        # What is gone already counts as deleted.
        assert await operator.reconciler.reconcile(key) is None
        await operator.kube.delete(f"/apis/{API}/namespaces/{key.namespace}/queues/mail", uid=observed.queue.uid)


async def test_O37_a_queue_in_deletion_gets_no_new_children(
    cluster: LocalCluster, queues: Queues, redis: RedisServer
) -> None:
    key = QueueKey(queues.namespace, "mail")
    for policy in ("Retain", "Drain"):
        queues.apply("mail", deletionPolicy=policy, workers=idle_workers(), partitions=2)
        cluster.patch(API, "Queue", "mail", queues.namespace, {"metadata": {"finalizers": ["example.dev/theirs"]}})
        async with OperatorInTest(cluster) as operator:
            await operator.reconciler.reconcile(key)
            await asyncio.to_thread(jobs.put, redis.url, queues.queue_name("mail"), ["a"])
            queues.delete("mail")
            cluster.wait_for(lambda: queues.get("mail")["metadata"].get("deletionTimestamp"), what="in deletion")
            cluster.delete(API, "QueueVersion", "mail-v1", queues.namespace)
            cluster.delete("v1", "ServiceAccount", "mail-workers", queues.namespace)
            queues.patch("mail", version=2, partitions=4)
            await operator.reconciler.reconcile(key)
            assert queues.versions("mail") == {}
            assert found(queues, "v1", "ServiceAccount", "mail-workers") is None
            topology = await asyncio.to_thread(jobs.known_topology, redis.url, queues.queue_name("mail"))
            assert topology.active == 1
            assert await asyncio.to_thread(left, redis, queues, "mail") == 1
            queues.annotate("mail", force_delete="true")
            await operator.reconciler.reconcile(key)
        cluster.patch(API, "Queue", "mail", queues.namespace, {"metadata": {"finalizers": []}})
        queues.gone("mail")
        cluster.delete(APPS, "Deployment", "mail-workers", queues.namespace)
        cluster.wait_for(partial(is_gone, queues, APPS, "Deployment"), what="Deployment gone")
