"""One look after another at a queue in memory, with Pods that come, work and go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace.errors import StoreUnavailable
from headrace.lifecycle import configure, promote
from headrace.stores.base import Unknown
from headrace_operator.scaling import Limit
from tests.conformance.steps import new
from tests.unit.operator.scaling.scene import WORKERS, Scene, idle_workers, jobs
from tests.unit.operator.scaling.workers_in_memory import BEGIN, QUEUE
from tests.unit.operator.scene import queue

# ---- up --------------------------------------------------------------------------------------------------------------


async def test_O20_a_queue_at_zero_gets_workers_at_the_first_look_after_a_job(scene: Scene) -> None:
    assert scene.workers.replicas == 0
    scene.workers.now += 1
    await scene.enqueue(*jobs(100))
    # 100 jobs of 1 s within 10 s are 10 slots; as many for the 10 a second that may go on to arrive, and 3 in reserve.
    assert await scene.look(woken=True) == 6  # 4 slots each
    (event,) = scene.recorder.events
    assert event.message.startswith("mail-workers: 0 -> 6 replicas (100 ready, 0 running")
    assert scene.memory.scaled_at == BEGIN + timedelta(seconds=1)


async def test_a_sleeping_queue_costs_a_glance(scene: Scene) -> None:
    class Glanced:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def __getattr__(self, name: str) -> Any:
            self.calls.append(name)
            return getattr(scene.store, name)

    scene.seen = glanced = Glanced()
    for _ in range(5):
        scene.workers.now += 10
        await scene.look()
        assert scene.again == 10
    assert set(glanced.calls) == {"glance"}
    await scene.enqueue("a")
    assert await scene.look() == 1  # without any wake


async def test_QC7_a_sleeping_queue_is_woken_before_its_next_job_is_due(scene: Scene) -> None:
    await scene.enqueue(new("later", -95_000))
    await scene.look(woken=True)
    assert scene.workers.replicas == 0
    looks = []
    while scene.workers.replicas == 0:
        scene.workers.now += scene.again
        looks.append(scene.workers.now)
        await scene.look()
    assert 84.9 <= looks[-1] <= 86  # 10 s before, which is how long a Pod is believed to take
    assert len(looks) < 15


async def test_E4_jobs_for_next_week_start_nobody(scene: Scene) -> None:
    for partition in range(2):
        await scene.enqueue(*(new(f"j{n}", -604_800_000) for n in range(500)), partition=partition)
    assert await scene.look(woken=True) == 0
    assert await scene.pass_time(120, step=10) == [0] * 12


async def test_E3_jobs_of_an_unknown_type_start_one_worker_once_per_template(scene: Scene) -> None:
    await scene.enqueue("a")
    assert await scene.look(woken=True) == 1
    scene.workers.now += 5
    await scene.workers.settle()
    claimed = await scene.claim("pod-01", 1)
    topology = await scene.store.read_topology(QUEUE)
    assert topology is not None
    await scene.store.park(topology.refs(1)[0], [Unknown(key, token, "strange") for key, token in claimed])
    scene.workers.running.clear()
    assert (await scene.pass_time(300))[-1] == 0
    assert await scene.look(woken=True) == 0
    scene.workers.deployment["spec"]["template"]["metadata"]["labels"]["version"] = "2"
    assert await scene.look(woken=True) == 1
    assert (await scene.pass_time(300))[-1] == 0


async def test_E3_a_paused_queue_gets_none(scene: Scene) -> None:
    scene.queue = queue(workers=WORKERS, paused=True)
    await configure(scene.store, QUEUE, scene.queue.spec.settings())  # type: ignore[union-attr]
    await scene.enqueue(*jobs(500))
    assert await scene.look(woken=True) == 0
    scene.queue = queue(workers=WORKERS)
    await configure(scene.store, QUEUE, scene.queue.spec.settings())  # type: ignore[union-attr]
    assert await scene.look(woken=True) == 10


async def test_O44_a_draining_version_without_workers_gets_some(scene: Scene) -> None:
    await scene.enqueue("a")
    await promote(scene.store, QUEUE, 2, 2)
    assert await scene.look(woken=True) == 1


# ---- down ------------------------------------------------------------------------------------------------------------


async def test_O18_QG6_idle_workers_go_step_by_step_and_what_runs_is_never_stopped(scene: Scene) -> None:
    await idle_workers(scene, 4)
    await scene.enqueue("long")
    (running,) = await scene.claim("pod-02", 2)
    numbers = await scene.pass_time(300)
    assert sorted(set(numbers), reverse=True) == [4, 2, 1]
    assert scene.workers.pods == ["pod-02"]
    await scene.finish("pod-02", [running])
    numbers = await scene.pass_time(100)
    assert numbers[-1] == 0
    assert "pod-02" not in scene.workers.stopped[:3]


async def test_a_worker_is_told_to_take_no_more_before_it_is_stopped(scene: Scene) -> None:
    await idle_workers(scene, 2)
    scene.workers.running = {"pod-01": 3, "pod-02": 1}
    await scene.enqueue(*jobs(4, "run"))
    claimed = {pod: await scene.claim(pod, 7 + n, n) for n, pod in ((3, "pod-01"), (1, "pod-02"))}
    scene.workers.running = {"pod-01": 3, "pod-02": 1}
    await scene.pass_time(70)
    told = {entry.worker: entry.stop_ms is not None for entry in await scene.store.workers(QUEUE)}
    assert told == {"pod-01": False, "pod-02": True}
    assert (await scene.pass_time(300))[-1] == 2  # as long as its job takes
    await scene.finish("pod-02", claimed["pod-02"])
    assert (await scene.pass_time(20))[-1] == 1
    assert scene.workers.pods == ["pod-01"]


async def test_a_worker_that_is_silent_is_not_taken_for_idle(scene: Scene) -> None:
    await idle_workers(scene, 2)
    await scene.enqueue("a")
    held = await scene.claim("pod-02", 1)
    scene.workers.running.clear()  # they have not said so yet, and say nothing any more
    scene.workers.beats = False
    assert set(await scene.pass_time(200)) == {2}
    scene.workers.beats, scene.workers.running = True, {"pod-02": 1}
    assert (await scene.pass_time(20))[-1] == 1
    assert scene.workers.pods == ["pod-02"]
    await scene.finish("pod-02", held)
    assert (await scene.pass_time(100))[-1] == 0


async def test_O42_pods_that_have_not_started_go_first_and_at_once(scene: Scene) -> None:
    await idle_workers(scene, 2)
    scene.workers.running = dict.fromkeys(scene.workers.pods, 0)
    scene.workers.start = 1000.0
    scene.workers.deployment["spec"]["replicas"] = 4
    await scene.workers.settle()
    numbers = await scene.pass_time(62)
    assert numbers[-1] == 2
    assert scene.workers.stopped == ["pod-03", "pod-04"]


async def test_workers_are_taken_back_when_more_are_needed(scene: Scene) -> None:
    await idle_workers(scene, 4)
    scene.workers.running = dict.fromkeys(scene.workers.pods, 1)
    await scene.pass_time(80)
    left = {entry.worker for entry in await scene.store.workers(QUEUE) if entry.stop_ms is not None}
    assert left
    alive = list(scene.workers.pods)
    await scene.enqueue(*jobs(160, "again"))
    assert (await scene.pass_time(2))[-1] >= 4
    assert set(alive) <= set(scene.workers.pods)
    assert not [entry for entry in await scene.store.workers(QUEUE) if entry.stop_ms is not None]


async def test_the_last_worker_stays_if_a_job_comes_while_the_queue_falls_asleep(scene: Scene) -> None:
    await idle_workers(scene, 1)

    class Late:
        """A store in which a job comes just before the last partition is put to sleep."""

        async def sleep(self, ref: Any, horizon_ms: int) -> Any:
            if ref.partition == 1:
                await scene.enqueue("late", partition=1)
            return await scene.store.sleep(ref, horizon_ms)

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.store, name)

    scene.seen = Late()
    numbers = await scene.pass_time(150)
    assert set(numbers) == {1}
    assert not [entry for entry in await scene.store.workers(QUEUE) if entry.stop_ms is not None]


async def test_O19_workers_of_a_queue_that_is_new_to_us_stay_for_the_idle_time() -> None:
    scene = Scene()
    await scene.create()
    scene.workers.deployment["spec"]["replicas"] = 2
    await scene.workers.settle()
    numbers = await scene.pass_time(240)
    assert set(numbers[:29]) == {2}
    assert numbers[-1] == 0


async def test_a_lowered_maximum_holds_at_once_and_the_least_busy_go(scene: Scene) -> None:
    await idle_workers(scene, 4)
    scene.workers.running = {"pod-01": 2, "pod-02": 0, "pod-03": 5, "pod-04": 1}
    await scene.workers.settle()
    scene.queue = queue(workers=WORKERS, scaling={"maxReplicas": 2})
    assert await scene.look(woken=True) == 2
    assert scene.workers.pods == ["pod-01", "pod-03"]


async def test_min_replicas_are_there_without_any_job() -> None:
    scene = Scene(minReplicas=2)
    await scene.create()
    assert await scene.look(woken=True) == 2
    assert scene.memory.decision is not None
    assert scene.memory.decision.limited_by is Limit.MIN_REPLICAS
    assert set(await scene.pass_time(300, step=5)) == {2}


# ---- what goes wrong -------------------------------------------------------------------------------------------------


async def test_O12_O13_without_figures_the_number_stays_and_then_falls_back_upward_only(scene: Scene) -> None:
    class Away:
        def __getattr__(self, name: str) -> Any:
            async def fails(*_: Any) -> Any:
                raise StoreUnavailable("redis is away")

            return fails

    scene.seen = Away()
    assert [await scene.look(woken=True) for _ in range(4)] == [0, 0, 1, 1]
    scene.seen = scene.store
    scene.queue = queue(workers=WORKERS, scaling={"minReplicas": 3, "fallback": {"replicas": 2}})
    assert await scene.look(woken=True) == 3
    scene.seen = None
    assert [await scene.look(woken=True) for _ in range(4)] == [3] * 4


async def test_O12_a_store_that_takes_no_word_to_workers_stops_nobody_and_breaks_no_look(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    await idle_workers(scene, 2)
    scene.workers.running = dict.fromkeys(scene.workers.pods, 0)

    class Deaf:
        """A store that answers, and takes nothing for workers."""

        async def stop_claiming(self, *_: Any) -> None:
            raise StoreUnavailable("redis is away")

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.store, name)

    scene.seen = Deaf()
    assert set(await scene.pass_time(100)) == {2}
    assert "workers were not told" in caplog.text
    assert not scene.memory.retired
    scene.seen = scene.store
    assert min(await scene.pass_time(150)) < 2  # the next step down is tried like the first one


async def test_a_queue_that_is_unknown_is_not_taken_for_empty(scene: Scene) -> None:
    await idle_workers(scene, 2)
    scene.store._data.topologies.clear()
    assert set(await scene.pass_time(200)) == {2}


async def test_a_deployment_that_has_changed_is_read_again(scene: Scene) -> None:
    await scene.enqueue("a")
    stale = await scene.target()
    scene.workers.deployment["metadata"]["resourceVersion"] = "99"
    looked = await scene.scaler.look(stale, scene.memory, woken=True)
    assert looked.target is not None
    assert looked.target.deployment.version == "99"
    assert looked.again < 1
    looked = await scene.scaler.look(looked.target, scene.memory, woken=True)
    assert scene.workers.replicas == 1


async def test_a_deployment_that_is_gone_is_let_go(scene: Scene) -> None:
    await scene.enqueue("a")
    target = await scene.target()
    scene.workers.api.objects.clear()
    assert (await scene.scaler.look(target, scene.memory, woken=True)).target is None


async def test_a_successor_goes_on_where_the_former_ended(scene: Scene) -> None:
    await idle_workers(scene, 4)
    await scene.pass_time(50)
    scene.restart()
    numbers = await scene.pass_time(30)
    assert numbers[-1] == 2  # a minute after the load ended, not a minute after the restart


async def test_O29_somebody_who_writes_replicas_again_and_again_is_named_and_not_fought(scene: Scene) -> None:
    await scene.enqueue(*jobs(100))
    writes = 0
    for _ in range(30):
        if await scene.look(woken=True) > 1:
            writes += 1
            scene.workers.deployment["spec"]["replicas"] = 1
            scene.workers.api.written_by("argocd-controller")
        scene.workers.now += 2
    assert scene.memory.writer == "argocd-controller"
    assert writes <= 5
    await scene.pass_time(310)
    assert scene.memory.writer == ""
