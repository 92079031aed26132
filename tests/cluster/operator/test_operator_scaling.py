"""Workers that come and go with the jobs: a real operator, real Pods, real jobs."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.fleet import Fleet
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import APPS, REPOSITORY, ROOT_APP, Queues, idle_workers, workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


@pytest.fixture
def fleet(cluster: LocalCluster, queues: Queues, redis: RedisServer) -> Fleet:
    return Fleet(cluster, queues, redis)


@pytest.mark.timeout(200)
def test_QC7_a_delayed_job_finds_a_worker_that_has_started(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=workers(), scaling={"keepWarmSeconds": 30})
    queues.wait("mail")
    fleet.put("later", delay=45)
    fleet.wait_replicas(0)
    fleet.wait_replicas(1)
    assert fleet.runs() == {}
    fleet.wait(lambda: fleet.runs() == {"later@v1": 1}, "the delayed job")


def test_E3_a_paused_queue_gets_no_worker_until_it_is_resumed(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=idle_workers(concurrency=1), scaling={}, paused=True)
    queues.wait("mail")
    queues.wait("mail", "Paused")
    fleet.put(*(f"job-{n}" for n in range(500)))
    # As many looks as an enqueue and a sweep lead to; each of them would have added workers.
    queues.wait("mail", "ScalingLimited", "True", "Hold")
    assert fleet.replicas() == 0
    queues.patch("mail", paused=False)
    fleet.wait_replicas(10)


def test_min_replicas_are_there_without_a_job_and_follow_the_spec(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={"minReplicas": 2})
    fleet.wait_replicas(2)
    queues.wait("mail", "ScalingLimited", "True", "MinReplicas")
    assert queues.wait("mail", "ScalingActive")["reason"] == "Scaling"
    queues.patch("mail", scaling={"minReplicas": 3})
    fleet.wait_replicas(3)
    queues.patch("mail", scaling={"minReplicas": 0, "maxReplicas": 1})
    fleet.wait_replicas(1)
    fleet.wait(lambda: any("scaling.maxReplicas is 1" in message for message in fleet.messages()), "its Event")


@pytest.mark.timeout(200)
def test_QG6_who_scales_by_hand_stops_the_idle_pods(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=workers(concurrency=1), scaling={"mode": "Manual", "replicas": 4})
    queues.wait("mail", "WorkersAvailable")
    fleet.wait(lambda: len(fleet.entries()) == 4, "four workers")
    fleet.put("held-0", "held-1", kind="held")
    fleet.wait(lambda: sorted(fleet.holders().values()) == [0, 0, 1, 1], "two busy workers")
    busy = {pod for pod, held in fleet.holders().items() if held}
    fleet.cluster.kubectl("scale", "queue/mail", "--replicas=2", "--namespace", queues.namespace)
    fleet.wait_replicas(2)
    fleet.wait(lambda: len(fleet.pods()) == 2, "two Pods")
    assert set(fleet.pods()) == busy
    jobs.let_go(fleet.url, fleet.queue, "held-0", "held-1")
    fleet.wait(lambda: fleet.runs() == {"held-0@v1": 1, "held-1@v1": 1}, "both jobs, once each")


@pytest.mark.timeout(200)
def test_a_deployment_of_the_user_is_scaled_by_what_its_workers_say(queues: Queues, fleet: Fleet) -> None:
    fleet.deployment = "theirs"
    variables = {"PYTHONPATH": REPOSITORY, "HEADRACE_QUEUES": fleet.queue, "HEADRACE_REDIS_URL": fleet.url,
                 "HEADRACE_CONCURRENCY": "2", "HEADRACE_HEALTH_PORT": "8080"}  # fmt: skip
    env: list[Object] = [{"name": name, "value": value} for name, value in variables.items()]
    env += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP"))
    ]
    probe = {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}
    container = {"name": "w", "image": "x", "command": ["headrace", "worker", "run", ROOT_APP], "env": env}
    template = {
        "metadata": {"labels": {"app": "theirs"}},
        "spec": {"containers": [{**container, "readinessProbe": probe}], "terminationGracePeriodSeconds": 5},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "theirs"}}, "template": template}
    body = {"apiVersion": APPS, "kind": "Deployment", "metadata": {"name": "theirs"}, "spec": spec}
    fleet.cluster.apply(body, namespace=queues.namespace)
    scaling = {"maxReplicas": 4, "targetWaitSeconds": 1}
    queues.apply("mail", workers={"scaleTargetRef": {"name": "theirs"}}, scaling=scaling, timeoutSeconds=600)
    queues.wait("mail")
    fleet.put(*(f"held-{n}" for n in range(8)), kind="held")
    # One, since nobody knows what one can do; when it says so, as many as that asks for.
    fleet.wait(lambda: any("0 -> 1 replicas" in message for message in fleet.messages()), "the first Pod")
    fleet.wait_replicas(4)
    queues.wait("mail", "ScalingActive", "True")
    jobs.let_go(fleet.url, fleet.queue, *(f"held-{n}" for n in range(8)))
    fleet.wait(lambda: len(fleet.runs()) == 8, "all jobs")


def test_O28_of_two_queues_that_name_one_deployment_the_second_reports_it_and_follows_when_it_is_free(
    queues: Queues, fleet: Fleet
) -> None:
    fleet.deployment = "theirs"
    labels = {"app": "theirs"}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "w", "image": "x", "command": ["sleep", "600"]}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": APPS, "kind": "Deployment", "metadata": {"name": "theirs"}, "spec": spec}
    fleet.cluster.apply(body, namespace=queues.namespace)
    target = {"scaleTargetRef": {"name": "theirs"}}
    queues.apply("mail", workers=target, scaling={"mode": "Manual", "replicas": 1})
    fleet.wait_replicas(1)
    fleet.wait(lambda: queues.status("mail").get("scaleTarget") == "theirs", "what it scales")
    queues.apply("also", workers=target, scaling={"minReplicas": 3})
    told = queues.wait("also", "ScalingActive", "False", "ScaleTargetTaken")
    assert "Deployment theirs is scaled by Queue mail" in told["message"]
    queues.wait("also")
    queues.wait_events("also", "ScaleTargetTaken")
    assert fleet.replicas() == 1
    queues.wait("mail", "ScalingActive", "True")
    queues.delete("mail")
    queues.gone("mail")
    queues.annotate("also", example="look")
    fleet.wait_replicas(3)
    queues.wait("also", "ScalingActive", "True")


@pytest.mark.timeout(200)
def test_O29_a_tool_that_writes_replicas_over_and_over_is_named(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={"minReplicas": 2})
    fleet.wait_replicas(2)
    path = fleet.cluster.rest.path(APPS, "Deployment", "mail-workers", queues.namespace)

    def overwritten() -> bool:
        if fleet.replicas() == 2:
            fleet.cluster.rest.request(
                "PATCH", f"{path}?fieldManager=argocd-controller", {"spec": {"replicas": 1}},
                content_type="application/merge-patch+json",
            )  # fmt: skip
        condition = queues.condition("mail", "ScalingActive")
        return bool(condition["reason"] == "ConflictingWriter" and "argocd-controller" in condition["message"])

    fleet.wait(overwritten, "the writer to be named")
    queues.wait_events("mail", "ConflictingWriter")


@pytest.mark.timeout(200)
def test_O20_a_job_that_came_while_the_operator_was_away_is_found_when_it_is_back(
    cluster: LocalCluster, queues: Queues, fleet: Fleet, operator: OperatorProcess
) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={})
    queues.wait("mail")
    fleet.wait_replicas(0)
    operator.kill()
    try:
        fleet.put("a")
        assert fleet.replicas() == 0
    finally:
        operator.start()
    fleet.wait_replicas(1)


@pytest.mark.timeout(200)
def test_O12_a_redis_that_is_away_lowers_nothing_and_falls_back_upward(
    cluster: LocalCluster, queues: Queues, fleet: Fleet, own_redis: RedisServer
) -> None:
    queues.secret(own_redis.url, "own")
    connection = {"secretRef": {"name": "own"}}
    fallback = {"failureThreshold": 2, "replicas": 2}
    queues.apply("mail", workers=idle_workers(), connection=connection, scaling={"fallback": fallback})
    queues.wait("mail")
    fleet.wait_replicas(0)
    own_redis.stop()
    fleet.wait_replicas(2)
    queues.wait("mail", "ScalingActive", "False", "MetricsUnknown")
    queues.wait("mail", "ConnectionReady", "False")
    assert queues.status("mail")["replicas"] >= 0


@pytest.mark.timeout(200)
def test_O44_a_draining_version_without_workers_gets_one_until_it_is_drained(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=workers(), scaling={}, paused=True)
    queues.wait("mail")
    fleet.put(*(f"job-{n}" for n in range(8)))
    queues.patch("mail", version=2, partitions=2)
    queues.wait("mail")
    fleet.wait_replicas(0)
    queues.patch("mail", paused=False)
    queues.wait_versions("mail", {1: "Completed", 2: "Active"}, 90)
    assert fleet.runs() == {f"job-{n}@v1": 1 for n in range(8)}
