"""A Queue from its creation over bumps to its deletion, on a real API server, Redis and, where it matters, workers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis as redis_client

from headrace.stores.base import Store
from headrace.sync_producer import SyncProducer
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, Queues, idle_workers, workers
from tests.cluster.rest import ApiError
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    """Queues without a connection find this one."""
    queues.secret(redis.url)


def test_K1_a_bump_under_load_with_real_workers_loses_and_doubles_nothing(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", workers=workers(concurrency=4), scaling={"mode": "Manual", "replicas": 8})
    queues.wait("mail")
    queues.wait("mail", "WorkersAvailable", "True", "Available", deadline=110)
    assert len(cluster.pods(queues.namespace)) == 8
    sent = [f"job-{number}" for number in range(1200)]
    with SyncProducer(redis.url) as producer:
        for number, job in enumerate(sent):
            if number == 400:
                queues.patch("mail", version=2, partitions=8)
            if number == 800:
                cluster.wait_for(lambda: jobs.known_topology(redis.url, name).active == 2, what="v2 active")
            # The delayed ones keep v1 draining while workers serve both versions.
            producer.enqueue(name, "count", id=job, delay=3 if 300 <= number < 400 else None)
    queues.wait("mail")
    queues.wait("mail", "Draining", "False")
    queues.wait_versions("mail", {1: "Completed", 2: "Active"})

    cluster.wait_for(lambda: len(jobs.runs(redis.url, name)) >= len(sent), what="all jobs run")
    ran = jobs.runs(redis.url, name)
    assert {key.partition("@")[0] for key in ran} == set(sent)
    assert set(ran.values()) == {1}
    assert {key.partition("@")[2] for key in ran} == {"v1", "v2"}
    status = queues.status("mail")
    assert (status["activeVersion"], status["activePartitions"], status["targetVersion"]) == (2, 8, 2)
    assert [(v["version"], v["phase"], v["partitions"]) for v in status["versions"]] == [(2, "Active", 8)]
    queues.wait_events("mail", "Promoted", "Completed", "Scaled")


def test_kubectl_shows_the_state_and_waits_for_it(queues: Queues, cluster: LocalCluster, redis: RedisServer) -> None:
    queues.apply("mail", workers=idle_workers())
    cluster.kubectl("wait", "queue/mail", "--for=condition=Ready", "--namespace", queues.namespace, "--timeout=110s")
    jobs.put(redis.url, queues.queue_name("mail"), ["a", "b", "c"])
    queues.patch("mail", leaseSeconds=31)  # so that the status is written now
    where = ("--namespace", queues.namespace)

    def row(*options: str) -> dict[str, str]:
        header, line = cluster.kubectl("get", "hrq", "mail", *where, *options).splitlines()
        begins = [match.start() for match in re.finditer(r"\S+", header)]
        ends = [*begins[1:], len(line) + len(header)]
        return {header[a:b].strip(): line[a:b].strip() for a, b in zip(begins, ends, strict=True)}

    assert list(row()) == [
        "NAME",
        "READY",
        "PAUSED",
        "VERSION",
        "ACTIVE",
        "PARTS",
        "WAITING",
        "INFLIGHT",
        "OLDEST",
        "WORKERS",
        "AGE",
    ]
    shown: dict[str, str] = {}

    def all_shown() -> bool:
        shown.update(row("--output=wide"))
        return shown.get("WAITING") == "3"

    cluster.wait_for(all_shown, what="3 waiting jobs shown")
    assert shown["PAUSED"] == "False"
    assert (shown["READY"], shown["VERSION"], shown["ACTIVE"], shown["PARTS"]) == ("True", "1", "1", "4")
    assert (shown["WORKERS"], shown["DRAINING"], shown["REASON"]) == ("1", "False", "Ready")
    assert re.fullmatch(r"\d+[smh].*", shown["OLDEST"])
    assert "mail" in cluster.kubectl("get", "headrace", *where)


def test_changed_settings_reach_redis_without_a_restart(queues: Queues, redis: RedisServer) -> None:
    queues.apply("mail", workers=idle_workers())
    queues.wait("mail")
    queues.wait_scaled("mail")
    before = queues.deployment("mail")
    queues.patch("mail", retry={"maxRetries": 7}, timeoutSeconds=5, leaseSeconds=9)
    queues.wait("mail")
    settings = jobs.known_topology(redis.url, queues.queue_name("mail")).settings
    assert settings.retry is not None
    assert (settings.retry.max_retries, settings.timeout_ms, settings.lease_ms) == (7, 5000, 9000)
    after = queues.deployment("mail")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_manual_promotion_waits_for_the_annotation(queues: Queues) -> None:
    queues.apply("mail", promotion="Manual")
    queues.wait("mail")
    queues.patch("mail", version=2, partitions=8)
    waiting = queues.wait("mail", "Ready", "False", "AwaitingPromotion")
    assert "headrace.dev/promote=2" in waiting["message"]
    queues.wait_versions("mail", {1: "Active", 2: "Provisioned"})
    queues.annotate("mail", promote="2")
    queues.wait("mail")
    assert queues.status("mail")["activeVersion"] == 2


def test_E6_an_unpromoted_bump_may_be_undone_and_made_anew_a_promoted_one_not(
    queues: Queues, redis: RedisServer
) -> None:
    queues.apply("mail", promotion="Manual")
    queues.wait("mail")
    queues.patch("mail", version=2, partitions=8)
    queues.wait_versions("mail", {1: "Active", 2: "Provisioned"})
    queues.patch("mail", version=1, partitions=4)
    queues.wait("mail")
    queues.wait_versions("mail", {1: "Active", 2: "Superseded"})
    with redis_client.Redis.from_url(redis.url) as connection:
        assert list(connection.scan_iter(f"*{queues.queue_name('mail')}:2:*")) == []

    queues.patch("mail", version=2, partitions=3)
    queues.annotate("mail", promote="2")
    queues.wait("mail")
    queues.wait_versions("mail", {1: "Completed", 2: "Active"})
    assert queues.status("mail")["activePartitions"] == 3
    with pytest.raises(ApiError, match="set a higher version with the old number of partitions"):
        queues.patch("mail", version=1, partitions=4)


def test_V10_dead_letters_move_to_the_active_version_and_the_old_one_goes(queues: Queues, redis: RedisServer) -> None:
    queues.apply("mail", workers=workers())
    queues.wait("mail")
    jobs.put(redis.url, queues.queue_name("mail"), ["bad"], "poison")
    queues.cluster.wait_for(lambda: queues.status("mail")["depth"]["dead"] == 1, what="a dead letter")
    queues.patch("mail", version=2, partitions=2)
    queues.wait_versions("mail", {1: "Completed", 2: "Active"})
    queues.cluster.wait_for(lambda: queues.status("mail")["depth"]["dead"] == 1, what="the dead letter in v2")


@pytest.mark.parametrize(
    ("drain", "left"),
    [
        ({"policy": "Migrate"}, {"scheduled": 1, "dead": 0}),
        ({"timeoutSeconds": 1, "onTimeout": "Migrate"}, {"scheduled": 1, "dead": 0}),
        ({"timeoutSeconds": 1, "onTimeout": "DeadLetter"}, {"scheduled": 0, "dead": 1}),
    ],
    ids=["moved", "moved in time", "dead in time"],
)
def test_V8_a_job_due_in_a_month_does_not_keep_its_version(
    queues: Queues, redis: RedisServer, drain: dict[str, Any], left: dict[str, int]
) -> None:
    queues.apply("mail", workers=workers(), drain=drain)
    queues.wait("mail")
    with SyncProducer(redis.url) as producer:
        producer.enqueue(queues.queue_name("mail"), "count", id="late", delay=30 * 24 * 3600.0)
    queues.patch("mail", version=2, partitions=3)
    queues.wait_versions("mail", {1: "Completed", 2: "Active"})
    depth = jobs.on_store(redis.url, lambda store: _depth(store, queues.queue_name("mail")))
    assert depth == left
    if left["dead"]:
        queues.wait_events("mail", "DrainTimedOut")
    else:
        assert "DrainTimedOut" not in queues.events("mail")


async def _depth(store: Store, queue: str) -> dict[str, int]:
    topology = await store.read_topology(queue)
    assert topology is not None
    counts = await store.counts(topology.refs(topology.active))
    return {"scheduled": sum(each.scheduled for each in counts), "dead": sum(each.dead for each in counts)}


def test_J15_jobs_of_a_type_that_no_worker_knows_are_shown_and_run_once_one_does(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", workers=workers())
    queues.wait("mail")
    jobs.put(redis.url, name, ["early-1", "early-2"], "later")
    queues.cluster.wait_for(lambda: queues.status("mail")["depth"]["parked"] == 2, what="2 parked jobs")
    queues.wait_events("mail", "JobsParked")
    queues.patch("mail", version=2, partitions=2)
    draining = queues.wait("mail", "Draining", "True", "JobsParked")
    assert "v1 holds 2 parked; no worker knows the type 'later'; deploy a worker that does" in draining["message"]
    assert queues.condition("mail", "Ready")["status"] == "True"
    table = queues.cluster.kubectl("get", "queue", "mail", "--output=wide", "--namespace", queues.namespace)
    assert "PARKED" in table.splitlines()[0].split()

    queues.patch("mail", workers={"app": "tests.cluster.operator.workload:later_app"})
    queues.wait_versions("mail", {1: "Completed", 2: "Active"})
    assert set(jobs.runs(redis.url, name)) == {"early-1@v1", "early-2@v1"}


def test_promotion_waits_while_too_many_versions_drain(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", maxDrainingVersions=1)
    queues.wait("mail")
    jobs.put(redis.url, name, ["a"])
    queues.patch("mail", version=2)
    queues.wait("mail")
    queues.patch("mail", version=3)
    queues.wait("mail", "Ready", "False", "TooManyDraining")
    queues.wait_versions("mail", {1: "Draining", 2: "Active", 3: "Provisioned"})
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 1
    queues.wait("mail")
    assert queues.status("mail")["activeVersion"] == 3


def test_ended_versions_are_kept_up_to_the_history_limit(queues: Queues) -> None:
    queues.apply("mail", historyLimit=1)
    queues.wait("mail")
    for version in (2, 3, 4):
        queues.patch("mail", version=version)
        queues.wait("mail")
    queues.wait_versions("mail", {3: "Completed", 4: "Active"})


def test_a_queue_created_again_adopts_and_one_that_contradicts_is_stalled(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", version=3, partitions=4)
    queues.wait("mail")
    jobs.put(redis.url, name, ["a", "b"])
    before = jobs.known_topology(redis.url, name)

    def recreate(version: int, partitions: int) -> None:
        queues.cluster.delete(API, "Queue", "mail", queues.namespace)
        queues.apply("mail", version=version, partitions=partitions)

    # Rules about changes do not run at creation, so this one slips through admission.
    recreate(2, 4)
    stalled = queues.wait("mail", "Stalled", "True", "InvalidSpec")
    assert "spec.version is 2, but version 3 is active" in stalled["message"]
    assert "set spec.version to 4" in stalled["message"]
    recreate(3, 16)
    stalled = queues.wait("mail", "Stalled", "True", "InvalidSpec")
    assert "spec.partitions is 16, but version 3 is active with 4" in stalled["message"]
    assert queues.condition("mail", "Ready")["status"] == "False"
    assert jobs.known_topology(redis.url, name) == before
    queues.wait_events("mail", "InvalidSpec")

    recreate(3, 4)
    queues.wait("mail")
    queues.wait_versions("mail", {3: "Active"})
    after = jobs.known_topology(redis.url, name)
    assert dict(after.versions) == dict(before.versions)
    assert after.owner["uid"] == queues.get("mail")["metadata"]["uid"] != before.owner["uid"]
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 3)) == 2


def test_a_queue_version_deleted_by_hand_is_made_again(queues: Queues) -> None:
    queues.apply("mail")
    queues.wait_versions("mail", {1: "Active"})
    queues.cluster.delete(API, "QueueVersion", "mail-v1", queues.namespace)
    queues.wait_versions("mail", {1: "Active"})


def test_the_operator_ends_in_order_on_sigterm(operator: OperatorProcess) -> None:
    try:
        assert operator.stop() == 0
    finally:
        operator.start()
    assert "Traceback" not in operator.log.read_text()
