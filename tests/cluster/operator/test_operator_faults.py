"""An API server that stops, overloads, conflicts, or answers with yesterday's news."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from tests.cluster.api_proxy import ApiProxy, conflicts, frozen_copy, throttled
from tests.cluster.certificates import tls_context
from tests.cluster.cluster import LocalCluster
from tests.cluster.control_plane import API_SERVER
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, Queues, idle_workers
from tests.cluster.ports import free_ports
from tests.cluster.rest import Object
from tests.services.redis import RedisServer


class Behind:
    """An operator for one namespace that reaches the API server through a proxy."""

    def __init__(self, cluster: LocalCluster, namespace: str, folder: Path) -> None:
        plane = cluster.control_plane
        admin = plane.authority.client("admin", "system:masters")
        self.proxy = ApiProxy(plane.server, tls_context(plane.authority, admin, server=False))
        self._cluster, self._namespace, self._folder = cluster, namespace, folder
        self.port = free_ports(1)[0]
        self.running: OperatorProcess

    def operator(self) -> OperatorProcess:
        return OperatorProcess(
            self._cluster,
            self._folder / "operator.log",
            KUBECONFIG=str(self.proxy.kubeconfig(self._folder / "proxy.kubeconfig")),
            HEADRACE_WATCH_NAMESPACES=self._namespace,
            HEADRACE_HEALTH_PORT=str(self.port),
            HEADRACE_LIST_SECONDS="5",
            HEADRACE_SILENT_SECONDS="2",
        )

    def health(self) -> tuple[int, Object]:
        answer = urllib3.request("GET", f"http://127.0.0.1:{self.port}/healthz", timeout=10, retries=False)
        return answer.status, answer.json()


@pytest.fixture
def behind(cluster: LocalCluster, installed: str, namespace: str, tmp_path: Path) -> Iterator[Behind]:
    made = Behind(cluster, namespace, tmp_path)
    with made.proxy, made.operator() as made.running:
        yield made


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def queue_path(queues: Queues, name: str) -> str:
    return queues.cluster.rest.path(API, "Queue", name, queues.namespace)


def test_O41_a_watch_that_went_silent_fails_the_probe_and_a_list_finds_what_it_lost(
    behind: Behind, queues: Queues, cluster: LocalCluster
) -> None:
    queues.apply("mail")
    queues.wait("mail")
    cluster.wait_for(lambda: behind.health()[0] == 200, what="healthy")
    behind.proxy.faults.frozen = True
    queues.patch("mail", leaseSeconds=77)
    queues.wait("mail", deadline=30)  # by the next list
    status, facts = cluster.wait_for(lambda: found if (found := behind.health())[0] == 503 else None, what="the probe")
    assert status == 503
    assert "the watch of Queues has not delivered" in facts["problem"]
    behind.proxy.faults.frozen = False
    behind.proxy.cut()
    cluster.wait_for(lambda: behind.health()[0] == 200, what="healthy again with a new stream")
    queues.patch("mail", leaseSeconds=78)
    queues.wait("mail")


def test_a_storm_of_conflicts_is_met_by_few_tries_and_ends_well(behind: Behind, queues: Queues) -> None:
    queues.apply("mail")
    queues.wait("mail")
    began = time.monotonic()
    behind.proxy.faults.answer = conflicts(lambda method, path: method == "PATCH" and path.endswith("/status"), 12)
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    tries = [request.at for request in behind.proxy.requests(began) if request.status == 409]
    assert len(tries) == 12
    # At most six in one pass, and passes a second and more apart.
    assert len([at for at in tries if at - tries[0] < 0.5]) <= 6
    assert queues.versions("mail") == {1: "Completed", 2: "Active"} or queues.versions("mail")[2] == "Active"


def test_an_overloaded_server_gets_the_pauses_that_it_asks_for_and_a_slow_one_patience(
    behind: Behind, queues: Queues
) -> None:
    queues.apply("mail")
    queues.wait("mail")
    behind.proxy.faults.answer = throttled(3, 2)
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    seen = [request for request in behind.proxy.requests() if request.status == 429]
    assert len(seen) == 3
    last = max(request.at for request in seen)
    # The watch of Deployments waits for itself, 5 s between two tries.
    calls = [request for request in behind.proxy.requests(last) if not request.path.endswith("/deployments")]
    assert [request for request in calls if last < request.at < last + 1.9] == []
    behind.proxy.faults.delay = 1.0
    queues.patch("mail", version=3, partitions=2)
    queues.wait("mail")


def test_O40_what_a_stale_answer_hides_is_met_again_as_existing_and_is_ours(
    behind: Behind, queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    versions = queue_path(queues, "").rstrip("/").rpartition("/")[0] + "/queueversions"
    queues.apply("mail", workers=idle_workers())
    queues.wait("mail")
    nothing = {"kind": "QueueVersionList", "apiVersion": API, "metadata": {"resourceVersion": "1"}, "items": []}
    uid = cluster.get(API, "QueueVersion", "mail-v1", queues.namespace)
    assert uid is not None
    # It starts anew, and neither lists nor watches show what is there.
    behind.running.kill()
    behind.proxy.faults.frozen = True
    behind.proxy.faults.answer = frozen_copy(versions, nothing)
    behind.running.start()
    cluster.wait_for(
        lambda: [r for r in behind.proxy.requests() if r.method == "POST" and r.path == versions and r.status == 409],
        what="it meets the QueueVersion that is there",
    )
    behind.proxy.faults.frozen = False
    behind.proxy.faults.answer = None
    queues.wait("mail")
    after = cluster.get(API, "QueueVersion", "mail-v1", queues.namespace)
    assert after is not None
    assert after["metadata"]["uid"] == uid["metadata"]["uid"]
    assert jobs.known_topology(redis.url, name).active == 1


def test_an_answer_from_yesterday_is_not_believed_over_what_the_watch_has_told(
    behind: Behind, queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name, path = queues.queue_name("mail"), queue_path(queues, "mail")
    queues.apply("mail")
    queues.wait("mail")
    old = queues.get("mail")
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    behind.proxy.faults.answer = frozen_copy(path, old)
    began = time.monotonic()
    queues.patch("mail", version=3, partitions=2)
    queues.wait("mail")
    assert [r for r in behind.proxy.requests(began) if r.method == "GET" and r.path == path], "it was read again"
    topology = jobs.known_topology(redis.url, name)
    assert (topology.active, topology.highest) == (3, 3)
    # A new process knows nothing better, writes nothing that contradicts the topology, and is refused by the server.
    behind.running.kill()
    behind.proxy.faults.frozen = True
    lists = path.rpartition("/")[0]
    items = {"kind": "QueueList", "apiVersion": API, "metadata": {"resourceVersion": "1"}, "items": [old]}
    stale = frozen_copy(lists, items)
    behind.proxy.faults.answer = lambda *asked: stale(*asked) or frozen_copy(path, old)(*asked)
    behind.running.start()
    cluster.wait_for(
        lambda: [r for r in behind.proxy.requests(began) if r.method == "PATCH" and r.status == 409],
        what="a status from yesterday is refused",
    )
    topology = jobs.known_topology(redis.url, name)
    assert (topology.active, topology.highest) == (3, 3)
    assert queues.condition("mail", "Ready")["status"] == "True"
    behind.proxy.faults.answer, behind.proxy.faults.frozen = None, False
    behind.proxy.cut()
    queues.patch("mail", leaseSeconds=77)
    queues.wait("mail")


def test_an_api_server_that_was_gone_finds_the_operator_at_work(
    cluster: LocalCluster, installed: str, namespace: str, redis: RedisServer, tmp_path: Path
) -> None:
    queues = Queues(cluster, namespace)
    with OperatorProcess(cluster, tmp_path / "operator.log", HEADRACE_WATCH_NAMESPACES=namespace):
        queues.apply("mail", workers=idle_workers())
        queues.wait("mail")
        jobs.put(redis.url, queues.queue_name("mail"), ["a"])
        cluster.control_plane.stop_component(API_SERVER, grace=0)
        try:
            time.sleep(2)  # it finds nobody several times
        finally:
            cluster.control_plane.start_component(API_SERVER)
        queues.patch("mail", version=2, partitions=8)
        queues.wait("mail")
        assert jobs.known_topology(redis.url, queues.queue_name("mail")).active == 2
        assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, queues.queue_name("mail"), 1)) == 1
        queues.wait("mail", "Draining", "False")
