"""A Redis that comes and goes, changes its mind, or forgets its last writes, under Queues that want something."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, idle_workers
from tests.services.redis import RedisServer
from tests.services.redis_cluster import RedisClusterServers


@pytest.fixture(scope="module", autouse=True)
def watchful_operator(
    cluster: LocalCluster, installed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One that looks at the topology every second instead of every 30."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(cluster, log, HEADRACE_RESYNC_SECONDS="1") as running:
        yield running


def connections(server: RedisServer) -> int:
    """Connections that others have to a server."""
    with closing(server.client()) as client:
        return len(client.client_list()) - 1


def test_O11_O26_a_redis_that_is_down_at_first_is_found_later_and_errors_add_no_connections(
    queues: Queues, own_redis: RedisServer, cluster: LocalCluster
) -> None:
    own_redis.stop()
    names = [f"mail-{number}" for number in range(5)]
    for name in names:
        queues.apply(name, connection={"url": own_redis.url})
    for name in names:
        queues.wait(name, "ConnectionReady", "False", "Unreachable")
    own_redis.start()
    for name in names:
        queues.wait(name)
    with closing(own_redis.client()) as client:
        steady = connections(own_redis)
        # It answers and refuses what the operator needs, over and over.
        client.acl_setuser("default", enabled=True, nopass=True, keys="*", commands=["+@all", "-get", "-evalsha"])
        for name in names:
            queues.patch(name, leaseSeconds=77)
        for name in names:
            queues.wait(name, "ConnectionReady", "False", "AccessDenied")
        refused = [entry for entry in client.acl_log() if entry["reason"] == "command"]
        assert refused
        assert connections(own_redis) <= steady + 2
        client.acl_setuser("default", enabled=True, nopass=True, keys="*", commands=["+@all"])
        for name in names:
            queues.wait(name)
        # Five Queues, one pool.
        assert connections(own_redis) <= steady + 2 <= 12


def test_J10_a_queue_whose_keys_somebody_else_overwrote_is_told_and_troubles_no_other_on_that_redis(
    queues: Queues, redis: RedisServer
) -> None:
    damaged = queues.queue_name("damaged")
    for name in ("damaged", "sound"):
        queues.apply(name, connection={"url": redis.url})
        queues.wait(name)
    lane = f"{{headrace:{damaged}:1:0}}:r1"
    with closing(redis.client()) as client:
        client.set(lane, "not a list")
    told = queues.wait("damaged", "ConnectionReady", "False", "DataDamaged")
    assert lane in queues.condition("damaged", "ConnectionReady")["message"], told
    queues.patch("sound", leaseSeconds=77)
    queues.wait("sound")
    assert queues.condition("sound", "ConnectionReady")["status"] == "True"
    command = [sys.executable, "-m", "headrace", "audit", damaged, "--repair", "--yes", "--redis-url", redis.url]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    queues.wait("damaged")


def test_a_redis_that_turns_read_only_freezes_the_queue_and_is_used_again_afterwards(
    queues: Queues, own_redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": own_redis.url}, workers=idle_workers())
    queues.wait("mail")
    with RedisServer("valkey") as elsewhere, closing(own_redis.client()) as client:
        # A primary that was demoted: it has all data, and takes no write.
        client.config_set("replica-read-only", "yes")
        client.config_set("repl-diskless-load", "disabled")
        elsewhere.pause()
        client.replicaof("127.0.0.1", elsewhere.port)
        queues.patch("mail", version=2, partitions=8)
        queues.wait("mail", "ConnectionReady", "False")
        assert queues.deployment("mail")["spec"]["replicas"] == 1
        assert jobs.known_topology(own_redis.url, name).active == 1
        client.replicaof("NO", "ONE")
        elsewhere.resume()
    queues.wait("mail")
    assert jobs.known_topology(own_redis.url, name).active == 2
    assert queues.condition("mail", "DataLoss")["status"] == "False"


def test_a_secret_that_goes_or_is_spoilt_is_told_while_the_connection_that_works_is_kept(
    queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.secret(redis.url)
    queues.apply("mail")
    queues.wait("mail")
    queues.cluster.delete("v1", "Secret", "headrace-redis", queues.namespace)
    queues.wait("mail", "ConnectionReady", "False", "SecretMissing")
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail", "Ready", "False", "SecretMissing")
    queues.cluster.wait_for(lambda: jobs.known_topology(redis.url, name).active == 2, what="promoted all the same")
    queues.secret(redis.url.replace("redis://", "redis://nobody:wrong-password@"))
    told = queues.wait("mail", "ConnectionReady", "False", "AccessDenied")
    assert "wrong-password" not in str(queues.get("mail"))
    assert told["message"]
    queues.secret(redis.url)
    queues.wait("mail")


def snapshot(server: RedisServer) -> dict[bytes, bytes]:
    with closing(server.client()) as client:
        return {key: client.dump(key) for key in client.scan_iter(count=1000) if client.type(key) != b"none"}


def restore(server: RedisServer, data: dict[bytes, bytes]) -> None:
    """Become a replica that was promoted without the last writes."""
    with closing(server.client()) as client, client.pipeline(transaction=True) as pipe:
        pipe.flushall()
        for key, value in data.items():
            pipe.restore(key, 0, value)
        pipe.execute()


def test_V13_a_failover_that_forgets_a_promotion_is_promoted_forward_again(
    queues: Queues, own_redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", connection={"url": own_redis.url})
    queues.wait("mail")
    jobs.put(own_redis.url, name, ["old"])
    stale = snapshot(own_redis)
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    before = jobs.known_topology(own_redis.url, name)
    restore(own_redis, stale)
    queues.cluster.wait_for(lambda: jobs.known_topology(own_redis.url, name).active == 2, what="v2 again")
    after = jobs.known_topology(own_redis.url, name)
    assert after.epoch > before.epoch
    assert (after.highest, after.partitions, after.draining) == (2, 8, (1,))
    assert jobs.on_store(own_redis.url, lambda store: jobs.work_off(store, name, 1)) == 1
    queues.wait("mail", "Draining", "False")
    queues.wait("mail")
    assert queues.condition("mail", "DataLoss")["status"] == "False"


def test_V13_in_a_cluster_the_topology_alone_is_forgotten_and_asserted_from_what_is_known(queues: Queues) -> None:
    name = queues.queue_name("mail")
    servers = RedisClusterServers("valkey")
    servers.start()
    try:
        key = f"{{headrace:{name}}}:topology"
        queues.apply("mail", connection={"url": servers.url})
        queues.wait("mail")
        with closing(servers.node(key)) as holder:
            stale = holder.get(key)
            jobs.put(servers.url, name, ["old"])
            queues.patch("mail", version=2, partitions=8)
            queues.wait("mail")
            before = jobs.known_topology(servers.url, name)
            # The partitions lie with other primaries, which have lost nothing.
            holder.set(key, stale)
        queues.cluster.wait_for(lambda: jobs.known_topology(servers.url, name).active == 2, what="v2 again")
        after = jobs.known_topology(servers.url, name)
        assert after.epoch > before.epoch
        assert (after.partitions, after.draining) == (8, (1,))
        jobs.put(servers.url, name, ["new"])
        assert jobs.on_store(servers.url, lambda store: jobs.work_off(store, name, 1)) == 1
        assert jobs.on_store(servers.url, lambda store: jobs.work_off(store, name, 2)) == 1
    finally:
        servers.close()
