"""A queue that is paused, held or limited while producers and workers go on: no process is restarted for it."""

from __future__ import annotations

import pytest

from headrace.errors import QueueFull, QueueHeld
from headrace.settings import QueueSettings, Retention
from tests.cluster.operator import jobs
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, workers
from tests.cluster.rest import ApiError
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def settings(redis: RedisServer, name: str) -> QueueSettings:
    return jobs.known_topology(redis.url, name).settings


def claimed(redis: RedisServer, name: str, version: int = 1) -> int:
    """Jobs that a worker of the test gets now; it acknowledges them."""
    return jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, version))


def ready(redis: RedisServer, name: str, version: int = 1) -> int:
    topology = jobs.known_topology(redis.url, name)
    counts = jobs.on_store(redis.url, lambda store: store.counts(list(topology.refs(version))))
    return sum(count.ready for count in counts)


def test_a_live_queue_is_paused_and_goes_on_without_a_restart(queues: Queues, redis: RedisServer) -> None:
    name, cluster = queues.queue_name("mail"), queues.cluster
    queues.apply("mail", workers=workers())
    queues.wait("mail")
    jobs.put(redis.url, name, ["before"])
    cluster.wait_for(lambda: jobs.runs(redis.url, name), what="the workers run jobs")
    before = queues.deployment("mail")

    queues.patch("mail", paused=True)
    paused = queues.wait("mail", "Paused", "True", "Hold")
    assert paused["message"] == "jobs are taken and none is started, as spec.paused or spec.stopPolicy says"
    assert queues.condition("mail", "Ready")["status"] == "True"
    held = [f"held-{number}" for number in range(20)]
    jobs.put(redis.url, name, held)
    assert claimed(redis, name) == 0
    # What is shown says so, and the workers, which look for work all the time, have left them alone until then.
    cluster.wait_for(lambda: queues.status("mail")["depth"]["ready"] == 20, what="20 jobs wait")
    assert set(jobs.runs(redis.url, name)) == {"before@v1"}
    queues.wait_events("mail", "Hold")
    line = cluster.kubectl("get", "queue", "mail", "--no-headers", "--namespace", queues.namespace)
    assert line.split()[:3] == ["mail", "True", "True"]

    queues.patch("mail", paused=False)
    queues.wait("mail", "Paused", "False", "NotPaused")
    cluster.wait_for(lambda: len(jobs.runs(redis.url, name)) == 21, what="the held jobs run")
    assert set(jobs.runs(redis.url, name).values()) == {1}
    queues.wait_events("mail", "Resumed")
    after = queues.deployment("mail")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_hold_and_drain_runs_what_is_there_and_takes_nothing(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail")
    queues.wait("mail")
    jobs.put(redis.url, name, ["a", "b"])
    queues.patch("mail", stopPolicy="HoldAndDrain")
    queues.wait("mail", "Paused", "True", "HoldAndDrain")
    with pytest.raises(QueueHeld, match="stop policy HoldAndDrain"):
        jobs.put(redis.url, name, ["c"])
    assert claimed(redis, name) == 2
    queues.patch("mail", stopPolicy="Hold")
    queues.wait("mail", "Paused", "True", "Hold")
    jobs.put(redis.url, name, ["c"])
    assert claimed(redis, name) == 0
    queues.patch("mail", stopPolicy=None)
    queues.wait("mail", "Paused", "False")
    assert claimed(redis, name) == 1


@pytest.mark.parametrize("last", [False, True])
def test_O21_a_pause_that_is_toggled_fast_ends_as_it_was_set_last(
    queues: Queues, redis: RedisServer, last: bool
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", partitions=16)
    queues.wait("mail")
    jobs.put(redis.url, name, [f"job-{number}" for number in range(32)])
    for number in range(20):
        queues.patch("mail", paused=(number % 2 == 0) != last)
    assert queues.get("mail")["spec"]["paused"] is last
    queues.wait("mail", "Paused", str(last))
    assert settings(redis, name).stop == ("hold" if last else "none")
    assert claimed(redis, name) == (0 if last else 32)


def test_O22_an_operator_that_restarts_leaves_a_paused_queue_paused_and_counted_once(
    queues: Queues, redis: RedisServer, operator: OperatorProcess
) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", paused=True)
    queues.wait("mail", "Paused", "True")
    jobs.put(redis.url, name, ["a", "b", "c"])
    before = jobs.known_topology(redis.url, name)
    operator.kill()
    operator.start()
    queues.patch("mail", retry={"maxRetries": 5})
    queues.wait("mail", "Paused", "True", "Hold")
    queues.wait("mail")
    assert (settings(redis, name).stop, ready(redis, name), claimed(redis, name)) == ("hold", 3, 0)
    assert queues.status("mail")["depth"]["ready"] == 3
    assert jobs.known_topology(redis.url, name).epoch == before.epoch + 1

    # Unpaused while nobody looks: the next operator sees it.
    operator.kill()
    queues.patch("mail", paused=False)
    operator.start()
    queues.wait("mail", "Paused", "False")
    assert claimed(redis, name) == 3


def test_V12_a_version_that_is_promoted_while_paused_starts_paused(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", paused=True)
    queues.wait("mail", "Paused", "True")
    jobs.put(redis.url, name, ["old"])
    queues.patch("mail", version=2, partitions=8)
    queues.wait("mail")
    jobs.put(redis.url, name, ["new"])
    assert (claimed(redis, name, 1), claimed(redis, name, 2)) == (0, 0)
    # Both at once: the bump and the end of the pause.
    queues.patch("mail", version=3, paused=False)
    queues.wait("mail")
    queues.wait("mail", "Paused", "False")
    assert (claimed(redis, name, 1), claimed(redis, name, 2)) == (1, 1)
    queues.wait_versions("mail", {1: "Completed", 2: "Completed", 3: "Active"})


def test_limits_are_live(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", partitions=1)
    queues.wait("mail")
    queues.patch("mail", limits={"ratePerSecond": 0.5, "maxInFlight": 7, "maxLength": 3}, retry={"crashLimit": 9})
    queues.wait("mail")
    now = settings(redis, name)
    assert (now.rate_per_second, now.max_in_flight, now.max_length, now.crash_limit) == (0.5, 7, 3, 9)
    jobs.put(redis.url, name, ["a", "b", "c"])
    with pytest.raises(QueueFull):
        jobs.put(redis.url, name, ["d"])
    queues.patch("mail", limits={"maxLength": None, "ratePerSecond": None})
    queues.wait("mail")
    jobs.put(redis.url, name, ["d"])
    assert claimed(redis, name) == 4


def test_retention_is_live_and_gets_its_defaults_when_it_is_switched_on(queues: Queues, redis: RedisServer) -> None:
    name = queues.queue_name("mail")
    queues.apply("mail", partitions=1)
    queues.wait("mail")
    assert settings(redis, name).retention is None
    queues.patch("mail", retention={})
    queues.wait("mail")
    assert settings(redis, name).retention == Retention()
    queues.patch("mail", retention={"doneCount": 5, "historyEntries": 0})
    queues.wait("mail")
    assert settings(redis, name).retention == Retention(done_count=5, history_entries=0)
    with pytest.raises(ApiError, match="deadCount"):
        queues.patch("mail", retention={"deadCount": 0})
    queues.patch("mail", retention=None)
    queues.wait("mail")
    assert settings(redis, name).retention is None
