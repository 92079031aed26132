"""Every way to reach a Redis, through the operator and its workers: from the Secret to a version that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.producer import JobSpec
from headrace.redis.permissions import rule
from headrace.sync_producer import SyncProducer
from tests.cluster.cluster import LocalCluster
from tests.cluster.guard import Guard
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, workers
from tests.services.redis import RedisServer
from tests.services.redis_access import Login, Tls
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_sentinel import SentinelServers

APPLICATION = Login("app:li/cation", "p@ss:w/o?r#d%&+ [1]")
"""May do what `headrace acl` says, and nothing else; name and password have whatever a URL must escape."""


@pytest.fixture(params=["acl-tls", "cluster", "sentinel-tls"])
def url(request: pytest.FixtureRequest, tmp_path: Path, process_guard: Guard) -> Iterator[str]:
    """The URL of a set-up with a login, two of them with TLS and an authority of their own."""
    tls = Tls.made(tmp_path, "127.0.0.1")
    with ExitStack() as stack:
        if request.param == "acl-tls":
            server = stack.enter_context(RedisServer("redis", login=Login("admin", "admin"), tls=tls))
            with server.client() as client:
                client.execute_command(
                    *("ACL", "SETUSER", APPLICATION.user, "reset", "on", f">{APPLICATION.password}"), *rule("headrace")
                )
            yield server.url_of(APPLICATION)
        elif request.param == "cluster":
            cluster = RedisClusterServers("valkey", login=APPLICATION, guard=process_guard)
            stack.callback(cluster.close)
            cluster.start()
            yield cluster.url
        else:
            sentinels = SentinelServers("redis", login=APPLICATION, tls=tls, guard=process_guard)
            stack.callback(sentinels.close)
            sentinels.start()
            yield sentinels.url


@pytest.mark.timeout(420)
def test_a_queue_lives_on_every_kind_of_redis_from_its_secret_to_a_version_that_ends(
    cluster: LocalCluster, operator: OperatorProcess, queues: Queues, url: str
) -> None:
    name = queues.queue_name("mail")
    queues.secret(url)
    queues.apply("mail", partitions=2, workers=workers(), scaling={"mode": "Manual", "replicas": 1})
    queues.wait("mail", deadline=90)
    assert queues.condition("mail", "ConnectionReady")["status"] == "True"
    with SyncProducer(url) as producer:
        producer.enqueue_many(name, [JobSpec("nothing", None, id=f"job-{number}") for number in range(20)])
    queues.patch("mail", version=2, partitions=3)
    queues.wait_versions("mail", {1: "Completed", 2: "Active"}, deadline=120)
    topology = jobs.known_topology(url, name)
    assert (topology.active, topology.partitions, topology.older) == (2, 3, ())
    left = jobs.on_store(url, lambda store: store.counts(topology.refs(2)))
    assert sum(count.live + count.dead for count in left) == 0
    # Nothing of the login is told, wherever people look.
    password = APPLICATION.password
    told = [str(queues.get("mail")), str(cluster.objects("v1", "Event", queues.namespace)), operator.log.read_text()]
    assert not any(password in text or APPLICATION.in_url in text for text in told)
