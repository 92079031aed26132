"""Which Pods count as started, and how long that took: not those that were ready before, and are again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace_operator.scaling.pods import living_pods, new_starts
from tests.unit.operator.scaling.scene import WORKERS, Scene, jobs
from tests.unit.operator.scaling.workers_in_memory import BEGIN, QUEUE
from tests.unit.operator.scene import queue


async def test_starts_of_pods_are_measured(scene: Scene) -> None:
    scene.workers.start = 7.0
    await scene.enqueue(*jobs(4))
    await scene.look(woken=True)
    await scene.pass_time(10)
    assert scene.memory.record is not None
    assert scene.memory.record.cold_starts == (7.0,)
    scene.restart()
    await scene.look(woken=True)
    assert scene.memory.record is not None
    assert scene.memory.record.cold_starts == (7.0,)  # known, and not measured again


def starts(scene: Scene) -> tuple[float, ...]:
    assert scene.memory.record is not None
    return scene.memory.record.cold_starts


async def test_pods_that_are_ready_again_have_not_started(scene: Scene) -> None:
    scene.queue = queue(workers=WORKERS, scaling={"minReplicas": 1, "maxReplicas": 1})
    await scene.look(woken=True)
    await scene.pass_time(200)
    assert starts(scene) == (3.0,)
    await scene.workers.fail()
    await scene.pass_time(10)
    await scene.workers.recover()
    await scene.pass_time(10)
    assert starts(scene) == (3.0,)
    # A new one that starts meanwhile is measured, and the other one is known all the same.
    await scene.workers.fail()
    scene.queue = queue(workers=WORKERS, scaling={"minReplicas": 2, "maxReplicas": 2})
    await scene.look(woken=True)
    await scene.pass_time(10)
    assert starts(scene) == (3.0, 3.0)
    await scene.workers.recover()
    await scene.pass_time(10)
    assert starts(scene) == (3.0, 3.0)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_successor_takes_no_pods_for_new_that_are_not_ready_when_it_begins(scene: Scene, kept: bool) -> None:
    scene.queue = queue(workers=WORKERS, scaling={"minReplicas": 1})
    await scene.look(woken=True)
    await scene.pass_time(1000)
    if not kept:
        await scene.store.write_scaling(QUEUE, b"{}")
    await scene.workers.fail()
    scene.restart()
    await scene.look(woken=True)
    await scene.workers.recover()
    await scene.pass_time(10)
    assert starts(scene) == ((3.0,) if kept else ())


async def test_a_pod_that_came_in_place_of_another_unseen_has_not_started_when_it_is_ready_again(scene: Scene) -> None:
    scene.queue = queue(workers=WORKERS, scaling={"minReplicas": 1, "maxReplicas": 1})
    await scene.look(woken=True)
    await scene.pass_time(10)
    (old,) = [path for path in scene.workers.api.objects if path.endswith("/pod-01")]
    del scene.workers.api.objects[old]
    await scene.workers.settle()
    scene.workers.now += 4  # its successor is ready before the next look: as many are ready as before
    await scene.workers.settle()
    await scene.pass_time(1000)
    await scene.workers.fail()
    await scene.pass_time(10)
    await scene.workers.recover()
    await scene.pass_time(10)
    assert starts(scene) == (3.0,)


def test_a_start_counts_however_late_its_containers_began_to_run_unless_they_were_restarted() -> None:
    def pod(uid: str, runs: int, ready: int, restarts: int = 0) -> Any:
        at = {name: (BEGIN + timedelta(seconds=n)).isoformat() for name, n in (("runs", runs), ("ready", ready))}
        container = {"restartCount": restarts, "state": {"running": {"startedAt": at["runs"]}}}
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": at["ready"]}
        metadata = {"name": uid, "uid": uid, "creationTimestamp": BEGIN.isoformat()}
        return {"metadata": metadata, "status": {"conditions": [condition], "containerStatuses": [container]}}

    pods = living_pods([pod("no room", 600, 605), pod("ready again", 5, 7200), pod("restarted", 7190, 7200, 1)])
    assert new_starts(pods, (), measured=True) == {"no room": 605.0}
    assert new_starts(pods, ("restarted", "no room")) == {"ready again": 7200.0}  # the only one known so far
