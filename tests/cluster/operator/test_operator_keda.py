"""The real KEDA operator beside ours: it scales by our external scaler, set up as docs/scaling.md shows it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from tests.cluster.cluster import LocalCluster
from tests.cluster.keda import SCALED, Keda
from tests.cluster.operator import jobs
from tests.cluster.operator.queues import Queues, idle_workers, workers
from tests.cluster.rest import Object
from tests.docs.blocks import ROOT, blocks
from tests.integration.keda_client import METRICS_INTERFACE, generated
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")

# Nothing but the push of our scaler can be in time for a test.
NEVER = 3600


@pytest.fixture(scope="module")
def keda(cluster: LocalCluster) -> Iterator[Keda]:
    with Keda(cluster) as running:
        yield running


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def on_the_page(kind: str) -> Object:
    """The object of this kind in the section about KEDA."""
    section = (block.text for block in blocks(ROOT / "docs" / "scaling.md") if "headrace-keda" in block.text)
    (found,) = (body for text in section for body in yaml.safe_load_all(text) if body["kind"] == kind)
    return dict(found)


@pytest.fixture(scope="module")
def scaler(cluster: LocalCluster, installed: str, redis: RedisServer) -> Iterator[str]:
    """The external scaler, one for this Redis, deployed as the page says; its address.

    Pods of the process node share the ports of this machine, and there are no addresses of Services: it listens on its
    Pod's address only, and is called there.
    """
    deployment = on_the_page("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["env"] += [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HEADRACE_KEDA_ADDRESS", "value": "$(POD_IP):9090"},
    ]
    with cluster.namespace("scaler") as namespace:
        Queues(cluster, namespace).secret(redis.url)
        cluster.apply([deployment, on_the_page("Service")], namespace=namespace)
        where = ("--namespace", namespace)
        cluster.kubectl("wait", "--for=condition=Available", "--timeout=110s", "deployment/headrace-keda", *where)
        (pod,) = cluster.pods(namespace, labels="app=headrace-keda")
        yield f"{pod['status']['podIP']}:9090"


class Emails:
    """The Queue ``emails`` and the ScaledObject of the page, for its workers."""

    def __init__(self, queues: Queues, keda: Keda, scaler: str, redis: RedisServer) -> None:
        self.queues = queues
        self.cluster = queues.cluster
        self.queue = queues.queue_name("emails")
        self.url = redis.url
        self._keda = keda
        self._scaler = scaler

    def scale(self, *, kind: str = "external-push", slots: int = 2, **spec: Any) -> None:
        """Apply the ScaledObject of the page for the queue of this test, with ``spec`` changed; wait until it works."""
        body = copy.deepcopy(on_the_page("ScaledObject"))
        (trigger,) = body["spec"]["triggers"]
        trigger["type"] = kind
        trigger["metadata"] |= {"scalerAddress": self._scaler, "queue": self.queue, "slots": str(slots)}
        body["spec"] |= spec
        self.cluster.apply(body, namespace=self.queues.namespace)
        self._keda.wait_ready("emails", self.queues.namespace)

    def metric(self, name: str, clients: tuple[Any, Any]) -> float:
        """What KEDA answers when its metrics server asks for a metric on behalf of the HorizontalPodAutoscaler."""
        messages, services = clients
        shown = {part: (self._keda.certificates / part).read_bytes() for part in ("ca.crt", "tls.key", "tls.crt")}
        with grpc.secure_channel(self._keda.metrics_address, grpc.ssl_channel_credentials(*shown.values())) as channel:
            request = messages.ScaledObjectRef(name="emails", namespace=self.queues.namespace, metricName=name)
            answer = services.MetricsServiceStub(channel).GetMetrics(request, wait_for_ready=True, timeout=30)
        (item,) = answer.items
        assert item.metricName == name
        quantity = str(item.value.string)
        return int(quantity.removesuffix("m")) / 1000 if quantity.endswith("m") else float(quantity)

    def change(self, **spec: Any) -> None:
        """Change the ScaledObject; KEDA then looks at once."""
        self.cluster.patch(*SCALED, "emails", self.queues.namespace, {"spec": spec})

    def status(self) -> Object:
        found = self.cluster.get(*SCALED, "emails", self.queues.namespace)
        assert found is not None
        return dict(found["status"])

    def autoscaler(self) -> Object:
        """The status of the HorizontalPodAutoscaler that KEDA made."""
        found = self.cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "keda-hpa-emails", self.queues.namespace)
        assert found is not None
        return dict(found["status"])

    def replicas(self) -> int:
        return int(self.queues.deployment("emails")["spec"]["replicas"])

    def wait(self, what: Callable[[], object], text: str, deadline: float = 120) -> None:
        self.cluster.wait_for(what, deadline, what=text)

    def wait_replicas(self, number: int) -> None:
        self.wait(lambda: self.replicas() == number, f"{number} replicas of emails-workers")

    def put(self, *names: str, kind: str = "count") -> None:
        jobs.put(self.url, self.queue, names, kind)

    def runs(self) -> dict[str, int]:
        return jobs.runs(self.url, self.queue)


@pytest.fixture
def emails(queues: Queues, keda: Keda, scaler: str, redis: RedisServer) -> Emails:
    return Emails(queues, keda, scaler, redis)


def test_O20_keda_starts_a_worker_for_a_job_on_an_idle_queue_and_stops_it_afterwards(
    queues: Queues, emails: Emails
) -> None:
    queues.apply("emails", workers=workers(concurrency=2), scaling={"mode": "Disabled"})
    queues.wait("emails", "ScalingActive", "False", "ScalingDisabled")
    emails.scale(pollingInterval=NEVER)
    # Idle, asked and told so. The next time that KEDA asks by itself is far away.
    emails.wait(lambda: emails.status().get("conditions"), "its conditions")
    emails.wait_replicas(0)
    emails.put("a", "b")
    emails.wait_replicas(1)
    emails.wait(lambda: emails.runs() == {"a@v1": 1, "b@v1": 1}, "both jobs")
    emails.change(pollingInterval=1, cooldownPeriod=1)
    emails.wait_replicas(0)
    # Asleep again, so the next one is told of at once as well.
    emails.wait(lambda: queues.cluster.pods(queues.namespace, labels="headrace.dev/queue=emails") == [], "no worker")
    emails.change(pollingInterval=NEVER)
    emails.put("c")
    emails.wait_replicas(1)
    emails.wait(lambda: emails.runs().get("c@v1") == 1, "the third job")
    # Our operator has left the replicas alone all the time.
    assert queues.condition("emails", "ScalingActive")["reason"] == "ScalingDisabled"
    queues.wait_events("emails", "KEDAScaleTargetActivated")
    assert "Scaled" not in queues.events("emails")


def test_QG7_keda_keeps_the_worker_of_a_job_that_runs_although_nothing_waits(queues: Queues, emails: Emails) -> None:
    queues.apply("emails", workers=workers(), scaling={"mode": "Disabled"}, timeoutSeconds=600)
    queues.wait("emails", "ScalingActive", "False", "ScalingDisabled")
    emails.scale(kind="external", pollingInterval=1, cooldownPeriod=1)
    emails.put("long", kind="gated")
    emails.wait_replicas(1)
    emails.wait(lambda: in_flight(emails) == 1, "the job to run")
    before = emails.status()["lastActiveTime"]
    # Longer than the cool-down: KEDA has asked again and again meanwhile, and was told that there is work.
    emails.wait(lambda: emails.status()["lastActiveTime"] > before, "KEDA to ask again")
    assert emails.replicas() == 1
    jobs.open_gate(emails.url, emails.queue)
    emails.wait(lambda: emails.runs() == {"long@v1": 1}, "the job")
    emails.wait_replicas(0)


def test_the_autoscaler_that_keda_makes_is_given_the_number_of_workers_that_the_policy_wants(
    queues: Queues, emails: Emails, tmp_path: Path
) -> None:
    queues.apply("emails", workers=idle_workers(), scaling={"mode": "Disabled"})
    queues.wait("emails", "ScalingActive", "False", "ScalingDisabled")
    emails.scale(pollingInterval=NEVER, slots=2)
    emails.put(*(f"job-{n}" for n in range(29)))
    emails.wait_replicas(1)
    hpa = queues.cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", "keda-hpa-emails", queues.namespace)
    assert hpa is not None
    (metric,) = hpa["spec"]["metrics"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (1, 20)
    assert hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 60
    # Jobs of a second, as long as none has run, within targetWaitSeconds of the page or a Pod's start, by 2 at a time:
    # at least 2 Pods; and never more than have a job each, and one.
    # Not at once: what was measured when the first ones woke the queue holds for a second.
    name, clients = metric["external"]["metric"]["name"], generated(tmp_path, "metrics", METRICS_INTERFACE)
    emails.wait(lambda: emails.metric(name, clients) >= 2, "more than one worker wanted")
    wanted = emails.metric(name, clients)
    assert 2 <= wanted <= 15
    assert wanted == int(wanted)


@pytest.mark.timeout(400)
def test_QG7_keda_and_its_autoscaler_follow_the_wanted_number_from_one_to_four_and_back_to_one(
    queues: Queues, keda: Keda, emails: Emails
) -> None:
    """Everything that a cluster with KEDA has: its metrics server, and the controller of HorizontalPodAutoscalers."""
    queues.apply("emails", workers=workers(concurrency=2), scaling={"mode": "Disabled"}, timeoutSeconds=600)
    queues.wait("emails", "ScalingActive", "False", "ScalingDisabled")
    at_once = {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
    with keda.metrics_server():
        emails.scale(pollingInterval=1, minReplicaCount=1, maxReplicaCount=4, advanced=at_once)
        emails.wait_replicas(1)
        names = [f"held-{n}" for n in range(40)]
        emails.put(*names, kind="held")
        emails.wait(lambda: emails.replicas() == 4, "the autoscaler to ask for four", 120)
        emails.wait(lambda: emails.autoscaler()["currentReplicas"] == 4, "four Pods")
        active = next(each for each in emails.autoscaler()["conditions"] if each["type"] == "ScalingActive")
        assert (active["status"], active["reason"]) == ("True", "ValidMetricFound")
        emails.wait(lambda: in_flight(emails) == 8, "two jobs in each of them", 90)
        jobs.let_go(emails.url, emails.queue, *names)
        emails.wait(lambda: emails.runs() == {f"{name}@v1": 1 for name in names}, "all jobs", 90)
        emails.wait(lambda: emails.replicas() == 1, "the autoscaler to ask for one", 180)
    assert "Scaled" not in queues.events("emails")
    assert "SuccessfulRescale" in queues.events("keda-hpa-emails")


def test_a_scaled_object_for_workers_that_the_operator_scales_is_named_as_a_conflict(
    queues: Queues, emails: Emails
) -> None:
    queues.apply("emails", workers=idle_workers(), scaling={"minReplicas": 2})
    emails.wait_replicas(2)
    emails.scale(pollingInterval=NEVER, minReplicaCount=1)
    condition = queues.wait("emails", "ScalingActive", "False", "ConflictingAutoscaler")
    assert "keda-hpa-emails" in condition["message"]
    assert "ScaledObject" in condition["message"]
    # The remedy that it names.
    queues.patch("emails", scaling={"mode": "Disabled"})
    queues.wait("emails", "ScalingActive", "False", "ScalingDisabled")


def in_flight(emails: Emails) -> int:
    topology = jobs.known_topology(emails.url, emails.queue)
    counts = jobs.on_store(emails.url, lambda store: store.counts(topology.refs(1)))
    return sum(count.leased for count in counts)
