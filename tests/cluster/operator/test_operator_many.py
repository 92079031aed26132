"""Many Queues at once on a real API server: what they cost it, when they are created and while they are busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from headrace.producer import JobSpec, Producer
from headrace.stores import open_store
from headrace_operator.running import CALLS_AT_ONCE, CALLS_PER_SECOND, MEASUREMENTS_PER_SECOND
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import API, Queues
from tests.cluster.ports import free_ports
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

QUEUES = 180
"""More than may write their measurements every 30 s at the rate of all together."""
THOUSAND, TWO_MINUTES = 1000, 120.0
BUSY_SECONDS = 60.0
STARTING = urllib3.Retry(60, backoff_factor=0.1, backoff_max=1.0)


class Counted:
    """An operator of its own for one namespace, and what it has asked the API server for."""

    def __init__(self, cluster: LocalCluster, namespace: str, log: Any) -> None:
        self._port = free_ports(1)[0]
        self.process = OperatorProcess(
            cluster, log, HEADRACE_HEALTH_PORT=str(self._port), HEADRACE_WATCH_NAMESPACES=namespace
        )

    def calls(self, resource: str = "", *verbs: str) -> int:
        """Return how many calls it has sent, those to a resource and of some verbs only if named."""
        answer = urllib3.request("GET", f"http://127.0.0.1:{self._port}/metrics", timeout=30, retries=STARTING)
        return sum(
            int(sample.value)
            for family in text_string_to_metric_families(answer.data.decode())
            for sample in family.samples
            if sample.name == "headrace_operator_api_calls_total"
            and resource in ("", sample.labels["resource"])
            and (not verbs or sample.labels["verb"] in verbs)
        )


@pytest.fixture
def counted(cluster: LocalCluster, installed: str, namespace: str, tmp_path: Any) -> Iterator[Counted]:
    running = Counted(cluster, namespace, tmp_path / "operator.log")
    running.process.start()
    yield running
    running.process.kill()


def names() -> list[str]:
    return [f"queue-{number:03}" for number in range(QUEUES)]


def create(queues: Queues, url: str) -> None:
    """Create all Queues at once."""
    path = queues.cluster.rest.path(API, "Queue", None, queues.namespace)

    def one(name: str) -> None:
        spec = {"queueName": queues.queue_name(name), "version": 1, "partitions": 2, "connection": {"url": url}}
        body = {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        queues.cluster.rest.request("POST", path, body)

    with ThreadPoolExecutor(8) as callers:
        list(callers.map(one, names()))


def found(queues: Queues) -> list[Object]:
    return queues.cluster.objects(API, "Queue", queues.namespace)


def ready(queues: Queues) -> int:
    conditions = (each for queue in found(queues) for each in queue.get("status", {}).get("conditions", ()))
    return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def feed(url: str, queue_names: list[str], turn: int) -> None:
    """Put twice as many jobs into every queue as are there."""
    store = open_store(url)
    producer = Producer(store)
    try:
        for name in queue_names:
            await producer.enqueue_many(name, [JobSpec("count") for _ in range(2**turn)])
    finally:
        await producer.aclose()
        await store.close()


def oldest(queues: Queues, name: str) -> str:
    """Return what `kubectl get` prints under OLDEST."""
    header, row = queues.cluster.kubectl("get", "hrq", name, "--namespace", queues.namespace).rstrip().splitlines()
    start = header.index("OLDEST")
    return row[start:].split(" ", 1)[0]


@pytest.mark.timeout(900)
def test_O25_E13_many_queues_at_once_are_reconciled_within_the_budget_and_busy_ones_write_status_at_a_bounded_rate(
    counted: Counted, queues: Queues, redis: RedisServer, cluster: LocalCluster
) -> None:
    began, before = time.monotonic(), counted.calls()
    create(queues, redis.url)
    cluster.wait_for(lambda: ready(queues) == QUEUES, 300, what="all Queues Ready")
    sent, seconds = counted.calls() - before, time.monotonic() - began
    assert sent <= CALLS_AT_ONCE + CALLS_PER_SECOND * seconds
    # The budget is what limits a thousand of them: so many calls for each fit into two minutes.
    assert sent / QUEUES * THOUSAND <= CALLS_AT_ONCE + CALLS_PER_SECOND * TWO_MINUTES, sent / QUEUES

    # Every measurement moves by more than a fifth, all the time.
    redis_names = [queues.queue_name(name) for name in names()]
    asyncio.run(feed(redis.url, redis_names, 0))
    cluster.wait_for(lambda: all("depth" in each["status"] for each in found(queues)), 120, what="depths")
    began, before = time.monotonic(), counted.calls("queues/status", "PATCH")
    for turn in range(1, 7):
        asyncio.run(feed(redis.url, redis_names, turn))
        time.sleep(max(0.0, began + turn * BUSY_SECONDS / 6 - time.monotonic()))
    written, seconds = counted.calls("queues/status", "PATCH") - before, time.monotonic() - began
    # More than that would be written if each Queue did so every 30 s.
    assert 0 < written <= MEASUREMENTS_PER_SECOND * (seconds + 1)

    # The list shows how old the oldest job is, also while nobody writes.
    first = names()[0]
    cluster.wait_for(lambda: queues.status(first).get("oldestReadyAt"), 120, what="the time of the oldest job")
    counted.process.stop()
    version, age = queues.get(first)["metadata"]["resourceVersion"], oldest(queues, first)
    assert age.endswith(("s", "m"))
    cluster.wait_for(lambda: oldest(queues, first) != age, 120, what="the age that is shown goes on")
    assert queues.get(first)["metadata"]["resourceVersion"] == version
