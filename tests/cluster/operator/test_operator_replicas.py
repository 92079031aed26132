"""Several operators at once, and operators that are killed: one works at a time, and another goes on."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, idle_workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

LEASES = "coordination.k8s.io/v1"


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


class Replicas:
    """Two operators for one namespace that campaign for one Lease in it."""

    def __init__(self, cluster: LocalCluster, namespace: str, folder: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        environment = {
            "HEADRACE_LEADER_ELECTION": "fast",
            "HEADRACE_LEASE_NAME": "operators",
            "HEADRACE_LEASE_NAMESPACE": namespace,
            "HEADRACE_WATCH_NAMESPACES": namespace,
        }
        names = ("one", "two")
        self.all = {
            name: OperatorProcess(cluster, folder / f"{name}.log", POD_NAME=name, **environment) for name in names
        }

    def lease(self) -> Object:
        found = self.cluster.get(LEASES, "Lease", "operators", self.namespace)
        if found is None:
            raise LookupError("no Lease yet")
        return found

    def holder(self) -> str:
        """Name of the operator that holds the Lease, "" if it is free."""
        return str(self.lease()["spec"].get("holderIdentity", "")).partition("_")[0]

    def leader(self, *, other_than: str = "") -> str:
        """Wait until somebody leads; its name."""
        return self.cluster.wait_for(
            lambda: holder if (holder := self.holder()) not in ("", other_than) else None, what="a leader"
        )


@pytest.fixture
def replicas(cluster: LocalCluster, installed: str, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    both = Replicas(cluster, namespace, tmp_path)
    with ExitStack() as running:
        for operator in both.all.values():
            running.enter_context(operator)
        yield both


def test_K3_of_two_operators_one_works_and_the_other_takes_over_when_it_ends_or_dies(
    replicas: Replicas, queues: Queues, redis: RedisServer
) -> None:
    name = queues.queue_name("mail")
    first = replicas.leader()
    queues.apply("mail", workers=idle_workers())
    queues.wait("mail")
    jobs.put(redis.url, name, ["a", "b"])
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    (second,) = set(replicas.all) - {first}
    assert "leads now" not in replicas.all[second].log.read_text()
    # Creation and one promotion: neither was written twice.
    assert jobs.known_topology(redis.url, name).epoch == 2

    # One that is asked to end hands over at once.
    assert replicas.all[first].stop() == 0
    assert replicas.leader(other_than=first) == second
    queues.patch("mail", version=3, partitions=2)
    queues.wait("mail")
    # One that dies is followed when its Lease has run out.
    replicas.all[first].start()
    replicas.all[second].kill()
    assert replicas.leader(other_than=second) == first
    assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 2
    queues.wait("mail", "Draining", "False")
    queues.wait_versions("mail", {1: "Completed", 2: "Completed", 3: "Active"})
    assert jobs.known_topology(redis.url, name).highest == 3
    replicas.all[second].start()


def test_K3_an_operator_that_loses_its_lease_stops_and_leads_again_later(replicas: Replicas, queues: Queues) -> None:
    first = replicas.leader()
    queues.apply("mail")
    queues.wait("mail")
    (second,) = set(replicas.all) - {first}
    replicas.all[second].stop()
    lease = replicas.lease()["spec"] | {"holderIdentity": "somebody-else", "leaseDurationSeconds": 4}
    replicas.cluster.patch(LEASES, "Lease", "operators", replicas.namespace, {"spec": lease})
    log = replicas.all[first].log
    replicas.cluster.wait_for(lambda: "leads no more" in log.read_text(), what="the leader stops")
    assert replicas.leader(other_than="somebody-else") == first
    queues.patch("mail", version=2, partitions=2)
    queues.wait("mail")
    assert len(re.findall("leads now", log.read_text())) == 2
    replicas.all[second].start()


def test_K3_a_leader_that_is_frozen_writes_nothing_when_it_wakes(replicas: Replicas, queues: Queues) -> None:
    first = replicas.leader()
    queues.apply("mail")
    queues.wait("mail")
    frozen = replicas.all[first]
    frozen.signal(signal.SIGSTOP)
    try:
        second = replicas.leader(other_than=first)
        queues.patch("mail", version=2, partitions=8)
        queues.wait("mail")
        # Until then the other one, which is right to write, has something to tell.
        queues.wait_versions("mail", {1: "Completed", 2: "Active"})
        queues.wait("mail", "Draining", "False")
        before = queues.get("mail")["metadata"]["resourceVersion"]
    finally:
        frozen.signal(signal.SIGCONT)
    replicas.cluster.wait_for(lambda: "leads no more" in frozen.log.read_text(), what="it sees that it lost")
    assert replicas.holder() == second
    managers = queues.get("mail")["metadata"]
    assert managers["resourceVersion"] == before


def test_K2_an_operator_process_that_is_killed_after_every_single_step_converges(
    cluster: LocalCluster, installed: str, queues: Queues, redis: RedisServer, tmp_path: Path
) -> None:
    name, log = queues.queue_name("mail"), tmp_path / "operator.log"
    command = [sys.executable, "-m", "tests.cluster.operator.mortal"]
    queues.apply("mail", workers=idle_workers(), scaling={"mode": "Manual", "replicas": 1})
    with OperatorProcess(cluster, log, command=command, HEADRACE_WATCH_NAMESPACES=queues.namespace):
        queues.wait("mail")
        cluster.wait_for(lambda: queues.deployment("mail")["spec"]["replicas"] == 1, what="a worker")
        jobs.put(redis.url, name, ["a", "b"])
        queues.patch("mail", version=2, partitions=8)
        queues.wait("mail", "Draining", "True")
        assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 2
        queues.wait("mail", "Draining", "False")
        queues.wait_versions("mail", {1: "Completed", 2: "Active"})
        topology = jobs.known_topology(redis.url, name)
        queues.patch("mail", deletionPolicy="Delete")
        cluster.wait_for(lambda: queues.get("mail")["metadata"].get("finalizers"), what="a finalizer")
        queues.delete("mail")
        queues.gone("mail")
    # Promoting 1, promoting 2, removing 1, dropping 1: nothing was written twice.
    assert (topology.epoch, topology.highest) == (4, 2)
    assert jobs.topology(redis.url, name) is None
    killed = re.findall(r"^killed after (\w+) ?(\d*)$", log.read_text(), re.MULTILINE)
    assert [version for step, version in killed if step == "Promote"] == ["1", "2"]
    assert {"CreateQueueVersion", "Provision", "CreateWorkers", "ApplyObject", "Scale", "CloseDrained", "Complete"} <= {
        step for step, _ in killed
    }
