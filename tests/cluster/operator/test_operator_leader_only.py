"""Leaders of worker Pods: who runs the jobs of a queue of mode LeaderOnly, by which lock, and with which rights."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from redis import Redis

from headrace.leadership.overview import read_leader
from tests.cluster.cluster import LocalCluster
from tests.cluster.guard import Guard
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, workers
from tests.cluster.rest import Object
from tests.services.mongo import FerretServer
from tests.services.redis import RedisServer

LEASE = "coordination.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
pytestmark = pytest.mark.usefixtures("operator")
HEADRACE = Path(sys.executable).with_name("headrace")
FAST: dict[str, Any] = {"leaderElection": {"profile": "fast"}, "leaseSeconds": 2}


class Note(NamedTuple):
    """That a job began: under which epoch the process led (None: it did not), and which process it was."""

    epoch: int | None
    process: str
    job: str


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def pods(number: int) -> dict[str, Any]:
    """``number`` Pods, each of them for one job at a time."""
    return {"workers": workers(concurrency=1), "scaling": {"mode": "Manual", "replicas": number}}


def available(queues: Queues, name: str = "mail") -> None:
    queues.wait(name, "WorkersAvailable", "True", "Available")


def notes(redis: RedisServer, queue: str) -> list[Note]:
    """What the jobs of type ``led`` have noted, in the order in which they began."""
    with Redis.from_url(redis.url, decode_responses=True) as connection:
        lines = connection.lrange(f"led:{queue}", 0, -1)
        assert isinstance(lines, list)
    split = (line.split() for line in lines)
    return [Note(None if epoch == "None" else int(epoch), process, job) for epoch, process, job in split]


def shown(redis: RedisServer, queue: str) -> dict[str, Any]:
    """What `headrace leader show` shows."""
    command = [str(HEADRACE), "leader", "show", queue, "--output=json", f"--redis-url={redis.url}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def leader(queues: Queues, name: str = "mail", backend: str = "lease", other_than: str = "") -> Object:
    """Wait until the status tells of a leader by that lock, other than a former one; returns it."""

    def told() -> Object | None:
        found: Object = queues.status(name).get("leader") or {}
        right = found.get("backend") == backend and found["holder"] != other_than
        return found if right else None

    return queues.cluster.wait_for(told, what=f"a leader of {name} by {backend}, not {other_than!r}")


def lock(redis: RedisServer, queue: str) -> str:
    """The lock by which somebody leads, as Redis knows it; empty if nobody does."""
    found = jobs.on_store(redis.url, lambda store: read_leader(store, queue))
    return "" if found is None else found.backend


def pod_of(holder: str) -> str:
    """The Pod of a worker process."""
    return holder.rpartition("-")[0]


def ran(redis: RedisServer, queue: str) -> set[str]:
    return {name.partition("@")[0] for name in jobs.runs(redis.url, queue)}


def in_turns(noted: list[Note]) -> None:
    """Jobs began in processes that led, one process under each epoch, and one epoch after the other."""
    assert [note for note in noted if note.epoch is None] == []
    epochs = [note.epoch or 0 for note in noted]
    assert epochs == sorted(epochs)
    assert len({(note.epoch, note.process) for note in noted}) == len(set(epochs))


@pytest.mark.timeout(300)  # two leaders are missed for as long as their profile takes
def test_L6_L7_L9_only_the_leader_of_the_pods_runs_jobs_and_a_killed_or_frozen_one_is_followed(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", mode="LeaderOnly", **pods(3), **FAST)
    available(queues)
    first = leader(queues)
    queues.wait("mail", "LeaderElected", "True", "Leading")
    # Three say the same: the status, the Lease, and what is in Redis.
    lease = cluster.get(LEASE, "Lease", "mail-workers", queues.namespace)
    assert lease is not None
    assert lease["spec"]["holderIdentity"].startswith(first["holder"])
    seen = shown(redis, name)
    assert (seen["leader"]["worker"], seen["leader"]["backend"]) == (first["holder"], first["backend"])
    assert seen["epoch"] == first["epoch"]
    assert len(seen["standing_by"]) == 2

    jobs.put(redis.url, name, [f"a{number}" for number in range(20)], "led")
    cluster.wait_for(lambda: len(ran(redis, name)) == 20, what="the leader runs the jobs")
    assert {note.process.partition("/")[0] for note in notes(redis, name)} == {pod_of(first["holder"])}

    # Killed while it runs one job, and more wait.
    jobs.put(redis.url, name, ["held-b"], "led", "gated")
    cluster.wait_for(lambda: notes(redis, name)[-1].job == "held-b", what="a job runs")
    jobs.put(redis.url, name, [f"b{number}" for number in range(20)], "led")
    cluster.node.kill(queues.namespace, pod_of(first["holder"]))
    jobs.open_gate(redis.url, name)
    cluster.wait_for(lambda: len(ran(redis, name)) == 41, what="another one runs the rest")
    second = leader(queues, other_than=first["holder"])
    killed = {note.process for note in notes(redis, name) if note.job.startswith("a")}
    assert killed.isdisjoint(note.process for note in notes(redis, name) if note.job.startswith("b"))

    # Frozen while it runs one job, and more wait.
    with Redis.from_url(redis.url) as connection:
        connection.delete(f"gate:{name}")
    jobs.put(redis.url, name, ["held-c"], "led", "gated")
    cluster.wait_for(lambda: notes(redis, name)[-1].job == "held-c", what="a job runs")
    frozen = notes(redis, name)[-1].process
    cluster.node.freeze(queues.namespace, pod_of(second["holder"]))
    try:
        jobs.put(redis.url, name, [f"c{number}" for number in range(20)], "led")
        jobs.open_gate(redis.url, name)
        cluster.wait_for(lambda: notes(redis, name)[-1].process != frozen, what="another one runs jobs")
    finally:
        cluster.node.resume(queues.namespace, pod_of(second["holder"]))
    jobs.put(redis.url, name, [f"d{number}" for number in range(20)], "led")
    expected = {f"{round_}{number}" for round_ in "abcd" for number in range(20)} | {"held-b", "held-c"}
    cluster.wait_for(lambda: ran(redis, name) == expected, what="nothing is lost")
    in_turns(notes(redis, name))
    assert len({note.process for note in notes(redis, name)}) >= 3
    cluster.wait_for(lambda: queues.status("mail")["depth"].get("inFlight") == 0, what="nothing is left")
    queues.wait_events("mail", "LeaderChanged")


def test_the_mode_of_a_live_queue_changes_without_a_restart_and_without_a_loss(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name = queues.queue_name("mail")

    def both_run(round_: str) -> bool:
        """Whether two processes run jobs at a time, which wait for each other."""
        jobs.put(redis.url, name, [f"{round_}{number}" for number in range(2)], "led", "gated")
        held = [f"{round_}0", f"{round_}1"]
        cluster.wait_for(lambda: {note.job for note in notes(redis, name)} >= set(held), what="two jobs run at a time")
        return len({note.process for note in notes(redis, name) if note.job in held}) == 2

    queues.apply("mail", **pods(2), **FAST)
    available(queues)
    leader(queues)
    generation = queues.deployment("mail")["metadata"]["generation"]
    assert both_run("a")
    # Two jobs run: that of the follower ends where it is, and only the leader begins others.
    queues.patch("mail", mode="LeaderOnly")
    queues.wait("mail", "LeaderElected", "True", "Leading")
    jobs.open_gate(redis.url, name)
    cluster.wait_for(lambda: len(ran(redis, name)) == 2, what="what ran has ended")
    jobs.put(redis.url, name, [f"b{number}" for number in range(20)], "led")
    cluster.wait_for(lambda: len(ran(redis, name)) == 22, what="the leader runs the jobs")
    in_turns([note for note in notes(redis, name) if note.job.startswith("b")])
    with Redis.from_url(redis.url) as connection:
        connection.delete(f"gate:{name}")
    queues.patch("mail", mode="Shared")
    queues.wait("mail")
    assert both_run("c")
    jobs.open_gate(redis.url, name)
    cluster.wait_for(lambda: len(ran(redis, name)) == 24, what="all jobs have run")
    assert set(jobs.runs(redis.url, name).values()) == {1}
    assert queues.deployment("mail")["metadata"]["generation"] == generation


@pytest.fixture
def mongo(process_guard: Guard) -> Iterator[FerretServer]:
    server = FerretServer(process_guard)
    server.start()
    yield server
    server.close()


def token(cluster: LocalCluster, namespace: str, account: str) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(cluster.rest.request("POST", path, request)["status"]["token"])


def status_with(cluster: LocalCluster, bearer: str, method: str, path: str) -> int:
    """Status of a request with a token."""
    authority = ssl.create_default_context(cadata=cluster.control_plane.authority.certificate.decode())
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/merge-patch+json"}
    request = Request(cluster.server + path, b"{}", headers, method=method)
    try:
        with urlopen(request, timeout=30, context=authority) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@pytest.mark.timeout(300)  # a lock of higher rank is trusted again after 10 s, and two operators start
def test_E12_LE8_workers_reach_one_lease_only_and_go_on_through_mongodb_when_that_right_is_taken(
    queues: Queues, redis: RedisServer, cluster: LocalCluster, operator: OperatorProcess, mongo: FerretServer
) -> None:
    name, namespace = queues.queue_name("mail"), queues.namespace
    queues.secret(mongo.url, "mongo")
    election = {"profile": "fast", "leaseName": "mail-leader", "mongo": {"secretRef": {"name": "mongo"}}}
    queues.apply("mail", mode="LeaderOnly", **pods(1), leaderElection=election)
    available(queues)
    leader(queues)
    bearer = token(cluster, namespace, "mail-workers")
    leases = f"/apis/{LEASE}/namespaces/{namespace}/leases"
    refused = [
        *(("GET", leases), ("DELETE", f"{leases}/mail-leader"), ("PATCH", f"{leases}/mail-leader")),
        *(("POST", leases), ("GET", f"{leases}/another"), ("GET", f"/apis/{LEASE}/namespaces/kube-system/leases/x")),
        *(("GET", f"/api/v1/namespaces/{namespace}/{plural}") for plural in ("pods", "secrets", "configmaps")),
        ("GET", f"/apis/{RBAC}/namespaces/{namespace}/roles/mail-workers"),
        ("GET", f"/apis/headrace.dev/v1alpha1/namespaces/{namespace}/queues/mail"),
    ]
    assert status_with(cluster, bearer, "GET", f"{leases}/mail-leader") == 200
    assert {status_with(cluster, bearer, *each) for each in refused} == {403}

    # Somebody takes the right away, and no operator is there to give it back.
    operator.kill()
    try:
        cluster.delete(RBAC, "RoleBinding", "mail-workers", namespace)
        cluster.wait_for(lambda: lock(redis, name) == "mongo", what="it leads by MongoDB")
        jobs.put(redis.url, name, ["a"])
        cluster.wait_for(lambda: ran(redis, name) == {"a"}, what="jobs go on")
    finally:
        operator.start()
    (pod,) = cluster.pods(namespace)
    log = cluster.logs(namespace, pod["metadata"]["name"])
    lines = [line for line in log.splitlines() if "403" in line]
    assert 0 < len(lines) <= 3, log  # once a minute
    for words in (
        f"Lease {namespace}/mail-leader",
        f"system:serviceaccount:{namespace}:mail-workers",
        "leases",
        "grant the service account get and update on this Lease",
    ):
        assert words in lines[0]
    leader(queues, backend="mongo")
    queues.patch("mail", timeoutSeconds=20)  # the operator looks at everything again
    cluster.wait_for(lambda: lock(redis, name) == "lease", what="it leads by the Lease again")
    assert cluster.get(RBAC, "RoleBinding", "mail-workers", namespace) is not None


@pytest.mark.timeout(400)
def test_E12_a_right_that_is_taken_away_or_turned_elsewhere_is_given_back_in_about_a_minute(
    queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    name, namespace = queues.queue_name("mail"), queues.namespace
    queues.apply("mail", mode="LeaderOnly", **pods(1), **FAST)
    available(queues)
    leader(queues)
    bound = cluster.get(RBAC, "RoleBinding", "mail-workers", namespace)
    assert bound is not None

    def given_back() -> bool:
        found = cluster.get(RBAC, "RoleBinding", "mail-workers", namespace)
        return bool(found and found["metadata"]["uid"] != uid and found["roleRef"] == bound["roleRef"])

    # Taken away: the worker leads by another lock, and that is what the operator notices.
    uid = bound["metadata"]["uid"]
    cluster.delete(RBAC, "RoleBinding", "mail-workers", namespace)
    cluster.wait_for(given_back, 150, what="the RoleBinding")
    cluster.wait_for(lambda: lock(redis, name) == "lease", 90, what="it leads by the Lease again")
    # Turned elsewhere: what a RoleBinding refers to cannot be changed, so it is made anew.
    kept = {key: bound["metadata"][key] for key in ("name", "labels", "annotations", "ownerReferences")}
    turned = {**bound, "metadata": kept, "roleRef": {**bound["roleRef"], "name": "other"}}
    cluster.delete(RBAC, "RoleBinding", "mail-workers", namespace)
    cluster.rest.request("POST", cluster.rest.path(RBAC, "RoleBinding", None, namespace), turned)
    found = cluster.get(RBAC, "RoleBinding", "mail-workers", namespace)
    assert found is not None
    uid = found["metadata"]["uid"]
    cluster.wait_for(given_back, 150, what="the RoleBinding to its Role")
    cluster.wait_for(lambda: lock(redis, name) == "lease", 90, what="it leads by the Lease again")
    assert "ApiRefused" not in queues.events("mail")
