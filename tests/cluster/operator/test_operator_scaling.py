"""Workers that come and go with the jobs: a real operator, real Pods, real jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace.producer import JobSpec
from headrace.stores.base import WorkerEntry
from headrace.sync_producer import SyncProducer
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import APPS, REPOSITORY, ROOT_APP, Queues, idle_workers, workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


class Fleet:
    """The workers of a Queue ``mail``, as seen from outside."""

    def __init__(self, cluster: LocalCluster, queues: Queues, redis: RedisServer) -> None:
        self.cluster = cluster
        self.queues = queues
        self.url = redis.url
        self.queue = queues.queue_name("mail")
        self.deployment = "mail-workers"

    def replicas(self) -> int:
        found = self.cluster.get(APPS, "Deployment", self.deployment, self.queues.namespace)
        return int(found["spec"]["replicas"]) if found is not None else -1

    def pods(self) -> dict[str, Object]:
        """Worker Pods that are not stopping, by name."""
        found = self.cluster.objects("v1", "Pod", self.queues.namespace)
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def wait(self, what: Callable[[], object], text: str, deadline: float = 60) -> None:
        self.cluster.wait_for(what, deadline, what=text)

    def wait_replicas(self, number: int, deadline: float = 60) -> None:
        self.wait(lambda: self.replicas() == number, f"{number} replicas", deadline)

    def put(self, *names: str, kind: str = "count", delay: float | None = None) -> None:
        with SyncProducer(self.url) as producer:
            producer.enqueue_many(self.queue, [JobSpec(kind, None, id=name, delay=delay) for name in names])

    def runs(self) -> dict[str, int]:
        return jobs.runs(self.url, self.queue)

    def entries(self) -> list[WorkerEntry]:
        return jobs.on_store(self.url, lambda store: store.workers(self.queue))

    def holders(self) -> dict[str, int]:
        """Jobs in flight by Pod, as the workers say."""
        return {entry.beat.pod: entry.beat.in_flight for entry in self.entries()}

    def messages(self, reason: str = "Scaled") -> list[str]:
        found = self.cluster.objects("v1", "Event", self.queues.namespace)
        return [event["message"] for event in found if event["reason"] == reason]


class Stream:
    """Jobs of a third of a second, four in each second, for as long as the block lasts: two slots are busy."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0

    def names(self) -> list[str]:
        return [f"nap-{number}" for number in range(self.sent)]

    def _send(self) -> None:
        with SyncProducer(self._fleet.url) as producer:
            while not self._ended.wait(0.25):
                producer.enqueue_many(self._fleet.queue, [JobSpec("nap", None, id=f"nap-{self.sent}")])
                self.sent += 1

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def fleet(cluster: LocalCluster, queues: Queues, redis: RedisServer) -> Fleet:
    return Fleet(cluster, queues, redis)


