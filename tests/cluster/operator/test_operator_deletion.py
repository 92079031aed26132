"""Queues that are deleted with jobs in them: each policy does as it says, and no deletion waits for ever."""

from __future__ import annotations

from functools import partial

import pytest

from headrace.errors import QueueHeld
from headrace.sync_producer import SyncProducer
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.queues import API, APPS, Queues, workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")
RBAC = "rbac.authorization.k8s.io/v1"
OF_WORKERS = (
    *((APPS, "Deployment"), ("v1", "ServiceAccount"), ("policy/v1", "PodDisruptionBudget")),
    *(("coordination.k8s.io/v1", "Lease"), (RBAC, "Role"), (RBAC, "RoleBinding")),
)


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def found(queues: Queues, api: str, kind: str, name: str) -> Object | None:
    return queues.cluster.get(api, kind, name, queues.namespace)


def test_E1_K7_J21_a_queue_deleted_in_the_foreground_keeps_its_workers_until_it_is_drained(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", deletionPolicy="Drain", workers=workers())
    queues.wait("mail")
    queues.wait("mail", "WorkersAvailable", "True", "Available")
    assert "ownerReferences" not in queues.deployment("mail")["metadata"]
    with SyncProducer(redis.url) as producer:
        for number in range(20):
            producer.enqueue(name, "gated", id=f"later-{number}")
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
        jobs.open_gate(redis.url, name)
    queues.gone("mail")
    assert jobs.runs(redis.url, name) == {f"later-{number}@v1": 1 for number in range(20)}
    assert jobs.topology(redis.url, name) is None
    cluster.wait_for(lambda: not jobs.lasting_keys(redis.url, name), what="nothing but tombstones")
    for api, kind in OF_WORKERS:
        cluster.wait_for(partial(is_gone, queues, api, kind), what=f"{kind} gone")
    queues.wait_events("mail", "Removed")


def is_gone(queues: Queues, api: str, kind: str) -> bool:
    return found(queues, api, kind, "mail-workers") is None


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
        queues.cluster.wait_for(lambda: "new@v1" in jobs.runs(redis.url, name), what="the new queue runs jobs")
        assert "old@v1" not in jobs.runs(redis.url, name)


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
    queues.wait_events("second", "Retained")
    assert jobs.known_topology(redis.url, name).owner["name"] == "first"
    queues.delete("first")
    queues.gone("first")
    queues.annotate("third", look="now")
    queues.wait("third")
    assert jobs.known_topology(redis.url, name).owner["name"] == "third"
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 1


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
        queues.gone("timed")
        for name in ("timed", "forced", "paused"):
            queues.wait_events(name, "Retained")
