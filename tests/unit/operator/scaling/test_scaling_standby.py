"""Whose word that it holds no job counts: of a worker that takes none when it says so, by an order that stands."""

from __future__ import annotations

from headrace.stores.base import Beat, WorkerEntry
from headrace_operator.scaling.pods import WorkerPod, workers_of
from tests.unit.operator.scaling.scene import Scene, idle_workers
from tests.unit.operator.scaling.workers_in_memory import QUEUE


async def given_up(scene: Scene) -> tuple[str, str]:
    """Two idle workers, of whom one has just been told to take no more, and has not learnt it: its Pod, the other's."""
    await idle_workers(scene, 2)
    while not scene.memory.retired:
        await scene.pass_time(2)
        scene.workers.beats = scene.workers.now < 50
    (leaves,) = scene.memory.retired
    return leaves, next(pod for pod in scene.workers.pods if pod != leaves)


async def test_QG6_a_beat_that_comes_late_says_nothing_of_what_is_claimed_before_its_answer(scene: Scene) -> None:
    """It was composed before the worker knew that it is to take no more, however long after it was told."""
    leaves, stays = await given_up(scene)
    await scene.pass_time(20)
    await scene.workers.beat(leaves)
    scene.workers.tills[leaves] = 0  # its answer is on the way
    await scene.enqueue("a")
    held = await scene.claim(leaves, 1)
    scene.workers.beats = False
    assert set(await scene.pass_time(10)) == {2}
    scene.workers.beats = True
    assert set(await scene.pass_time(60)) == {2}
    await scene.finish(leaves, held)
    assert (await scene.pass_time(20))[-1] == 1
    assert scene.workers.pods == [stays]


async def test_QG6_a_tick_without_a_beat_makes_no_beat_younger(scene: Scene) -> None:
    leaves, _ = await given_up(scene)
    await scene.workers.beat(leaves)
    scene.workers.tills[leaves] = 0
    await scene.enqueue("a")
    held = await scene.claim(leaves, 1)
    for _ in range(5):
        scene.workers.now += 2
        await scene.store.tick(QUEUE, leaves)  # at the alarm of the queue
        assert await scene.look() == 2
    await scene.finish(leaves, held)


def test_QG6_obedience_to_an_order_that_was_taken_back_is_no_proof() -> None:
    """Nor is one that soon ends: its Pod is told to end a moment later."""

    def quiet(told: float, stands_by: float) -> bool:
        """Of a worker that was told so long ago, and stands by for so long still."""
        entry = WorkerEntry("w", 100, Beat(pod="p"), 30_000, stands_by_ms=round(stands_by * 1000))
        (worker,) = workers_of([WorkerPod("p", "u", 0.0, 1.0)], [entry], {"p": 1000.0 - told}, 1000.0)
        return worker.quiet

    assert [quiet(2, stands_by) for stands_by in (0, 26, 27.9, 28, 30)] == [False, False, False, True, True]
    assert [quiet(600, stands_by) for stands_by in (0, 9.9, 10, 30)] == [False, False, True, True]


async def test_QG6_another_process_in_the_pod_has_to_say_so_itself(scene: Scene) -> None:
    leaves, _ = await given_up(scene)
    for _ in range(2):
        await scene.workers.beat(leaves)
    await scene.store.leave(QUEUE, leaves)
    for _ in range(5):
        scene.workers.now += 2
        await scene.store.tick(QUEUE, f"{leaves}-again", Beat(pod=leaves, slots=4))
        assert await scene.look() == 2


async def test_QG6_an_order_that_a_failover_has_forgotten_counts_only_when_a_newer_one_is_repeated(
    scene: Scene,
) -> None:
    """The worker says until when it stands by, as it last learnt, and learns that it may go on."""
    leaves, stays = await given_up(scene)
    await scene.workers.beat(leaves)
    scene.workers.now += 1
    await scene.store.stop_claiming(QUEUE, [leaves], 0)
    await scene.workers.beat(leaves)
    await scene.enqueue("a")
    held = await scene.claim(leaves, 1)
    scene.workers.now += 1
    assert await scene.look() == 2
    assert set(await scene.pass_time(6)) == {2}
    await scene.finish(leaves, held)
    scene.workers.beats = True
    assert (await scene.pass_time(20))[-1] == 1
    assert scene.workers.pods == [stays]
