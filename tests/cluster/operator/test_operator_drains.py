"""What is told of a drain that does not end, on a real API server and a real Redis."""

from __future__ import annotations

import asyncio

import pytest

from headrace.stores import open_store
from headrace.stores.base import Beat
from headrace_operator.api.names import QueueKey
from headrace_operator.planning import stuck
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.inprocess import OperatorInTest
from tests.cluster.operator.queues import Queues
from tests.cluster.rest import Object
from tests.services.redis import RedisServer

POD = "mail-workers-7d5f-x2x9k"


def draining(queues: Queues) -> Object:
    return queues.condition("mail", "Draining")


async def until_stuck(operator: OperatorInTest, queues: Queues, saying: str) -> Object:
    """Passes until the drain is said to be stuck, for the reason that is looked for."""
    key = QueueKey(queues.namespace, "mail")
    async with asyncio.timeout(60):
        while True:
            await operator.reconciler.reconcile(key)
            told = await asyncio.to_thread(draining, queues)
            if told["reason"] == "DrainStuck" and saying in told["message"]:
                return told
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("poisoned", [False, True], ids=["held", "poisoned"])
async def test_a_drain_that_is_stuck_names_the_pod_and_the_job_that_its_workers_died_of(
    cluster: LocalCluster, queues: Queues, redis: RedisServer, monkeypatch: pytest.MonkeyPatch, poisoned: bool
) -> None:
    monkeypatch.setattr(stuck, "STUCK_MS", 200)
    key, name = QueueKey(queues.namespace, "mail"), queues.queue_name("mail")
    store = open_store(redis.url)
    await asyncio.to_thread(queues.apply, "mail", partitions=1, connection={"url": redis.url}, timeoutSeconds=1)
    try:
        async with OperatorInTest(cluster) as operator:
            await operator.reconciler.reconcile(key)
            topology = await store.read_topology(name)
            assert topology is not None
            (ref,) = topology.refs(1)
            if poisoned:
                # Its worker is lost, so it is to be run apart; nobody here does.
                await asyncio.to_thread(jobs.put, redis.url, name, ["poison"])
                assert len((await store.claim(ref, "lost", 1, 1, 1)).jobs) == 1
                async with asyncio.timeout(30):
                    while await store.recover(ref) == 0:
                        await asyncio.sleep(0.02)
            await asyncio.to_thread(jobs.put, redis.url, name, ["held-for-ever"])
            assert len((await store.claim(ref, f"{POD}-0a1b", 1, 1, 600_000, suspects=0)).jobs) == 1
            await store.tick(name, f"{POD}-0a1b", Beat(pod=POD, in_flight=1))
            await asyncio.to_thread(queues.patch, "mail", version=2, partitions=2)
            if poisoned:
                told = await until_stuck(operator, queues, "no worker takes it")
                assert told["message"].endswith(
                    ": job poison ('count') is ready, and has lost 1 leases: its workers died, or hung, "
                    f"job held-for-ever ('count') is held by Pod {POD}"
                )
            else:
                told = await until_stuck(operator, queues, "a worker still holds a job")
                assert told["message"].endswith(f": job held-for-ever ('count') is held by Pod {POD}")
    finally:
        await store.close()
    # What is told once says nothing that changes: else each text would be an Event of its own.
    found = await asyncio.to_thread(cluster.objects, "v1", "Event", queues.namespace)
    (event,) = (event for event in found if event["reason"] == "DrainStuck")
    assert event["message"].endswith(" worker list`" if poisoned else " says which")
