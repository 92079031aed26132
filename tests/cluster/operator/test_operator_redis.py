"""What the operator does when Redis is not what it was: unreachable, emptied, edited, or somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis as redis_client

from headrace.topology import Topology, Version
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, idle_workers, workers
from tests.cluster.ports import free_ports
from tests.services.redis import RedisServer


@pytest.fixture(scope="module", autouse=True)
def watchful_operator(
    cluster: LocalCluster, installed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One that looks at the topology every second instead of every 30."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(cluster, log, HEADRACE_RESYNC_SECONDS="1") as running:
        yield running


def edit(url: str, topology: Topology) -> None:
    """Overwrite the stored topology, as somebody with redis-cli would."""
    with redis_client.Redis.from_url(url) as connection:
        connection.set(f"{{headrace:{topology.queue}}}:topology", topology.to_json())


def test_O1_a_topology_removed_by_hand_is_rebuilt_with_its_jobs(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": redis.url})
    queues.wait("mail")
    jobs.put(redis.url, name, ["old-1", "old-2", "old-3"])
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail", "Draining")
    jobs.put(redis.url, name, ["new-1", "new-2"])
    before = jobs.known_topology(redis.url, name)

    jobs.remove_topology(redis.url, name)
    after = queues.cluster.wait_for(lambda: jobs.topology(redis.url, name), what="topology rebuilt")
    assert after.epoch > before.epoch
    assert (after.active, dict(after.versions), dict(after.owner)) == (2, dict(before.versions), dict(before.owner))
    queues.wait_events("mail", "TopologyDrifted")
    queues.wait("mail")
    assert queues.condition("mail", "DataLoss")["status"] == "False"
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 3
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 2)) == 2
    queues.wait_versions("mail", {1: "Completed", 2: "Active"})


@pytest.mark.parametrize("what", ["partitions", "a version gone", "an old copy"])
def test_O1_a_topology_edited_by_hand_is_repaired(queues: Queues, redis: RedisServer, what: str) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": redis.url})
    queues.wait("mail")
    first = jobs.known_topology(redis.url, name)
    jobs.put(redis.url, name, ["a"])
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail", "Draining")
    right = jobs.known_topology(redis.url, name)
    wrong = {
        "partitions": replace(right, versions={**right.versions, 2: Version(32, "active")}),
        "a version gone": replace(right, versions={2: right.versions[2]}),
        "an old copy": first,
    }[what]
    edit(redis.url, wrong)
    queues.cluster.wait_for(
        lambda: dict(jobs.known_topology(redis.url, name).versions) == dict(right.versions), what="topology repaired"
    )
    assert jobs.known_topology(redis.url, name).epoch > right.epoch
    queues.wait_events("mail", "TopologyDrifted")
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 1
    queues.wait("mail", "Draining", "False")
    status = queues.status("mail")
    assert status["drift"]["what"].startswith("the topology was changed by somebody else: ")
    assert status["phase"] == "Active"


def test_O2_an_emptied_redis_is_told_and_rebuilt_above_the_last_epoch(queues: Queues, own_redis: RedisServer) -> None:
    names = {queue: queues.queue_name(queue) for queue in ("mail", "sms")}
    for queue in names:
        queues.apply(queue, connection={"url": own_redis.url}, historyLimit=5)
        queues.wait(queue)
    jobs.put(own_redis.url, names["mail"], ["lost"])
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    queues.wait_versions("mail", {1: "Draining", 2: "Active"})
    before = {queue: jobs.known_topology(own_redis.url, name) for queue, name in names.items()}
    marker = queues.status("mail")["backend"]["marker"]

    with redis_client.Redis.from_url(own_redis.url) as connection:
        connection.flushall()

    for queue, name in names.items():
        # The second Queue finds the mark that the first one has written, and must see the loss all the same.
        loss = queues.wait(queue, "DataLoss", "True", "TopologyLost")
        queues.wait(queue)
        after = jobs.known_topology(own_redis.url, name)
        assert after.epoch == before[queue].epoch + 1
        assert (after.active, after.highest) == (before[queue].active, before[queue].highest)
        assert f"headrace.dev/ack-data-loss={after.epoch}" in loss["message"]
        queues.wait_events(queue, "TopologyLost")
    queues.wait_versions("mail", {1: "Failed", 2: "Active"})
    assert queues.status("mail")["backend"]["marker"] == queues.status("sms")["backend"]["marker"] != marker

    jobs.put(own_redis.url, names["mail"], ["new"])
    assert jobs.on_store(own_redis.url, lambda store: jobs.work_off(store, names["mail"], 2)) == 1
    queues.annotate("mail", ack_data_loss=str(queues.status("mail")["dataLossEpoch"]))
    queues.wait("mail", "DataLoss", "False", "Acknowledged")
    assert queues.condition("sms", "DataLoss")["status"] == "True"


def test_O2_a_loss_while_the_operator_was_away_is_told_and_no_number_goes_back(
    queues: Queues, own_redis: RedisServer, watchful_operator: OperatorProcess
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": own_redis.url})
    queues.wait("mail")
    for version in (2, 3):
        queues.patch("mail", version=version)
        queues.wait("mail")
    before = jobs.known_topology(own_redis.url, name)
    watchful_operator.kill()
    own_redis.restart()  # without persistence: it comes back empty
    queues.patch("mail", version=4, partitions=2)
    watchful_operator.start()
    queues.wait("mail", "DataLoss", "True", "TopologyLost")
    queues.wait("mail")
    after = jobs.known_topology(own_redis.url, name)
    assert after.epoch > before.epoch
    assert (after.active, after.highest, after.partitions) == (4, 4, 2)


def test_a_wrong_url_is_told_touches_nothing_and_recovers_by_itself(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.secret(f"redis://:secret-password@127.0.0.1:{free_ports(1)[0]}/0")
    queues.apply("mail", workers=idle_workers())
    problem = queues.wait("mail", "ConnectionReady", "False", "Unreachable")
    assert "secret-password" not in str(queues.get("mail"))
    assert "does not answer" in problem["message"]
    ready = queues.condition("mail", "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Unreachable")
    assert queues.condition("mail", "TopologyApplied")["status"] == "Unknown"
    assert queues.versions("mail") == {}
    with pytest.raises(LookupError):
        queues.deployment("mail")

    queues.secret("http://somewhere")
    queues.wait("mail", "Stalled", "True", "InvalidURL", deadline=45)
    queues.secret(redis.url)
    queues.wait("mail", deadline=45)
    assert jobs.known_topology(redis.url, name).active == 1
    queues.deployment("mail")


def test_an_outage_freezes_the_queue_and_ends_by_itself(queues: Queues, own_redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": own_redis.url}, workers=idle_workers())
    queues.wait("mail")
    before = jobs.known_topology(own_redis.url, name)
    own_redis.pause()
    try:
        queues.wait("mail", "ConnectionReady", "False", "Unreachable")
        queues.patch("mail", version=2, scaling={"mode": "Manual", "replicas": 3})
        queues.wait("mail", "Ready", "False", "Unreachable")
        assert queues.deployment("mail")["spec"]["replicas"] == 1
        assert queues.versions("mail") == {1: "Active"}
    finally:
        own_redis.resume()
    queues.wait("mail")
    assert jobs.known_topology(own_redis.url, name).active == 2 > before.active
    assert queues.condition("mail", "DataLoss")["status"] == "False"


def test_QD7_an_unsafe_redis_is_told_and_refused_where_that_is_asked_for(
    queues: Queues, own_redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    with own_redis.client() as server:
        server.config_set("maxmemory", "100mb")
        server.config_set("maxmemory-policy", "allkeys-lru")
        queues.apply("mail", connection={"url": own_redis.url})
        queues.wait("mail")
        told = queues.wait("mail", "UnsafeRedis", "True", "UnsafeRedis")
        assert "maxmemory-policy is allkeys-lru" in told["message"]
        assert "it saves nothing, so a restart loses all jobs" in told["message"]
        queues.wait_events("mail", "UnsafeRedis")

        queues.patch("mail", version=2, connection={"url": own_redis.url, "strict": True})
        queues.wait("mail", "ConnectionReady", "False", "UnsafeRedis")
        queues.wait("mail", "Stalled", "True", "UnsafeRedis")
        assert jobs.known_topology(own_redis.url, name).active == 1

        server.config_set("maxmemory-policy", "noeviction")
        server.config_set("appendonly", "yes")
        queues.wait("mail", "UnsafeRedis", "False", "Safe")
        queues.wait("mail")
        assert jobs.known_topology(own_redis.url, name).active == 2


def test_a_missing_secret_is_told_and_recovers_by_itself(queues: Queues, redis: RedisServer) -> None:
    queues.apply("mail")
    problem = queues.wait("mail", "Stalled", "True", "SecretMissing")
    said = f"Secret {queues.namespace}/headrace-redis does not exist; create it with the Redis URL under the key 'url'"
    assert problem["message"] == said
    waiting = queues.condition("mail", "Reconciling")
    assert (waiting["status"], waiting["reason"]) == ("False", "SecretMissing")
    assert waiting["message"] == "waits for a correction of what the condition Stalled names"
    queues.secret(redis.url)
    queues.wait("mail", deadline=45)

    queues.apply("sms", connection={"secretRef": {"name": "headrace-redis", "key": "elsewhere"}})
    problem = queues.wait("sms", "Stalled", "True", "SecretMissing")
    assert f"Secret {queues.namespace}/headrace-redis has no key 'elsewhere'" in problem["message"]


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("mongodb://:secret-password@somewhere/0", "has the unknown scheme 'mongodb'"),
        ("memory://", "has the scheme 'memory', which leads to nothing outside of one Pod"),
        ("unix:///run/redis.sock", "has the scheme 'unix'"),
        ("secret-password:6379", "has no scheme"),
        ("redis://:secret-password/x@somewhere/0", "cannot be parsed"),
    ],
)
def test_a_url_that_cannot_be_used_is_told_without_its_password(
    queues: Queues, redis: RedisServer, url: str, word: str
) -> None:
    queues.secret(url)
    queues.apply("mail")
    problem = queues.wait("mail", "Stalled", "True", "InvalidURL")
    assert f"Secret {queues.namespace}/headrace-redis, key 'url': the URL {word}" in problem["message"]
    assert "use redis://" in problem["message"]
    assert queues.condition("mail", "Ready")["status"] == "False"
    queues.wait("mail", "ConnectionReady", "False", "InvalidURL")
    assert "secret-password" not in str(queues.get("mail"))
    # A correction is noticed long before a Secret that works would be read again.
    queues.secret(redis.url)
    queues.wait("mail", deadline=45)


def test_two_queues_of_one_name_conflict_and_the_loser_touches_nothing(
    cluster: LocalCluster, queues: Queues, redis: RedisServer
) -> None:
    connection = {"url": redis.url}
    queues.apply("mail", connection=connection)
    queues.wait("mail")
    with cluster.namespace() as other_namespace:
        other = Queues(cluster, other_namespace)
        other.apply("post", queueName=queues.queue_name("mail"), version=5, connection=connection)
        problem = other.wait("post", "Stalled", "True", "OwnedByAnother")
        assert f"belongs to the Queue {queues.namespace}/mail" in problem["message"]
        assert other.versions("post") == {}
        assert jobs.known_topology(redis.url, queues.queue_name("mail")).active == 1
        # Gone: handed over.
        cluster.delete("headrace.dev/v1alpha1", "Queue", "mail", queues.namespace)
        other.wait("post")
        other.wait_versions("post", {1: "Completed", 5: "Active"})


def test_another_redis_behind_the_connection_is_not_used_before_it_is_accepted(
    queues: Queues, redis: RedisServer, own_redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": redis.url})
    queues.wait("mail")
    queues.patch("mail", version=2, connection={"url": own_redis.url})
    problem = queues.wait("mail", "Stalled", "True", "BackendChanged")
    assert "headrace.dev/accept-new-backend=empty" in problem["message"]
    assert jobs.topology(own_redis.url, name) is None
    queues.annotate("mail", accept_new_backend="empty")
    queues.wait("mail")
    assert jobs.known_topology(own_redis.url, name).active == 2
    assert jobs.known_topology(redis.url, name).active == 1
    assert queues.condition("mail", "DataLoss")["status"] == "False"


def test_E16_rotated_credentials_are_used_by_operator_and_workers_without_a_restart(
    queues: Queues, own_redis: RedisServer
) -> None:
    name = queues.queue_name("mail")

    def url(user: str) -> str:
        return own_redis.url.replace("redis://", f"redis://{user}:secret-of-{user}@")

    def asked_last(user: str) -> set[str]:
        """The commands that connections of a user have sent last."""
        return {client["cmd"] for client in admin.client_list() if client["user"] == user}

    with redis_client.Redis.from_url(own_redis.url, decode_responses=True) as admin:
        for user in ("before", "after"):
            admin.acl_setuser(user, enabled=True, passwords=f"+secret-of-{user}", keys="*", commands=["+@all"])
        queues.secret(url("before"))
        queues.apply("mail", workers=workers())
        queues.wait("mail", "WorkersAvailable", "True", "Available")
        (pod,) = queues.cluster.pods(queues.namespace)
        jobs.put(own_redis.url, name, ["old-1", "old-2"])
        queues.cluster.wait_for(lambda: len(jobs.runs(own_redis.url, name)) == 2, what="the first jobs ran")

        queues.secret(url("after"))
        queues.cluster.wait_for(lambda: "bzpopmin" in asked_last("after"), deadline=120, what="the worker went over")
        admin.acl_deluser("before")
        jobs.put(own_redis.url, name, ["new-1", "new-2"])
        queues.patch("mail", timeoutSeconds=61)
        queues.cluster.wait_for(
            lambda: jobs.known_topology(own_redis.url, name).settings.timeout_ms == 61_000, what="the operator works"
        )
        expected = {f"{job}@v1": 1 for job in ("old-1", "old-2", "new-1", "new-2")}
        queues.cluster.wait_for(lambda: jobs.runs(own_redis.url, name) == expected, what="all jobs ran once")
        (same,) = queues.cluster.pods(queues.namespace)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert [each["restartCount"] for each in same["status"]["containerStatuses"]] == [0]
    queues.wait("mail")