@pytest.mark.timeout(500)
def test_O18_O20_QG6_QG7_from_zero_to_eight_and_back_under_load_without_breaking_a_job_off(
    queues: Queues, fleet: Fleet
) -> None:
    scaling = {"maxReplicas": 8, "targetWaitSeconds": 1, "idleSeconds": 2}
    queues.apply("mail", workers=workers(concurrency=2), scaling=scaling, timeoutSeconds=600)
    queues.wait("mail")
    fleet.wait_replicas(0)
    assert fleet.pods() == {}
    assert queues.wait("mail", "WorkersAvailable")["reason"] == "ScaledToZero"

    held = [f"held-{n}" for n in range(20)]
    fleet.put(*held, kind="held")
    fleet.wait_replicas(8)
    fleet.wait(lambda: any("mail-workers: 0 -> " in message for message in fleet.messages()), "its Event")
    queues.wait("mail", "ScalingLimited", "True", "MaxReplicas")
    fleet.wait(lambda: queues.status("mail").get("lastScaleTime"), "its time")
    fleet.wait(lambda: sorted(fleet.holders().values()) == [2] * 8, "two jobs in each Pod", 120)

    # Fewer are needed, and jobs are run all the time: which Pods take them is nobody's choice.
    before = fleet.holders()
    jobs.let_go(fleet.url, fleet.queue, *held[1:])
    with Stream(fleet) as stream:
        fleet.wait_replicas(2, 250)
        fleet.wait(lambda: len(fleet.pods()) == 2, "two Pods")
    # One job goes on for as long as it likes: its worker is the last one, whatever the others do.
    fleet.wait(lambda: len(fleet.runs()) == 19 + stream.sent, "all jobs but one done")
    fleet.wait_replicas(1, 200)
    fleet.wait(lambda: [pod for pod, jobs_held in fleet.holders().items() if jobs_held], "who holds the last one")
    (survivor,) = fleet.pods()
    assert {pod for pod, jobs_held in fleet.holders().items() if jobs_held} == {survivor}
    assert survivor in before
    jobs.let_go(fleet.url, fleet.queue, held[0])
    fleet.wait_replicas(0, 200)
    # Until it has ended, the last worker may well take a job.
    fleet.wait(lambda: fleet.cluster.objects("v1", "Pod", queues.namespace) == [], "no Pod left")
    # Every job ran once, none was begun a second time, no lease ended, and nothing is left.
    assert set(fleet.runs().values()) == {1}
    assert set(fleet.runs()) == {f"{name}@v1" for name in (*held, *stream.names())}
    assert jobs.starts(fleet.url, fleet.queue) == 20 + stream.sent
    refs = jobs.known_topology(fleet.url, fleet.queue).refs(1)
    surveys = jobs.on_store(fleet.url, lambda store: store.survey(refs))
    assert sum(survey.growth.expired for survey in surveys) == 0
    assert [survey.counts.nonempty() for survey in surveys] == [{}] * len(surveys)

    fleet.put("again")
    fleet.wait_replicas(1)
    fleet.wait(lambda: fleet.runs().get("again@v1") == 1, "the job that woke it", 90)


@pytest.mark.timeout(200)
def test_QC7_a_delayed_job_finds_a_worker_that_has_started(queues: Queues, fleet: Fleet) -> None:
    queues.apply("mail", workers=workers(), scaling={"keepWarmSeconds": 30})
    queues.wait("mail")
    fleet.put("later", delay=45)
    fleet.wait_replicas(0, 10)
    fleet.wait_replicas(1, 60)
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
    queues.wait("mail", "WorkersAvailable", deadline=90)
    fleet.wait(lambda: len(fleet.entries()) == 4, "four workers")
    fleet.put("held-0", "held-1", kind="held")
    fleet.wait(lambda: sorted(fleet.holders().values()) == [0, 0, 1, 1], "two busy workers", 90)
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
    fleet.wait(lambda: any("0 -> 1 replicas" in message for message in fleet.messages()), "the first Pod", 30)
    fleet.wait_replicas(4, 90)
    queues.wait("mail", "ScalingActive", "True")
    jobs.let_go(fleet.url, fleet.queue, *(f"held-{n}" for n in range(8)))
    fleet.wait(lambda: len(fleet.runs()) == 8, "all jobs", 90)


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
    fleet.wait(lambda: "ScaleTargetTaken" in queues.events("also"), "its Event")
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

    fleet.wait(overwritten, "the writer to be named", 120)
    fleet.wait(lambda: "ConflictingWriter" in queues.events("mail"), "its Event")


@pytest.mark.timeout(200)
def test_O20_a_job_that_came_while_the_operator_was_away_is_found_when_it_is_back(
    cluster: LocalCluster, queues: Queues, fleet: Fleet, operator: OperatorProcess
) -> None:
    queues.apply("mail", workers=idle_workers(), scaling={})
    queues.wait("mail")
    fleet.wait_replicas(0, 10)
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
    fleet.wait_replicas(0, 10)
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
    fleet.wait_replicas(0, 10)
    queues.patch("mail", paused=False)
    queues.wait_versions("mail", {1: "Completed", 2: "Active"}, 90)
    assert fleet.runs() == {f"job-{n}@v1": 1 for n in range(8)}
