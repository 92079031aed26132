"""Looks at many queues: when they are due, when one was woken, and whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.errors import StoreUnavailable
from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes.client import ApiUnavailable
from headrace_operator.scaling import Limit
from headrace_operator.scaling.loop import ScalingLoop
from headrace_operator.scaling.scaler import Looked, Scaler, ScalingMemory
from headrace_operator.scaling.sleep import fall_asleep
from headrace_operator.scaling.target import Target
from tests.unit.operator.scaling.scene import WORKERS, Scene
from tests.unit.operator.scaling.workers_in_memory import QUEUE
from tests.unit.operator.scene import queue

KEY = QueueKey("ns", "mail")
PATIENCE = 10.0


class Stage:
    """A loop over the scaler of a scene. ``told``: Queues that a pass is to look at."""

    def __init__(self, scene: Scene, scaler: Any = None) -> None:
        self.scene = scene
        self.told: list[QueueKey] = []
        self.loop = ScalingLoop(
            cast(Scaler, scaler or scene.scaler),
            clock=asyncio.get_running_loop().time,
            told=lambda key, _: self.told.append(key),
            uniform=lambda low, _: low / 100,
        )


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[ScalingLoop]:
    task = asyncio.create_task(stage.loop.run())
    try:
        yield stage.loop
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():
            await asyncio.sleep(0.01)


@pytest.fixture
async def scene() -> Scene:
    """Nobody has looked at it yet."""
    made = Scene()
    await made.create()
    return made


class Counting:
    """A scaler that counts looks, and does what it is told."""

    def __init__(self, *outcomes: Exception | float) -> None:
        self.outcomes = list(outcomes)
        self.looks: list[tuple[str, bool]] = []

    async def look(self, target: Target, memory: ScalingMemory, *, woken: bool) -> Looked:
        self.looks.append((target.queue.name, woken))
        outcome = self.outcomes.pop(0) if self.outcomes else 600.0
        if isinstance(outcome, Exception):
            raise outcome
        return Looked(target, outcome)


class Quiet:
    """A scaler and a store that tell when the loop is at rest: it listens, and no look is left to do."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.listens = False
        self.decided = False

    async def look(self, target: Target, memory: ScalingMemory, *, woken: bool) -> Looked:
        self.decided = False
        looked = await self._scene.scaler.look(target, memory, woken=woken)
        self.decided = memory.decision is not None
        return looked

    async def wait_wakes(self, after: bytes, timeout: float) -> Any:
        self.listens = True
        return await self._scene.store.wait_wakes(after, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scene.store, name)


async def test_O20_a_wake_leads_to_a_look_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # By itself it would look again long after this test has failed.
    monkeypatch.setattr("headrace_operator.scaling.scaler.SWEEP_SECONDS", 600.0)
    scene.seen = quiet = Quiet(scene)
    assert await fall_asleep(scene.store, QUEUE, 10.0)
    async with running(Stage(scene, quiet)) as loop:
        loop.observed(KEY, await scene.target())
        await until(lambda: quiet.listens and quiet.decided and KEY not in loop._woken)
        assert scene.workers.replicas == 0
        await scene.enqueue("job")
        await until(lambda: scene.workers.replicas > 0)


async def test_a_queue_is_looked_at_again_when_it_is_due(scene: Scene) -> None:
    counting = Counting(0.02, 0.02)
    async with running(Stage(scene, counting)) as loop:
        loop.observed(KEY, replace(await scene.target(), store=None))
        await until(lambda: len(counting.looks) == 3)
        assert counting.looks == [("mail", True), ("mail", False), ("mail", False)]


async def test_what_a_pass_sees_anew_is_looked_at_only_if_it_matters(scene: Scene) -> None:
    counting = Counting()
    seen = replace(await scene.target(), store=None)
    async with running(Stage(scene, counting)) as loop:
        loop.observed(KEY, seen)
        await until(lambda: len(counting.looks) == 1)
        loop.observed(KEY, replace(seen, queue=replace(seen.queue, resource_version="71")))
        loop.observed(KEY, replace(seen, queue=replace(seen.queue, generation=8)))
        await until(lambda: len(counting.looks) == 2)
        ready = replace(seen.deployment, ready=1)
        loop.observed(KEY, replace(seen, queue=replace(seen.queue, generation=8), deployment=ready))
        await until(lambda: len(counting.looks) == 3)


async def test_a_failed_look_is_repeated_and_others_go_on(scene: Scene) -> None:
    counting = Counting(ApiUnavailable("no answer"), RuntimeError("a defect"), 600.0)
    seen = replace(await scene.target(), store=None)
    async with running(Stage(scene, counting)) as loop:
        loop.observed(KEY, seen)
        await until(lambda: len(counting.looks) == 3)
        loop.observed(QueueKey("ns", "other"), replace(seen, queue=replace(seen.queue, name="other", uid="u2")))
        await until(lambda: ("other", True) in counting.looks)


async def test_a_queue_that_is_let_go_is_not_looked_at(scene: Scene) -> None:
    counting = Counting(*[0.02] * 1000)
    async with running(Stage(scene, counting)) as loop:
        loop.observed(KEY, replace(await scene.target(), store=None))
        await until(lambda: len(counting.looks) > 2)
        loop.observed(KEY, None)
        await asyncio.sleep(0)
        looks = len(counting.looks)
        other = replace(await scene.target(), store=None)
        loop.observed(QueueKey("ns", "other"), replace(other, queue=replace(other.queue, name="other")))
        await until(lambda: sum(name == "other" for name, _ in counting.looks) > 3)
        assert sum(name == "mail" for name, _ in counting.looks) <= looks + 1


async def test_a_deployment_that_is_gone_sends_a_pass_there(scene: Scene) -> None:
    stage = Stage(scene)
    await scene.enqueue("a")
    target = await scene.target()
    scene.workers.api.objects.clear()
    async with running(stage) as loop:
        loop.observed(KEY, target)
        await until(lambda: KEY in stage.told)


async def test_a_limit_is_told_and_sends_a_pass_there(scene: Scene) -> None:
    stage = Stage(scene)
    scene.queue = queue(workers=WORKERS, scaling={"maxReplicas": 1})
    await scene.enqueue(*(f"job-{n}" for n in range(200)))
    async with running(stage) as loop:
        loop.observed(KEY, await scene.target())
        await until(lambda: loop.report(KEY).limit is Limit.MAX_REPLICAS)
        assert loop.report(KEY).scaled_at is not None
        await until(lambda: KEY in stage.told)
    assert scene.workers.replicas == 1


async def test_a_store_that_was_away_is_listened_to_again(scene: Scene) -> None:
    class Away:
        """Answers nobody who listens, for a while."""

        def __init__(self) -> None:
            self.failures = 3

        async def last_wake(self) -> bytes:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("redis is away")
            return await scene.store.last_wake()

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.store, name)

    scene.seen = away = Away()
    async with running(Stage(scene)) as loop:
        loop.observed(KEY, await scene.target())
        await until(lambda: away.failures == 0)
        async with asyncio.timeout(8):
            while scene.workers.replicas == 0:
                await scene.enqueue(f"job-{asyncio.get_running_loop().time()}")
                await asyncio.sleep(0.05)
