"""The scalers that are compared: ours, KEDA's list rule with its HPA, and an HPA that follows CPU."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Protocol

from headrace_operator.scaling import Inputs, Load, Pods, Record, Rules, Worker, cold_start, decide, leaving
from tests.simulation.scaling.world import World

MAX_REPLICAS = 50


class Scaler(Protocol):
    """Acts on a world by itself once it is attached."""

    name: str

    def attach(self, world: World) -> None:
        """Begin to look."""
        ...


class Headrace:
    """Our policy with its defaults, as the operator uses it.

    Workers there: a look every 2 s. None: a look when an enqueue says that it woke the queue, when a delayed job comes
    within a Pod's start, and every 10 s in case the message was lost.
    """

    name = "Headrace"
    looks = 2.0
    sweep = 10.0
    wake = 0.05

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules(max_replicas=MAX_REPLICAS)
        self.changes: list[tuple[float, int]] = []
        self._stored = Record().to_json()
        self._failures = 0
        self._last = -math.inf

    def attach(self, world: World) -> None:
        """Begin to look."""
        self._world = world
        if world.most_in_flight < math.inf:
            self.rules = replace(self.rules, max_in_flight=int(world.most_in_flight))
        world.every(self.looks, self._tick)
        world.on_wake = self._woken

    def _woken(self) -> None:
        if self._world.replicas == 0:
            self._world.at(self._world.now + self.wake, self._look)

    def _tick(self) -> None:
        world = self._world
        soon = world.due_within(cold_start(Record.from_json(self._stored).cold_starts)) > 0
        if world.replicas or soon or world.now - self._last >= self.sweep:
            self._look()

    def _look(self) -> None:
        world = self._world
        if world.down:
            self._failures, self._last = 0, -math.inf  # a new process: what is not in the record is forgotten
            return
        self._last = world.now
        record = Record.from_json(self._stored)
        load = None
        self._failures += 1
        if not world.blind:
            self._failures = 0
            record, load = self._measured(record)
        taking = [pod for pod in world.alive if not pod.retired]
        pods = Pods(
            len(taking),
            ready=sum(pod.state == "ready" for pod in taking),
            pending=sum(pod.state == "starting" for pod in taking),
            slots=world.slots,
            cold_start=cold_start(record.cold_starts),
        )
        rules = replace(self.rules, held=world.held)
        decision = decide(Inputs(rules, load, pods, record.history, self._failures))
        if load is not None and decision.wanted is not None:
            history = record.history.noted(
                load.now_ms,
                wanted=decision.wanted,
                active=(load.held() if world.held else load).active,
                stepped_down=decision.replicas < pods.replicas,
            )
            record = replace(record, history=history)
        self._stored = record.to_json()
        if decision.replicas != pods.replicas:
            self.changes.append((world.now, decision.replicas))
        self._carry_out(decision.replicas)

    def _measured(self, record: Record) -> tuple[Record, Load]:
        world = self._world
        now_ms = int(world.now * 1000) + 1
        before = record.arrivals.counter
        record = Record(
            record.history,
            record.arrivals.read(now_ms, world.arrived),
            record.service.read(world.ended, world.service_ms),
            tuple(world.cold_starts[-20:]),
        )
        return record, Load(
            now_ms,
            len(world.ready),
            world.in_flight,
            due_in_cold_start=world.due_within(cold_start(record.cold_starts)),
            oldest_ready=world.now - world.ready[0].due if world.ready else None,
            arrivals_per_second=record.arrivals.per_second,
            arrived=world.arrived > before,
            service=record.service.mean,
        )

    def _carry_out(self, taking: int) -> None:
        world = self._world
        pods = {str(number): pod for number, pod in enumerate(world.alive)}
        left = leaving(
            (
                Worker(name, pod.state == "ready", len(pod.running), pod.retired, not pod.running, pod.created)
                for name, pod in pods.items()
            ),
            taking,
        )
        for name, pod in pods.items():
            pod.retired = name in left.retired
        world.stop([pods[name] for name in left.stopped])
        world.start(taking - len(pods))
        world.changed()


class _Hpa:
    """What any HorizontalPodAutoscaler does: a look every 15 s, a tolerance of 10 %, up by doubling or by 4 Pods per
    look, down to the largest recommendation of 5 minutes."""

    sync = 15.0
    tolerance = 0.1
    stabilization = 300.0

    def __init__(self) -> None:
        self.changes: list[tuple[float, int]] = []
        self._recommended: deque[tuple[float, int]] = deque()

    def limited(self, now: float, current: int, desired: int) -> int:
        desired = max(1, min(MAX_REPLICAS, desired))
        self._recommended.append((now, desired))
        while self._recommended[0][0] <= now - self.stabilization:
            self._recommended.popleft()
        if desired > current:
            return min(desired, max(2 * current, current + 4))
        return min(current, max(count for _, count in self._recommended))

    def change(self, world: World, replicas: int) -> None:
        if replicas != world.replicas:
            self.changes.append((world.now, replicas))
            world.scale(replicas)


class KedaList(_Hpa):
    """The published rule of KEDA for a Redis list.

    A poll every 30 s wakes, an HPA makes it ``ceil(length / 5)``, and it is zero when the list was empty for 300 s. It
    sees jobs that wait, not those that run or are due later.
    """

    name = "KEDA list length"
    poll = 30.0
    list_length = 5
    cooldown = 300.0

    def attach(self, world: World) -> None:
        """Begin to look."""
        self._world = world
        self._active_at = 0.0
        # The first poll falls anywhere into its interval; where, is the luck of the installation.
        world.every(self.poll, self._poll, first=self.poll / 2)
        world.every(self.sync, self._sync, first=self.sync / 2)

    def _poll(self) -> None:
        world = self._world
        if world.down or world.blind:
            return
        if world.ready:
            self._active_at = world.now
            if world.replicas == 0:
                self.change(world, 1)
        elif world.replicas and world.now - self._active_at >= self.cooldown:
            self.change(world, 0)

    def _sync(self) -> None:
        world = self._world
        current = world.replicas
        if current == 0 or world.blind:
            return
        length = len(world.ready)
        ratio = length / (self.list_length * current)
        near = abs(1 - ratio) <= self.tolerance
        desired = current if near else math.ceil(length / self.list_length)
        self.change(world, self.limited(world.now, current, desired))


class KedaTuned(KedaList):
    """The same rule with settings that fit these workers: 8 jobs per Pod, as they run 8 at a time, a poll every 5 s, a
    minute in place of five."""

    name = "KEDA, tuned"
    poll = 5.0
    list_length = 8
    cooldown = 60.0
    stabilization = 60.0


class CpuHpa(_Hpa):
    """An HPA that keeps the workers' CPU at 80 %, for jobs that use it fully. It cannot go to zero.

    Its figures are the mean of half a minute, as those of the metrics server.
    """

    name = "HPA on CPU"
    target = 0.8
    age = 30.0

    def attach(self, world: World) -> None:
        """Begin to look."""
        self._world = world
        self._samples: deque[tuple[float, float]] = deque()
        world.scale(1)
        world.every(5.0, self._sample)
        world.every(self.sync, self._sync, first=self.sync / 2)

    def _sample(self) -> None:
        world = self._world
        working = world.working
        if working:
            used = sum(len(pod.running) for pod in working) / (world.slots * len(working))
            self._samples.append((world.now, used))
        while self._samples and self._samples[0][0] < world.now - self.age:
            self._samples.popleft()

    def _sync(self) -> None:
        world = self._world
        if world.blind or not self._samples:
            return
        current = world.replicas
        ratio = sum(used for _, used in self._samples) / len(self._samples) / self.target
        desired = current if abs(1 - ratio) <= self.tolerance else math.ceil(current * ratio)
        self.change(world, self.limited(world.now, current, desired))


SCALERS = (Headrace, KedaList, KedaTuned, CpuHpa)
