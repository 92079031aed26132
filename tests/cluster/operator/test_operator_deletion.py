"""Queues that are deleted with jobs in them: each policy does as it says, and no deletion waits for ever."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from headrace.errors import QueueHeld
from headrace.sync_producer import SyncProducer
from headrace_operator import steps
from headrace_operator.api.names import FINALIZER, QueueKey
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.inprocess import OperatorInTest
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, APPS, Queues, idle_workers, workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

OF_WORKERS = ((APPS, "Deployment"), ("v1", "ServiceAccount"), ("policy/v1", "PodDisruptionBudget"))


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def found(queues: Queues, api: str, kind: str, name: str) -> Object | None:
    return queues.cluster.get(api, kind, name, queues.namespace)


def left(redis: RedisServer, queues: Queues, name: str) -> int:
    """Jobs that can be claimed from what a deleted Queue has left."""
    return jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name(name), 1))


@pytest.mark.usefixtures("operator")
def test_E1_K7_a_queue_deleted_in_the_foreground_keeps_its_workers_until_it_is_drained(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", deletionPolicy="Drain", workers=workers())
    queues.wait("mail")
    queues.wait("mail", "WorkersAvailable", "True", "Available", deadline=60)
    assert "ownerReferences" not in queues.deployment("mail")["metadata"]
    with SyncProducer(redis.url) as producer:
        for number in range(20):
            producer.enqueue(name, "count", id=f"later-{number}", delay=4)
        (pod,) = cluster.pods(queues.namespace)
        queues.delete("mail", propagation="Foreground")
        told = queues.wait("mail", "Ready", "False", "Deleting")
        assert "those that are left at" in told["message"]
        cluster.wait_for(
            lambda: found(queues, API, "QueueVersion", "mail-v1") is None, what="collected in the foreground"
        )
        assert jobs.runs(redis.url, name) == {}
        assert [found["metadata"]["uid"] for found in cluster.pods(queues.namespace)] == [pod["metadata"]["uid"]]
        with pytest.raises(QueueHeld):
            producer.enqueue(name, "count", id="refused")
    queues.gone("mail", deadline=60)
    assert jobs.runs(redis.url, name) == {f"later-{number}@v1": 1 for number in range(20)}
    assert jobs.topology(redis.url, name) is None
    for api, kind in OF_WORKERS:
        cluster.wait_for(partial(is_gone, queues, api, kind), what=f"{kind} gone")
    assert "Removed" in queues.events("mail")


def is_gone(queues: Queues, api: str, kind: str) -> bool:
    return found(queues, api, kind, "mail-workers") is None


@pytest.mark.usefixtures("operator")
def test_O3_O8_a_deletion_with_jobs_is_refused_until_confirmed_and_whoever_knew_the_queue_finds_the_next_one(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", deletionPolicy="Delete", partitions=8, workers=workers())
    queues.wait("mail")
    with SyncProducer(redis.url) as producer:
        producer.enqueue(name, "count", id="old", delay=3600)
        queues.delete("mail")
        refused = queues.wait("mail", "Stalled", "True", "DeletionUnconfirmed")
        uid = queues.get("mail")["metadata"]["uid"]
        assert f"headrace.dev/confirm-delete={uid}" in refused["message"]
        queues.annotate("mail", confirm_delete="yes")
        queues.wait("mail", "Stalled", "True", "DeletionUnconfirmed")
        producer.enqueue(name, "count", id="while it waits")
        assert jobs.known_topology(redis.url, name).settings.stop == "none"
        queues.annotate("mail", confirm_delete=uid)
        queues.gone("mail")
        assert jobs.topology(redis.url, name) is None

        queues.apply("mail", partitions=2, workers=workers())
        queues.wait("mail")
        producer.enqueue(name, "count", id="new")
        queues.cluster.wait_for(lambda: "new@v1" in jobs.runs(redis.url, name), 60, what="the new queue runs jobs")
        assert "old@v1" not in jobs.runs(redis.url, name)


@pytest.mark.usefixtures("operator")
def test_O32_O34_of_two_queues_for_one_the_loser_goes_without_touching_it_and_the_other_may_follow(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("shared")
    for owner in ("first", "second", "third"):
        policy = "Delete" if owner == "second" else "Retain"
        queues.apply(owner, queueName=name, deletionPolicy=policy)
        queues.wait(owner, "Ready", *(("True",) if owner == "first" else ("False", "OwnedByAnother")))
    jobs.put(redis.url, name, ["kept"])
    queues.annotate("second", confirm_delete=queues.get("second")["metadata"]["uid"])
    queues.delete("second")
    queues.gone("second")
    assert "Retained" in queues.events("second")
    assert jobs.known_topology(redis.url, name).owner["name"] == "first"
    queues.delete("first")
    queues.gone("first")
    queues.annotate("third", look="now")
    queues.wait("third", deadline=45)
    assert jobs.known_topology(redis.url, name).owner["name"] == "third"
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 1


@pytest.mark.usefixtures("operator")
def test_O31_O49_with_redis_gone_a_deletion_ends_in_time_and_by_force_at_once(queues: Queues) -> None:
    with RedisServer("valkey") as server:
        for name, seconds in (("timed", 5), ("forced", 3600), ("paused", 5)):
            connection = {"url": server.url}
            drain = {"deletionTimeoutSeconds": seconds}
            queues.apply(name, deletionPolicy="Drain", drain=drain, connection=connection, paused=name == "paused")
            queues.wait(name)
            jobs.put(server.url, queues.queue_name(name), ["kept"])
        queues.delete("paused")
        queues.gone("paused")
        settings = jobs.known_topology(server.url, queues.queue_name("paused")).settings
        assert settings.stop == "hold"
        server.stop()
        for name in ("timed", "forced"):
            queues.delete(name)
        queues.wait("forced", "ConnectionReady", "False", "Unreachable")
        queues.annotate("forced", force_delete="true")
        queues.gone("forced")
        queues.gone("timed", deadline=60)
        for name in ("timed", "forced", "paused"):
            assert "Retained" in queues.events(name)


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
            queues.gone(name, deadline=40)
        cluster.wait_for(lambda: cluster.get("v1", "Namespace", namespace) is None, 60, what="the namespace ended")
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
            await asyncio.to_thread(patch, finalizers=[theirs, FINALIZER])

    await asyncio.to_thread(queues.apply, "mail", deletionPolicy="Delete")
    async with OperatorInTest(cluster, after_step=meddle) as operator:
        await operator.reconciler.reconcile(key)
        assert queues.get("mail")["metadata"]["finalizers"] == [FINALIZER]
        seen = await operator.observer.observe(*key)
        assert seen is not None
        observed, store = seen
        # Of two writers that have read the same object, one looks again, whichever it is.
        await asyncio.to_thread(patch_status, "by somebody else")
        stale = steps.SetFinalizers((), observed.queue.resource_version)
        with pytest.raises(Exception, match="409"):
            await operator.applier.run(stale, observed.queue, store)
        assert queues.get("mail")["metadata"]["finalizers"] == [FINALIZER]
        queues.delete("mail")
        assert await operator.reconciler.reconcile(key) is None
        assert queues.get("mail")["metadata"]["finalizers"] == [theirs]
        assert jobs.topology(redis.url, queues.queue_name("mail")) is None
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
            jobs.put(redis.url, queues.queue_name("mail"), ["a"])
            queues.delete("mail")
            cluster.wait_for(lambda: queues.get("mail")["metadata"].get("deletionTimestamp"), what="in deletion")
            cluster.delete(API, "QueueVersion", "mail-v1", queues.namespace)
            cluster.delete("v1", "ServiceAccount", "mail-workers", queues.namespace)
            queues.patch("mail", version=2, partitions=4)
            await operator.reconciler.reconcile(key)
            assert queues.versions("mail") == {}
            assert found(queues, "v1", "ServiceAccount", "mail-workers") is None
            assert jobs.known_topology(redis.url, queues.queue_name("mail")).active == 1
            assert left(redis, queues, "mail") == 1
            queues.annotate("mail", force_delete="true")
            await operator.reconciler.reconcile(key)
        cluster.patch(API, "Queue", "mail", queues.namespace, {"metadata": {"finalizers": []}})
        queues.gone("mail")
        cluster.delete(APPS, "Deployment", "mail-workers", queues.namespace)
        cluster.wait_for(partial(is_gone, queues, APPS, "Deployment"), what="Deployment gone")
