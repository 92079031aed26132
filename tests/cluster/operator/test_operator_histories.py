"""What a queue and its versions go through over time, seen from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import redis as redis_client

from headrace.errors import TopologyConflict
from headrace.lifecycle import promote
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, Queues, idle_workers
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def bump(queues: Queues, version: int, partitions: int) -> None:
    queues.patch("mail", version=version, partitions=partitions)
    queues.wait("mail")


def keys_of(redis: RedisServer, queue: str, version: int) -> dict[str, int]:
    """Keys of one version of a queue, with the seconds that they have to live (-1: for ever)."""
    with redis_client.Redis.from_url(redis.url, decode_responses=True) as connection:
        found = connection.scan_iter(f"{{headrace:{queue}:{version}:*", count=1000)
        return {key: connection.ttl(key) for key in found}


def test_O4_O46_ended_versions_are_forgotten_for_good_and_what_redis_keeps_of_them_passes(
    queues: Queues, redis: RedisServer, operator: OperatorProcess, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", historyLimit=1)
    queues.wait("mail")
    for version in (2, 3, 4):
        jobs.put(redis.url, name, [f"job-{version}"])
        jobs.on_store(redis.url, partial(jobs.work_off, queue=name, version=version - 1))
        bump(queues, version, version)
    expected = {3: "Completed", 4: "Active"}
    queues.wait_versions("mail", expected)
    for version in (1, 2, 3):
        left = keys_of(redis, name, version)
        assert all(0 < seconds <= 9 * 24 * 3600 for seconds in left.values()), left
        assert len(left) <= 4, "a tombstone for each partition and nothing else"
    operator.kill()
    operator.start()
    queues.patch("mail", leaseSeconds=77)
    queues.wait("mail")
    # A completed version that somebody deletes by hand is not brought back either.
    cluster.delete(API, "QueueVersion", "mail-v3", queues.namespace)
    queues.annotate("mail", look="again")
    queues.patch("mail", leaseSeconds=78)
    queues.wait("mail")
    assert queues.versions("mail") == {4: "Active"}
    assert set(jobs.known_topology(redis.url, name).versions) == {4}


def test_O47_a_version_that_was_overtaken_before_its_promotion_is_superseded_and_leaves_nothing(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", promotion="Manual")
    queues.wait("mail")
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail", "Ready", "False", "AwaitingPromotion")
    assert len(keys_of(redis, name, 2)) == 8
    queues.patch("mail", version=3, partitions=2)
    queues.wait_versions("mail", {1: "Active", 2: "Superseded", 3: "Provisioned"})
    assert keys_of(redis, name, 2) == {}
    queues.annotate("mail", promote="3")
    queues.wait("mail")
    queues.wait_versions("mail", {1: "Completed", 2: "Superseded", 3: "Active"})


def test_T7_E11_a_queue_made_again_adopts_its_data_and_never_goes_back(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail")
    queues.wait("mail")
    bump(queues, 2, 8)
    jobs.put(redis.url, name, ["kept"])
    first = queues.get("mail")["metadata"]["uid"]
    queues.delete("mail")
    queues.gone("mail")
    # From an old file: version 1 again.
    queues.apply("mail", version=1, partitions=4)
    refused = queues.wait("mail", "Stalled", "True", "InvalidSpec")
    assert "version 2 is active (highest ever 2); set spec.version to 3" in refused["message"]
    topology = jobs.known_topology(redis.url, name)
    assert (topology.active, topology.partitions) == (2, 8)
    queues.patch("mail", version=3, partitions=4)
    queues.wait("mail")
    topology = jobs.known_topology(redis.url, name)
    assert topology.active == 3
    assert topology.owner["uid"] == queues.get("mail")["metadata"]["uid"] != first
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 2)) == 1


def test_E11_a_queue_of_another_cluster_is_left_alone_until_told_to_take_over(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    theirs = {"cluster": "another", "namespace": "x", "name": "y", "uid": "u-1"}
    jobs.on_store(redis.url, lambda store: promote(store, name, 1, 4, owner=theirs))
    jobs.put(redis.url, name, ["theirs"])
    queues.apply("mail", deletionPolicy="Delete")
    refused = queues.wait("mail", "Stalled", "True", "OwnedByAnother")
    assert queues.condition("mail", "Conflict")["status"] == "True"
    assert "headrace.dev/take-over=u-1" in refused["message"]
    queues.annotate("mail", take_over="u-2")
    queues.patch("mail", leaseSeconds=77)
    queues.wait("mail", "Stalled", "True", "OwnedByAnother")
    assert dict(jobs.known_topology(redis.url, name).owner) == theirs
    queues.annotate("mail", take_over="u-1")
    queues.wait("mail")
    assert jobs.known_topology(redis.url, name).owner["uid"] == queues.get("mail")["metadata"]["uid"]
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 1


def test_T5_T8_somebody_else_promotes_a_version_and_the_stored_topology_wins(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail")
    queues.wait("mail")
    command = ("topology", "promote", name, "--version", "2", "--partitions", "8", "--redis-url", redis.url)
    ran = subprocess.run(
        [Path(sys.executable).with_name("headrace"), *command], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    # The same version with another number of partitions, from the spec and from a promoter: both learn what counts.
    queues.patch("mail", version=2, partitions=16)
    refused = queues.wait("mail", "Stalled", "True", "InvalidSpec")
    assert "version 2 is active with 8; set spec.version to 3" in refused["message"]
    with pytest.raises(TopologyConflict, match="v2 active x8"):
        jobs.on_store(redis.url, lambda store: promote(store, name, 2, 16))
    assert jobs.known_topology(redis.url, name).partitions == 8
    queues.patch("mail", version=3, partitions=16)
    queues.wait("mail")
    topology = jobs.known_topology(redis.url, name)
    assert (topology.active, topology.partitions) == (3, 16)


def test_O38_a_queue_whose_last_step_fails_is_never_told_to_be_ready(queues: Queues, cluster: LocalCluster) -> None:
    told: list[str] = []
    path = cluster.rest.path(API, "Queue", None, queues.namespace, watch="true", timeoutSeconds="280")

    def listen() -> None:
        with cluster.client() as client:
            pool, host = client.rest_client.pool_manager, client.configuration.host
            stream = pool.request("GET", host + path, preload_content=False, timeout=280, retries=False)
            for line in stream:
                queue = json.loads(line)["object"]
                conditions = queue.get("status", {}).get("conditions", [])
                told.extend(condition["status"] for condition in conditions if condition["type"] == "Ready")
                if "headrace.dev/last" in queue["metadata"].get("annotations", {}):
                    break

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    wrong = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "no.such"}}}]
    queues.apply("mail", workers=idle_workers(env=wrong))
    queues.wait("mail", "Stalled", "True", "InvalidWorkers")
    bump_refused(queues)
    queues.patch("mail", workers={"env": []})
    queues.wait("mail")
    for seconds in (77, 78):  # whatever else would be told has its time
        queues.patch("mail", leaseSeconds=seconds)
        queues.wait("mail")
    queues.annotate("mail", last="one")
    listening.join(90)
    assert not listening.is_alive()
    assert told[-1] == "True"
    assert told.index("True") >= 2
    assert "False" not in told[told.index("True") :]


def bump_refused(queues: Queues) -> None:
    queues.patch("mail", version=2, partitions=2)
    queues.wait("mail", "Stalled", "True", "InvalidWorkers")
    assert isinstance(queues.status("mail")["activeVersion"], int)
