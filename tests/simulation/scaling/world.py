"""A queue, its workers and a clock that jumps from event to event: what a scaler sees, and what its numbers cost."""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

GRACE = 55.0
"""What a stopping Pod gives its jobs to end; the rest is handed back, and runs anew elsewhere."""
WIND_DOWN = 1.0


@dataclass(slots=True)
class Job:
    """``due`` 0 with ``submitted`` 0: there from the beginning. Times in seconds."""

    due: float
    service: float
    submitted: float | None = None
    started: float | None = None

    @property
    def known_since(self) -> float:
        """When it was enqueued."""
        return self.due if self.submitted is None else self.submitted


@dataclass(slots=True, eq=False)
class Pod:
    """One worker."""

    created: float
    state: Literal["starting", "ready", "stopping", "gone"] = "starting"
    retired: bool = False
    running: dict[int, Job] = field(default_factory=dict)
    ended: float = 0.0


class World:
    """One run.

    ``slots``: jobs that a Pod runs at a time; ``most_in_flight``: all of them together. ``starts``: shortest and
    longest start of a Pod. ``held``: intervals in which the queue is paused. ``blind``: in which nobody can measure.
    ``down``: in which the scaler does not run.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        until: float,
        *,
        slots: int = 8,
        most_in_flight: float = math.inf,
        starts: tuple[float, float] = (6.0, 12.0),
        held: Sequence[tuple[float, float]] = (),
        blind: Sequence[tuple[float, float]] = (),
        down: Sequence[tuple[float, float]] = (),
        seed: int = 0,
    ) -> None:
        self.now = 0.0
        self.until = until
        self.slots = slots
        self.most_in_flight = most_in_flight
        self.jobs = sorted(jobs, key=lambda job: job.due)
        self.ready: deque[Job] = deque()
        self.pods: list[Pod] = []
        self.gone: list[Pod] = []
        self.arrived = 0
        """Jobs that have become ready, growing."""
        self.ended = 0
        self.service_ms = 0.0
        self.handed_back = 0
        self.most = 0
        self.cold_starts: list[float] = []
        self.on_wake: Callable[[], None] = lambda: None
        """Called when a job is enqueued."""
        self._held, self._blind, self._down = held, blind, down
        self._starts = starts
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._rotation: deque[Pod] = deque()
        later = sorted((job for job in self.jobs if job.submitted is not None), key=lambda job: job.due)
        self._delayed = [job.due for job in later]
        self._run = 0
        self._next = 0
        for _, end in held:
            self.at(end, self._resume)

    # ---- time ------------------------------------------------------------------------------------------------------

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Call ``event`` at ``time``, or now if that is past."""
        self._number += 1
        heapq.heappush(self._events, (max(time, self.now), self._number, event))

    def every(self, seconds: float, event: Callable[[], None], *, first: float = 0.0) -> None:
        """Call ``event`` again and again."""

        def again() -> None:
            event()
            self.at(self.now + seconds, again)

        self.at(first, again)

    def run(self) -> None:
        """Let it all happen."""
        for job in {id(job): job for job in self.jobs if job.submitted is not None}.values():
            if job.submitted:
                self.at(job.submitted, lambda: self.on_wake())
        while True:
            job_at = self.jobs[self._next].due if self._next < len(self.jobs) else self.until + 1
            event_at = self._events[0][0] if self._events else self.until + 1
            self.now = min(job_at, event_at)
            if self.now > self.until:
                break
            if job_at <= event_at:
                self._arrive()
            else:
                heapq.heappop(self._events)[2]()
        self.now = self.until

    def within(self, intervals: Sequence[tuple[float, float]]) -> bool:
        """Whether now lies in one of the intervals."""
        return any(begin <= self.now < end for begin, end in intervals)

    # ---- what a scaler sees and does ---------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the queue is paused."""
        return self.within(self._held)

    @property
    def blind(self) -> bool:
        """Whether nothing can be measured."""
        return self.within(self._blind)

    @property
    def down(self) -> bool:
        """Whether the scaler does not run."""
        return self.within(self._down)

    @property
    def alive(self) -> list[Pod]:
        """Pods that were asked for."""
        return [pod for pod in self.pods if pod.state != "stopping"]

    @property
    def replicas(self) -> int:
        """How many were asked for."""
        return len(self.pods) - sum(pod.state == "stopping" for pod in self.pods)

    @property
    def working(self) -> list[Pod]:
        """Pods that have started and are not stopping."""
        return [pod for pod in self.pods if pod.state == "ready"]

    @property
    def in_flight(self) -> int:
        """Jobs that run."""
        return sum(len(pod.running) for pod in self.pods)

    def due_within(self, seconds: float) -> int:
        """Delayed jobs that become ready within ``seconds``."""
        begin = bisect_right(self._delayed, self.now)
        return bisect_right(self._delayed, self.now + seconds) - begin

    def scale(self, replicas: int) -> None:
        """Start or stop Pods as a Deployment without a cost: those that have not started go first, then the newest."""
        self.start(replicas - self.replicas)
        if (surplus := self.replicas - replicas) > 0:
            order = sorted(self.alive, key=lambda pod: (pod.state == "ready", -pod.created))
            self.stop(order[:surplus])

    def start(self, pods: int) -> None:
        """Start Pods."""
        for _ in range(pods):
            self._start()
        self.most = max(self.most, self.replicas)

    def stop(self, pods: Sequence[Pod]) -> None:
        """Stop these Pods."""
        for pod in pods:
            self._stop(pod)

    def changed(self) -> None:
        """Let jobs start that may now: a Pod takes jobs again."""
        self._work()

    # ---- jobs and Pods -----------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        job = self.jobs[self._next]
        self._next += 1
        self.arrived += 1
        self.ready.append(job)
        if job.submitted is None:
            self.on_wake()
        self._work()

    def _start(self) -> None:
        pod = Pod(self.now)
        self.pods.append(pod)

        def begin() -> None:
            if pod.state == "starting":
                pod.state = "ready"
                self.cold_starts.append(self.now - pod.created)
                self._rotation.append(pod)
                self._work()

        self.at(self.now + self._random.uniform(*self._starts), begin)

    def _stop(self, pod: Pod) -> None:
        starting = pod.state == "starting"
        pod.state = "stopping"
        if starting or not pod.running:
            self.at(self.now + WIND_DOWN, lambda: self._end(pod))
        else:
            self.at(self.now + GRACE, lambda: self._end(pod))

    def _end(self, pod: Pod) -> None:
        if pod.state == "gone":
            return
        self.handed_back += len(pod.running)
        self.ready.extendleft(reversed(pod.running.values()))
        pod.running.clear()
        pod.state, pod.ended = "gone", self.now
        self.pods.remove(pod)
        self.gone.append(pod)
        self._work()

    def _resume(self) -> None:
        self.on_wake()  # whoever resumes the queue edits the Queue, which the operator looks at
        self._work()

    def _work(self) -> None:
        if self.held:
            return
        passed = 0
        allowed = self.most_in_flight - self.in_flight
        while self.ready and allowed > 0 and passed < len(self._rotation):
            pod = self._rotation.popleft()
            if pod.state != "ready":
                continue
            self._rotation.append(pod)
            if pod.retired or len(pod.running) >= self.slots:
                passed += 1
                continue
            passed = 0
            allowed -= 1
            self._begin(pod, self.ready.popleft())

    def _begin(self, pod: Pod, job: Job) -> None:
        if job.started is None:
            job.started = self.now
        self._run += 1
        run = self._run
        pod.running[run] = job

        def end() -> None:
            if pod.running.pop(run, None) is None:
                return  # handed back
            self.ended += 1
            self.service_ms += job.service * 1000
            if pod.state == "stopping" and not pod.running:
                self.at(self.now + WIND_DOWN, lambda: self._end(pod))
            self._work()

        self.at(self.now + job.service, end)
