"""The size changes while an old generation lingers: of Pods, or of the queue itself."""

from __future__ import annotations

import itertools
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from headrace.lifecycle import promote
from headrace.stores.base import COUNTERS, Depth, Settled, Statistics
from headrace_operator.scaling import Inputs, Pods, Record, Rules, decide
from headrace_operator.scaling.load import measured
from tests.unit.operator.scaling.scene import Scene, idle_workers, jobs
from tests.unit.operator.scaling.workers_in_memory import QUEUE

NOW = 1_000_000
seq = itertools.count(100)


async def work_off(scene: Scene, version: int) -> None:
    """Run everything that is ready in a version."""
    topology = await scene.store.read_topology(QUEUE)
    assert topology is not None
    for ref in topology.refs(version):
        while jobs := (claim := await scene.store.claim(ref, "test", next(seq), 200, 30_000)).jobs:
            assert await scene.store.ack(ref, [Settled(job.key, claim.token) for job in jobs]) == []


async def told_to_leave(scene: Scene) -> set[str]:
    return {entry.worker for entry in await scene.store.workers(QUEUE) if entry.stop_ms is not None}


# ---- generations of Pods ---------------------------------------------------------------------------------------------


async def busy_and_leaving(scene: Scene) -> None:
    """Four workers with a job each, of which the policy has given up two."""
    await idle_workers(scene, 4)
    await scene.enqueue(*jobs(4, "run"))
    for number, pod in enumerate(list(scene.workers.pods)):
        await scene.claim(pod, 7 + number, 1)
    scene.workers.running = dict.fromkeys(scene.workers.pods, 1)
    await scene.pass_time(70)
    assert len(await told_to_leave(scene)) == 2
    assert scene.workers.replicas == 4  # each of them holds a job


async def test_O50_who_was_to_leave_stays_when_a_rollout_replaces_the_pods(scene: Scene) -> None:
    await busy_and_leaving(scene)
    old = set(scene.workers.pods)
    scene.workers.start = 20.0
    await scene.workers.roll_out()
    assert await scene.look() == 4
    # Neither does anybody leave who stays, nor is anybody told to who comes in his place.
    assert await told_to_leave(scene) == set()
    while old & set(scene.workers.pods):
        assert await told_to_leave(scene) == set()
        assert await scene.pass_time(2) == [4]
        assert scene.workers.now < 300
    # When the new ones are all there, it is decided for them anew.
    assert (await scene.pass_time(100))[-1] < 4


async def test_O50_pods_of_an_old_generation_count_as_the_capacity_that_they_are(scene: Scene) -> None:
    await scene.enqueue(*jobs(40))
    before = await scene.look(woken=True)
    scene.workers.now += 5
    await scene.workers.settle()
    assert await scene.look() == before > 1
    scene.workers.start = 1000.0  # the new ones do not start: the old ones linger
    await scene.workers.roll_out()
    assert len(scene.workers.pods) == before + 1
    # The same load wants the same number, whoever it is that runs it.
    assert set(await scene.pass_time(60)) == {before}
    # And more if there is more to do: both generations together make up the number.
    await scene.enqueue(*jobs(400, "more"))
    assert (await scene.pass_time(10))[-1] > before


async def test_O50_what_was_decided_for_another_generation_is_not_written(scene: Scene) -> None:
    """Somebody rolls out and scales between a look and its write: that look's number is dropped."""
    await scene.enqueue(*jobs(400))
    seen = await scene.target()
    scene.workers.deployment["spec"]["replicas"] = 3
    await scene.workers.roll_out()
    scene.workers.deployment["metadata"]["resourceVersion"] = "99"
    looked = await scene.scaler.look(seen, scene.memory, woken=True)
    assert scene.workers.replicas == 3
    assert looked.target is not None
    assert (looked.target.replicas, looked.target.deployment.template) != (0, seen.deployment.template)
    assert await scene.look() > 3


# ---- versions of the queue -------------------------------------------------------------------------------------------


def depth(state: Literal["active", "draining", "removing"], **sizes: Any) -> Depth:
    return Depth(state, 4, **sizes)


def replicas(*versions: Depth, slots: int = 2) -> int:
    stats = Statistics(NOW, NOW - 500, 7, dict(enumerate(versions, 1)), dict.fromkeys(COUNTERS, 0))
    load = measured(stats, Record(), keep_warm=0, template="t").load
    return decide(Inputs(Rules(max_replicas=10_000), load, Pods(0, 0, slots=slots), Record().history)).replicas


sizes = st.tuples(st.integers(0, 3000), st.integers(0, 300))


@given(old=sizes, active=sizes, slots=st.integers(1, 32))
def test_O50_a_bump_alone_changes_no_target_and_each_version_adds_its_own_demand(
    old: tuple[int, int], active: tuple[int, int], slots: int
) -> None:
    first, second = (
        dict(zip(("ready", "leased"), old, strict=True)),
        dict(zip(("ready", "leased"), active, strict=True)),
    )
    both = replicas(depth("draining", **first), depth("active", **second), slots=slots)
    whole = {name: first[name] + second[name] for name in first}
    assert both == replicas(depth("active", **whole), slots=slots)
    assert replicas(depth("draining", **first), depth("active"), slots=slots) == replicas(
        depth("active", **first), slots=slots
    )
    assert both >= max(
        replicas(depth("active", **first), slots=slots), replicas(depth("active", **second), slots=slots)
    )
    # And none for a version that is being removed, whatever it said last.
    gone = depth("removing", **first)
    assert replicas(gone, depth("active", **second), slots=slots) == replicas(depth("active", **second), slots=slots)


async def test_O50_a_version_that_is_bumped_while_workers_come_and_go_keeps_those_it_needs(scene: Scene) -> None:
    await scene.enqueue(*jobs(4, "old"))
    assert await scene.look(woken=True) == 1
    scene.workers.now += 5
    await scene.workers.settle()
    (pod,) = scene.workers.pods
    held = await scene.claim(pod, 1)
    await promote(scene.store, QUEUE, 2, 4)
    # None is added, and none is given up, because the version is another one.
    assert set(await scene.pass_time(120)) == {1}
    await scene.enqueue(*jobs(400, "new"))
    assert (await scene.pass_time(4))[-1] > 1
    # The new version is worked off; the old one drains, by the worker that it needs and by no other.
    await work_off(scene, 2)
    numbers = await scene.pass_time(400)
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] == 1
    assert scene.workers.pods == [pod]
    await scene.finish(pod, held)
    assert (await scene.pass_time(200))[-1] == 0
