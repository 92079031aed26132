"""When waiting jobs move to the active version, under a leader's fence, and what is left of a leader that died."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace import JobSpec, Producer, QueueSettings
from headrace.election.fence import Token
from headrace.errors import Fenced
from headrace.lifecycle import promote
from headrace.maintenance.migration import Migration
from headrace.settings import DrainSettings
from headrace.stores.base import Fence, Release
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from tests.unit.duty_scene import QUEUE, Scene, held_in


@pytest.fixture
def scene() -> Scene:
    return Scene()


def moving(**drain: Any) -> QueueSettings:
    return QueueSettings(drain=DrainSettings(**drain))


async def test_waiting_jobs_move_and_what_runs_follows_when_it_comes_back(scene: Scene) -> None:
    duty = Migration()
    await promote(scene.store, QUEUE, 1, 4, settings=moving(policy="migrate"))
    producer = Producer(scene.store)
    await producer.enqueue_many(QUEUE, [JobSpec("x", None, id=f"job-{n}", delay=3600) for n in range(250)])
    await producer.enqueue(QUEUE, "x", None, id="runs")
    (ref,) = [each.ref for each in await held_in(scene.store, 1) if await ready(scene.store, each.ref)]
    claim = await scene.store.claim(ref, "w", 1, 1, 60_000)
    await scene.read()
    assert scene.due(duty) is None  # nothing drains
    await promote(scene.store, QUEUE, 2, 2)
    await scene.read()
    await scene.run(duty)
    assert await live(scene.store, 1) == {"leased": 1}
    assert await live(scene.store, 2) == {"scheduled": 250}
    assert scene.due(duty) == 1.5

    await scene.store.release(ref, [Release(claim.jobs[0].key, claim.token)])
    scene.now += 2
    await scene.run(duty)
    assert await live(scene.store, 1) == {}
    assert await live(scene.store, 2) == {"scheduled": 250, "ready": 1}


async def ready(store: MemoryStore, ref: PartitionRef) -> bool:
    return (await store.counts([ref]))[0].ready > 0


async def live(store: MemoryStore, version: int) -> dict[str, int]:
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    total: Counter[str] = Counter()
    for each in await store.counts(topology.refs(version)):
        total.update(each.nonempty())
    return dict(total)


async def test_marks_that_a_dead_leader_left_are_forgotten_whatever_the_settings_say(scene: Scene) -> None:
    await promote(scene.store, QUEUE, 1, 1)
    await Producer(scene.store).enqueue(QUEUE, "x", None, id="later", delay=3600)
    await promote(scene.store, QUEUE, 2, 1)
    topology = await scene.read()
    source, target, fence = PartitionRef(QUEUE, 1, 0), PartitionRef(QUEUE, 2, 0), Fence(1, "n")
    aside = await scene.store.set_aside(source, fence, 2, 100)
    await scene.store.adopt(target, 1, fence, source, aside)
    await scene.store.let_go(source, fence, [job.stored_id for job in aside])
    assert (await scene.store.counts([target]))[0].arrived == 1  # and the leader died
    duty = Migration()
    await scene.run(duty)
    assert (await scene.store.counts([target]))[0].arrived == 0
    assert scene.due(duty) is None
    assert topology.settings.drain.policy == "wait"


@pytest.mark.parametrize(("owner", "dead"), [(None, 1), ({"name": "emails"}, 0)])
async def test_jobs_of_a_drain_that_timed_out_are_buried_unless_an_operator_does_it(
    scene: Scene, owner: dict[str, str] | None, dead: int
) -> None:
    duty = Migration()
    settings = moving(timeout_ms=60_000, on_timeout="dead_letter")
    await promote(scene.store, QUEUE, 1, 1, settings=settings, owner=owner)
    await Producer(scene.store).enqueue(QUEUE, "x", None, delay=3600)
    await promote(scene.store, QUEUE, 2, 1)
    await scene.read()
    await scene.run(duty)
    assert await live(scene.store, 1) == {"scheduled": 1}
    assert scene.due(duty) == pytest.approx(30, abs=1)
    scene.now += 61
    await scene.run(duty)
    assert (await live(scene.store, 1)).get("dead", 0) == dead


async def test_a_leader_of_the_past_is_refused_and_a_younger_one_goes_on(scene: Scene) -> None:
    await promote(scene.store, QUEUE, 1, 1, settings=moving(policy="migrate"))
    await Producer(scene.store).enqueue(QUEUE, "x", None, delay=3600)
    await promote(scene.store, QUEUE, 2, 1)
    await scene.read()
    await scene.store.fence(PartitionRef(QUEUE, 1, 0), Fence(7, "younger"))
    with pytest.raises(Fenced) as refused:
        await scene.run(Migration())
    assert (refused.value.epoch, refused.value.newer) == (1, 7)
    assert await live(scene.store, 1) == {"scheduled": 1}
    scene.token = Token(8, "next")
    await scene.run(Migration())
    assert await live(scene.store, 1) == {}
