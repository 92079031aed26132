"""Processes that run jobs and die: of a poisoned job, or for reasons of their own. Time is virtual, chance is seeded.

What a process takes, and who is charged for a lost lease, is decided by a rule (see `tests.simulation.loss.rules`).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import NamedTuple, Protocol

CRASH_LIMIT = 3
RECOVERY = 1.0
"""From a death until its jobs are taken back, and until the process is back; a job takes about 10 of that."""
DURATION = 10.0


@dataclass(eq=False)
class Job:
    """``suspicion``: how often it was lost, 2 at most. ``crashes``: losses that it was charged with."""

    poisoned: bool
    duration: float
    suspicion: int = 0
    crashes: int = 0
    lost_at: float | None = None
    cleared_at: float | None = None
    group: int = 0


@dataclass(eq=False)
class Process:
    """``alone``: it runs a job that must run alone. ``life`` counts its deaths, which void what was planned before."""

    running: dict[Job, None] = field(default_factory=dict)
    up: bool = True
    alone: bool = False
    life: int = 0


class Rule(Protocol):
    """A rule for jobs whose lease was lost."""

    def charges(self, job: Job, process: Process, lost: int) -> bool:
        """Whether ``job``, lost by ``process`` with so many jobs in all, is charged with a crash."""
        ...

    def take_back(self, world: World, job: Job, lost: int) -> None:
        """Queue a job that was lost."""
        ...

    def take(self, world: World, process: Process) -> None:
        """Start what the process may run now."""
        ...


class Result(NamedTuple):
    """``charged`` and ``innocent_dead`` count innocent jobs; ``last`` and ``middle``: how long they were suspected."""

    crashes: int
    suspected: int
    charged: int
    innocent_dead: int
    poisoned_dead: int
    last: float
    middle: float
    took: float


class World:
    """``processes`` with ``slots`` each work off ``jobs``, of which ``poisoned`` kill the process that runs them."""

    def __init__(
        self, rule: Rule, *, seed: int, jobs: int, poisoned: int, processes: int = 4, slots: int = 100
    ) -> None:
        self._random = random.Random(seed)
        self._rule = rule
        self.slots = slots
        self.processes = [Process() for _ in range(processes)]
        chosen = set(self._random.sample(range(jobs), poisoned))
        self.all = [Job(n in chosen, DURATION * self._random.uniform(0.5, 1.5)) for n in range(jobs)]
        self.fresh = self.all[::-1]
        self.suspects: list[Job] = []
        self.apart: list[Job] = []
        self.making_room: Process | None = None
        self.dead: list[Job] = []
        self.crashes = 0
        self.now = 0.0
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def plan(self, after: float, action: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._plans, (self.now + after, next(self._number), action))

    def run(self) -> Result:
        """Let time pass until nothing is left to do."""
        self._fill()
        while self._plans:
            self.now, _, action = heapq.heappop(self._plans)
            action()
        innocent = [job for job in self.all if not job.poisoned]
        times = [job.cleared_at - job.lost_at for job in innocent if job.lost_at is not None and job.cleared_at]
        return Result(
            self.crashes,
            sum(job.lost_at is not None for job in innocent),
            sum(job.crashes > 0 for job in innocent),
            sum(not job.poisoned for job in self.dead),
            sum(job.poisoned for job in self.dead),
            max(times, default=0.0),
            median(times or [0.0]),
            self.now,
        )

    # ---- what happens ----------------------------------------------------------------------------------------------

    def start(self, process: Process, job: Job) -> None:
        """Run a job in a process."""
        process.running[job] = None
        life = process.life
        if job.poisoned:
            self.plan(job.duration * self._random.random(), lambda: self._poison(process, life, job))
        else:
            self.plan(job.duration, lambda: self._end(process, life, job))

    def kill(self, process: Process) -> None:
        """End a process with all that it runs; it is back soon, and its jobs are taken back."""
        self.crashes += 1
        lost = list(process.running)
        self._random.shuffle(lost)
        was = Process(alone=process.alone)
        process.running, process.alone, process.up = {}, False, False
        process.life += 1
        if self.making_room is process:
            self.making_room = None
        self.plan(RECOVERY, lambda: self._take_back(was, lost))
        self.plan(RECOVERY, lambda: self._come_back(process))

    def _end(self, process: Process, life: int, job: Job) -> None:
        if process.life == life:
            del process.running[job]
            job.cleared_at = self.now
            self._fill()

    def _poison(self, process: Process, life: int, job: Job) -> None:
        if process.life == life and job in process.running:
            self.kill(process)

    def _come_back(self, process: Process) -> None:
        process.up = True
        self._fill()

    def _take_back(self, process: Process, lost: list[Job]) -> None:
        for job in lost:
            job.lost_at = self.now if job.lost_at is None else job.lost_at
            if self._rule.charges(job, process, len(lost)):
                job.crashes += 1
                if job.crashes == CRASH_LIMIT:
                    self.dead.append(job)
                    continue
            self._rule.take_back(self, job, len(lost))
        self._fill()

    def _fill(self) -> None:
        """Let every process take what it may, those that run least first, as idle ones wake first."""
        order = list(self.processes)
        self._random.shuffle(order)
        for process in sorted(order, key=lambda each: len(each.running)):
            if process.up:
                self._rule.take(self, process)
