"""Whoever is not heard is not taken for idle: while Redis is away, and when a process is too busy to speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import StoreUnavailable
from headrace_operator.scaling.pods import living_pods
from tests.unit.operator.scaling.scene import WORKERS, Scene, idle_workers, jobs
from tests.unit.operator.scaling.workers_in_memory import QUEUE
from tests.unit.operator.scene import queue


class Away:
    """A store that answers none of the ``methods``; empty: nothing at all."""

    def __init__(self, scene: Scene, *methods: str) -> None:
        self._scene, self._methods = scene, methods

    def __getattr__(self, name: str) -> Any:
        async def fails(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("redis is away")

        return fails if not self._methods or name in self._methods else getattr(self._scene.store, name)


async def busy_and_told(scene: Scene) -> None:
    """Three workers that run a job each, two of which were told long ago to take no more."""
    await idle_workers(scene, 3)
    await scene.enqueue(*jobs(3))
    for number, pod in enumerate(list(scene.workers.pods)):
        await scene.claim(pod, number + 1, 1)
    assert set(await scene.pass_time(150)) == {3}
    assert len(scene.memory.retired) == 2


@pytest.mark.parametrize(
    "seen",
    [lambda scene: Away(scene), lambda scene: Away(scene, "workers"), lambda scene: None],
    ids=["away", "registry", "unknown"],
)
async def test_O12_QG6_no_busy_worker_is_stopped_while_redis_says_nothing_of_it(
    scene: Scene, seen: Callable[[Scene], Any]
) -> None:
    await busy_and_told(scene)
    scene.seen = seen(scene)
    assert set(await scene.pass_time(80)) == {3}
    scene.seen = scene.store
    assert set(await scene.pass_time(80)) == {3}
    assert scene.workers.stopped == []


async def test_O12_workers_are_added_while_the_registry_cannot_be_read(scene: Scene) -> None:
    await busy_and_told(scene)
    scene.seen = Away(scene, "workers")
    await scene.enqueue(*jobs(400, "more"))
    assert (await scene.pass_time(4))[-1] > 3
    assert scene.workers.stopped == []


async def test_QG6_one_that_fell_silent_before_it_was_told_is_not_taken_for_idle() -> None:
    scene = Scene(minReplicas=2)
    await scene.create()
    await scene.look(woken=True)
    await scene.pass_time(10)
    await scene.enqueue("a")
    held = await scene.claim("pod-01", 1)
    scene.workers.beats = False
    await scene.pass_time(100)
    assert await scene.store.workers(QUEUE) == []
    scene.queue = queue(workers=WORKERS)
    assert set(await scene.pass_time(200)) == {2}
    assert scene.memory.retired
    await scene.finish("pod-01", held)
    scene.workers.beats = True
    assert (await scene.pass_time(40))[-1] == 1


async def test_QG6_one_that_is_silent_and_not_ready_has_started_all_the_same(scene: Scene) -> None:
    """Its handler blocks the process, so that the probe fails as well; until a container of it ends."""
    await idle_workers(scene, 2)
    await scene.enqueue("a")
    await scene.claim("pod-01", 1)
    await scene.workers.fail()
    assert set(await scene.pass_time(200)) == {2}
    scene.workers.failing = {"pod-01"}
    assert set(await scene.pass_time(20)) == {2}
    scene.workers.ended = {"pod-01": scene.workers.now}
    assert (await scene.pass_time(10))[-1] == 1
    assert scene.workers.stopped == ["pod-01"]


def test_what_happened_last_to_a_container_is_its_start_or_its_end() -> None:
    def changed(*containers: dict[str, Any]) -> float:
        metadata = {"name": "p", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z"}
        (pod,) = living_pods([{"metadata": metadata, "status": {"containerStatuses": list(containers)}}])
        return pod.changed

    began = {"state": {"running": {"startedAt": "1970-01-01T00:00:10Z"}}}
    ended = {"terminated": {"startedAt": "1970-01-01T00:00:10Z", "finishedAt": "1970-01-01T00:00:20Z"}}
    assert changed() == 0
    assert changed(began) == 10
    assert changed(began, {"state": ended}) == 20
    assert changed({"state": {"waiting": {}}, "lastState": ended}) == 20
    assert changed({"state": {"terminated": {"finishedAt": None}}}) == 0
