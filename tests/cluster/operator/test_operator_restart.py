"""The operator dies between any two steps, or acts on what is no longer true: the queue converges all the same."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.stores import open_store
from headrace.stores.base import Store
from headrace.topology import PartitionRef, Topology
from headrace_operator import steps
from headrace_operator.api.names import QueueKey
from headrace_operator.apply import Outdated
from headrace_operator.observed import Observed
from headrace_operator.planning import plan
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.inprocess import Killed, OperatorInTest
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.operator.queues import Queues, idle_workers
from tests.services.redis import RedisServer

DEADLINE = 180.0
Life = Callable[[list[steps.Step]], OperatorInTest]


def one_step_lives(cluster: LocalCluster) -> Life:
    """Lives that end after their first step; every other one may settle first, as each does when it begins."""
    numbers = itertools.count()

    def life(done: list[steps.Step]) -> OperatorInTest:
        number = next(numbers)

        async def die(step: steps.Step) -> None:
            done.append(step)
            if number % 2 == 0 or not isinstance(step, steps.Settle):
                raise Killed

        return OperatorInTest(cluster, after_step=die)

    return life


def longer_and_longer_lives(cluster: LocalCluster) -> Life:
    """Lives that end at their first, second, third ... change in Redis: also in the middle of a step."""
    budgets = itertools.count()

    def life(done: list[steps.Step]) -> OperatorInTest:
        async def note(step: steps.Step) -> None:
            done.append(step)

        return OperatorInTest(cluster, after_step=note, store_changes=next(budgets))

    return life


async def live_until(life: Life, key: QueueKey, reached: Callable[[], Awaitable[bool]]) -> list[steps.Step]:
    """One life after the other until ``reached``; all steps that were done, and lives that ended early are not few."""
    done: list[steps.Step] = []
    deaths = 0
    end = time.monotonic() + DEADLINE
    while not await reached():
        assert time.monotonic() < end, f"did not converge after {deaths} deaths; steps: {done}"
        async with life(done) as operator:
            try:
                delay = await operator.reconciler.reconcile(key)
            except Killed:
                deaths += 1
                continue
        await asyncio.sleep(min(delay or 0.0, 0.5))
    assert deaths >= 3
    return done


@pytest.mark.parametrize("lives", [one_step_lives, longer_and_longer_lives])
async def test_K2_an_operator_killed_between_any_two_steps_converges_and_promotes_once(
    cluster: LocalCluster, queues: Queues, redis: RedisServer, lives: Callable[[LocalCluster], Life]
) -> None:
    key, name = QueueKey(queues.namespace, "mail"), queues.queue_name("mail")
    store = open_store(redis.url)

    async def topology_is(active: int, versions: set[int]) -> bool:
        found = await store.read_topology(name)
        return found is not None and (found.active, set(found.versions)) == (active, versions)

    async def says(status: dict[int, str]) -> bool:
        ready = await asyncio.to_thread(ready_now, queues)
        return ready and await asyncio.to_thread(queues.versions, "mail") == status

    async def created() -> bool:
        return await topology_is(1, {1}) and await says({1: "Active"})

    async def bumped() -> bool:
        return await topology_is(2, {1, 2}) and await says({1: "Draining", 2: "Active"})

    async def completed() -> bool:
        return await topology_is(2, {2}) and await says({1: "Completed", 2: "Active"})

    # These lives do passes and nothing beside: they set what is declared, and do not follow the load.
    spec: dict[str, Any] = {
        "connection": {"url": redis.url},
        "workers": idle_workers(),
        "scaling": {"mode": "Manual", "replicas": 1},
    }
    await asyncio.to_thread(queues.apply, "mail", **spec)
    try:
        done = await live_until(lives(cluster), key, created)
        await asyncio.to_thread(jobs.put, redis.url, name, [f"job-{number}" for number in range(40)])
        await asyncio.to_thread(queues.patch, "mail", version=2, partitions=8)
        done += await live_until(lives(cluster), key, bumped)
        first = await store.read_topology(name)
        assert await jobs.work_off(store, name, 1) == 40
        done += await live_until(lives(cluster), key, completed)

        last = await store.read_topology(name)
        assert first is not None
        assert last is not None
        assert (last.highest, last.versions[2].partitions) == (2, 8)
        # Promoting 1, promoting 2, removing 1, dropping 1: nothing was written twice.
        assert last.epoch == 4
        promoted = [step.version for step in done if isinstance(step, steps.Promote)]
        assert len(promoted) == len(set(promoted))
        assert all(count.state == "active" for count in await store.counts(last.refs(2)))
        assert queues.deployment("mail")["spec"]["replicas"] == 1
    finally:
        await store.close()


def ready_now(queues: Queues) -> bool:
    try:
        return bool(queues.condition("mail", "Ready")["status"] == "True")
    except LookupError:
        return False


async def test_K4_a_stale_operator_is_refused_by_the_compare_and_set(
    cluster: LocalCluster, queues: Queues, redis: RedisServer
) -> None:
    key, name = QueueKey(queues.namespace, "mail"), queues.queue_name("mail")
    store = open_store(redis.url)
    await asyncio.to_thread(queues.apply, "mail", connection={"url": redis.url})
    try:
        async with OperatorInTest(cluster) as stale, OperatorInTest(cluster) as fresh:
            await fresh.reconciler.reconcile(key)
            await asyncio.to_thread(jobs.put, redis.url, name, ["old"])
            await asyncio.to_thread(queues.patch, "mail", version=2, partitions=8)
            planned = await plans_up_to_promotion(stale, key)

            await fresh.reconciler.reconcile(key)
            await asyncio.to_thread(queues.patch, "mail", version=3, partitions=2)
            await fresh.reconciler.reconcile(key)
            before = await store.read_topology(name)
            assert before is not None
            assert (before.active, before.draining) == (3, (1, 2))

            seen, stale_store = planned
            for step in [
                *plan(seen).steps,
                steps.Complete(1),
                steps.Complete(3),
                steps.RestoreTopology(replace(before, epoch=before.epoch - 1), Topology.created(name, 2, 8)),
            ]:
                if isinstance(step, steps.Promote | steps.Complete | steps.RestoreTopology):
                    with pytest.raises(Outdated):
                        await stale.applier.run(step, seen.queue, stale_store)
            after = await store.read_topology(name)
            assert after is not None
            assert (after.active, dict(after.versions), after.epoch) == (3, dict(before.versions), before.epoch)
            await fresh.reconciler.reconcile(key)
            assert [count.state for count in await store.counts(after.refs(3))] == ["active"] * 2
            assert await jobs.work_off(store, name, 1) == 1
    finally:
        await store.close()


async def plans_up_to_promotion(operator: OperatorInTest, key: QueueKey) -> tuple[Observed, Store]:
    """Run plans until the next one would promote; what that one was made from."""
    for _ in range(20):
        found = await operator.observer.observe(key)
        assert isinstance(found, tuple)
        seen, store = found
        planned = plan(seen).steps
        assert store is not None
        if any(isinstance(step, steps.Promote) for step in planned):
            return seen, store
        for step in planned:
            await operator.applier.run(step, seen.queue, store)
    raise AssertionError("no plan promotes")


async def test_O43_what_changes_between_two_steps_is_planned_anew_and_nothing_is_left(
    cluster: LocalCluster, queues: Queues, redis: RedisServer
) -> None:
    key, name = QueueKey(queues.namespace, "mail"), queues.queue_name("mail")
    wishes = iter([(2, 8), (3, 2), (4, 16)])

    async def wish_again(step: steps.Step) -> None:
        """Each step that leads towards a version is followed by the wish for the next one."""
        if isinstance(step, steps.CreateQueueVersion | steps.Provision) and (wish := next(wishes, None)) is not None:
            await asyncio.to_thread(queues.patch, "mail", version=wish[0], partitions=wish[1])

    await asyncio.to_thread(queues.apply, "mail", connection={"url": redis.url})
    store = open_store(redis.url)
    try:
        async with OperatorInTest(cluster, after_step=wish_again) as operator:
            for _ in range(20):
                delay = await operator.reconciler.reconcile(key)
                topology = await store.read_topology(name)
                if (
                    topology is not None
                    and set(topology.versions) == {4}
                    and await asyncio.to_thread(ready_now, queues)
                ):
                    break
                await asyncio.sleep(min(delay or 0.0, 1.0))
        assert next(wishes, None) is None
        assert topology is not None
        assert (topology.active, topology.partitions, set(topology.versions)) == (4, 16, {4})
        phases = await asyncio.to_thread(queues.versions, "mail")
        assert phases[4] == "Active"
        assert set(phases.values()) <= {"Active", "Completed", "Superseded"}
        for version, partitions in ((1, 4), (2, 8), (3, 2)):
            left = await store.counts([PartitionRef(name, version, number) for number in range(partitions)])
            assert {count.state for count in left} <= {"absent", "tombstone"}
    finally:
        await store.close()


def test_K2_an_operator_killed_by_the_system_goes_on_where_it_was(
    cluster: LocalCluster, queues: Queues, redis: RedisServer, tmp_path: Path
) -> None:
    name = queues.queue_name("mail")
    with OperatorProcess(cluster, tmp_path / "operator.log") as operator:
        queues.apply("mail", connection={"url": redis.url}, workers=idle_workers())
        queues.wait("mail")  # a process starts, each time
        jobs.put(redis.url, name, ["a", "b"])
        for version in (2, 3):
            queues.patch("mail", version=version, partitions=version)
            operator.kill()
            operator.start()
        queues.wait("mail")
        operator.kill()
        assert jobs.on_store(redis.url, lambda store: jobs.work_off(store, name, 1)) == 2
        operator.start()
        queues.wait("mail", "Draining", "False")
        assert jobs.known_topology(redis.url, name).active == 3
        phases = queues.versions("mail")
        assert (phases[1], phases[3]) == ("Completed", "Active")
        assert phases.get(2) in (None, "Completed", "Superseded")
