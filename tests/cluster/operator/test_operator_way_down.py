"""All the way up and down again, under load, with shorter windows of the policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.fleet import Fleet, Stream
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, workers
from tests.services.redis import RedisServer


@pytest.fixture(scope="module", autouse=True)
def hasty_operator(
    cluster: LocalCluster, installed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    command = (sys.executable, "-m", "tests.cluster.operator.hasty")
    with OperatorProcess(cluster, tmp_path_factory.mktemp("operator") / "operator.log", command=command) as running:
        yield running


@pytest.fixture
def fleet(cluster: LocalCluster, queues: Queues, redis: RedisServer) -> Fleet:
    queues.secret(redis.url)
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
    fleet.wait_replicas(8, 200)
    fleet.wait(lambda: any("mail-workers: 0 -> " in message for message in fleet.messages()), "its Event")
    queues.wait("mail", "ScalingLimited", "True", "MaxReplicas")
    fleet.wait(lambda: queues.status("mail").get("lastScaleTime"), "its time")
    fleet.wait(lambda: queues.status("mail").get("lastActiveTime"), "that workers are needed")
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
