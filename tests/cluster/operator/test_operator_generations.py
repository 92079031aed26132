"""The number of workers changes while an old generation lingers: of Pods in a rollout, or of the queue's versions."""

from __future__ import annotations

import pytest

from headrace.ids import decode_id
from headrace.stores.base import Store
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.fleet import Fleet
from tests.cluster.operator.queues import Queues, workers
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")

NEXT = {"name": "GENERATION", "value": "2"}


@pytest.fixture
def fleet(cluster: LocalCluster, queues: Queues, redis: RedisServer) -> Fleet:
    queues.secret(redis.url)
    return Fleet(cluster, queues, redis)


def leaving(fleet: Fleet) -> set[str]:
    """Pods whose workers were told to take no more jobs."""
    return {entry.beat.pod for entry in fleet.entries() if entry.stop_ms is not None}


def one_of_each_worker(fleet: Fleet) -> list[str]:
    """A job of each worker that runs any."""
    refs = jobs.known_topology(fleet.url, fleet.queue).refs(1)

    async def leased(store: Store) -> dict[str, str]:
        entries = [entry for ref in refs for entry in await store.browse(ref, "leased")]
        return {entry.worker: decode_id(entry.stored_id) for entry in entries}

    return sorted(jobs.on_store(fleet.url, leased).values())


def of_next_template(pod: Object) -> bool:
    return NEXT in pod["spec"]["containers"][0]["env"]


@pytest.mark.timeout(900)
def test_O50_in_a_rollout_nobody_leaves_by_an_old_decision_and_more_are_added_to_those_that_linger(
    queues: Queues, fleet: Fleet
) -> None:
    scaling = {"maxReplicas": 4, "targetWaitSeconds": 1}
    queues.apply("mail", workers=workers(concurrency=2), scaling=scaling, timeoutSeconds=600)
    queues.wait("mail")
    first = [f"first-{n}" for n in range(8)]
    fleet.put(*first, kind="held")
    fleet.wait(lambda: sorted(fleet.holders().values()) == [2, 2, 2, 2], "two jobs in each of four Pods", 180)
    # Each of them goes on with one: fewer Pods would do, but those that are told to leave stay as long as it runs.
    asked = fleet.replicas()
    jobs.let_go(fleet.url, fleet.queue, *one_of_each_worker(fleet))
    fleet.wait(lambda: sorted(fleet.holders().values()) == [1] * asked, "one job in each Pod", 90)
    fleet.wait(lambda: bool(leaving(fleet)), "somebody to leave", 180)
    assert fleet.replicas() == asked
    with fleet.cluster.node.delay_starts(queues.namespace):
        queues.patch("mail", workers={"env": [*workers()["env"], NEXT]})
        fleet.wait(lambda: any(map(of_next_template, fleet.pods().values())), "a Pod of the next template")
        fleet.wait(lambda: leaving(fleet) == set(), "nobody to leave any more")
        assert fleet.replicas() == asked
        # While the old ones linger, more is to do: they count as what they are, and what is missing is added.
        queues.patch("mail", scaling={"maxReplicas": 5})
        second = [f"second-{n}" for n in range(20)]
        fleet.put(*second, kind="held")
        fleet.wait_replicas(5)
        assert leaving(fleet) == set()
        assert not all(map(of_next_template, fleet.pods().values()))

    def rolled_out() -> bool:
        """Also nobody of before is left who may be told to end just when a job has counted its run."""
        every = fleet.every_pod()
        return len(every) == 5 and all(map(of_next_template, every))

    fleet.wait(rolled_out, "the rollout", 300)
    assert fleet.replicas() == 5
    jobs.let_go(fleet.url, fleet.queue, *first, *second)
    fleet.wait_each_once(*first, *second)


@pytest.mark.timeout(600)
def test_O50_a_version_that_is_bumped_while_workers_start_counts_until_it_is_drained_and_no_longer(
    queues: Queues, fleet: Fleet
) -> None:
    scaling = {"maxReplicas": 2, "targetWaitSeconds": 1}
    queues.apply("mail", workers=workers(concurrency=2), scaling=scaling, timeoutSeconds=600)
    queues.wait("mail")
    old = [f"old-{n}" for n in range(40)]
    with fleet.cluster.node.delay_starts(queues.namespace):
        fleet.put(*old, kind="held")
        fleet.wait_replicas(2)
        queues.patch("mail", version=2, partitions=2)
        queues.wait_versions("mail", {1: "Draining", 2: "Active"})
        fleet.put("new", kind="held")
        queues.wait("mail", "ScalingLimited", "True", "MaxReplicas")
        assert fleet.replicas() == 2
    fleet.wait(lambda: sum(fleet.holders().values()) >= 4, "jobs that run", 90)
    jobs.let_go(fleet.url, fleet.queue, *old)
    queues.wait_versions("mail", {1: "Completed", 2: "Active"}, 90)
    assert fleet.runs() == {f"{name}@v1": 1 for name in old}
    # What is left is one job of the new version: the old one's number is forgotten with it.
    fleet.wait_replicas(1, 180)
    fleet.wait(lambda: sum(fleet.holders().values()) == 1, "the worker of the last job")
    jobs.let_go(fleet.url, fleet.queue, "new")
    fleet.wait(lambda: fleet.runs().get("new@v2") == 1, "the last job")
    assert set(fleet.runs().values()) == {1}
