"""One run: pods with real electors in a world of faults, and what came of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.election.elector import Elector
from headrace.election.fence import Token
from headrace.election.memory_fence import FenceState
from headrace.election.record import RankedLock
from headrace.election.states import Reason, Seat
from headrace.election.tenure import Term
from headrace.election.timings import STANDARD, Timings
from tests.simulation.election.faults import LOCKS, STORES, Fault, Plan
from tests.simulation.election.journal import Journal
from tests.simulation.election.stores import FenceStore, Link, LockStore, Server, SimFence, SimLock, TornStore, Weather
from tests.simulation.election.world import PodLoop, World

RANKS = {"lease": 3, "mongo": 2, "redis": 1}
SLICE = 0.5
ENDING = 8.0
"""Seconds that a terminated process gets."""

FenceType = Callable[[Callable[[], int]], FenceState]


@dataclass(frozen=True)
class Result:
    """``violations``: empty if all held. ``gap``: longest time between accepted writes of leaders, from the start."""

    plan: Plan
    violations: tuple[str, ...]
    trace: str
    gap: float
    writes: int
    claims: int
    refused: int
    reasons: tuple[str, ...]
    backends: tuple[str, ...]


class Pod:
    """One place of a worker; after a crash another process with another identity takes it."""

    def __init__(self, run: Simulation, number: int) -> None:
        self.run, self.number, self.generation = run, number, 0
        self.offset = run.rng.uniform(0, 1e5)
        drift = (-1, 1)[number % 2] if run.plan.extreme else run.rng.uniform(-1, 1)
        self.rate = 1 + drift * run.plan.drift
        self.wall_offset = run.rng.uniform(0, 7200)
        self.links: dict[str, Link] = {}
        self.start()

    def start(self) -> None:
        run = self.run
        self.generation += 1
        self.name = f"pod-{self.number}.{self.generation}"
        cuts = {name: link.cut_until for name, link in self.links.items()}
        self.loop = PodLoop(run.world, rate=self.rate, offset=self.offset)  # type: ignore[abstract]
        self.loop.wall_offset = self.wall_offset
        self.links = {
            name: Link(run.world, self.loop, run.servers[name], run.rng, run.weather) for name in (*STORES, "work")
        }
        for name, until in cuts.items():
            self.links[name].cut_until = until
        self.fence = SimFence(run.fence, self.links["redis"])
        locks = [
            RankedLock(
                name,
                RANKS[name],
                SimLock(run.locks[name], self.links[name], run.journal, self.name),
                hold_down=name == "lease",
            )
            for name in run.chain
        ]
        self.elector = run.elector_type(
            locks,
            self.fence,
            self,
            run.timings,
            identity=self.name,
            application=self.loop,
            clock=self.loop.time,
            wall=self.loop.wall,
            rng=run.rng,
        )
        self.seat: Seat | None = None
        self.task = self.loop.begin(self.elector.run())
        run.pod_of[self.loop] = self

    def crash(self) -> None:
        self.loop.crashed = True
        office = self.run.journal.office(self.name)
        office.working = False
        office.seat = None
        self.run.journal.note(self.name, "crashes")

    # ---- the work of a leader -------------------------------------------------------------------------------------

    async def on_started(self, term: Term) -> None:
        self.run.journal.starts(self.name)
        try:
            while True:
                token = term.token()
                if token is None:
                    await asyncio.sleep(0.05)
                    continue
                await self._slice(token)
                await asyncio.sleep(self.run.rng.uniform(0.2, 0.6))
        finally:
            if self.run.plan.stubborn:
                await asyncio.sleep(self.run.plan.stubborn)

    async def _slice(self, token: Token) -> None:
        # A late arrival must not find another process of this pod under that name.
        journal, fence, name = self.run.journal, self.run.fence, self.name
        journal.sends(name, token)
        write = self.links["work"].call(lambda: fence.write(name, token, self.run.timings.fence_ttl))
        task = asyncio.ensure_future(write)
        try:
            # A slice that runs is awaited, even by one who was cancelled.
            done, _ = await asyncio.wait([task], timeout=SLICE)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=SLICE)
            task.cancel()
            raise
        if not done:
            task.cancel()
        elif task.exception() is None and not task.result():
            journal.learns(self.name, token)
            self.elector.fenced(token)

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        self.run.journal.stops(self.name, reason)

    def on_new_leader(self, identity: str) -> None:
        self.run.journal.note(self.name, "sees", identity)


class Simulation:
    """A plan in progress."""

    def __init__(
        self,
        plan: Plan,
        *,
        elector_type: type[Elector] = Elector,
        fence_type: FenceType = FenceState,
        timings: Timings = STANDARD,
        chain: Sequence[str] = tuple(RANKS),
    ) -> None:
        self.plan, self.timings, self.elector_type, self.chain = plan, timings, elector_type, chain
        self.rng = random.Random(plan.seed)
        self.world = World()
        self.journal = Journal(self.world, single=plan.single)
        self.weather = Weather(plan.loss, plan.slow, plan.slowest)
        self.servers = {name: Server(name) for name in STORES}
        self.servers["work"] = self.servers["redis"]
        self.locks: dict[str, LockStore] = {name: LockStore(name) for name in RANKS}
        if plan.torn:
            self.locks["mongo"] = TornStore("mongo", self.world, self.rng)
        self.fence = FenceStore(self.world, fence_type(lambda: int(self.world.now * 1000)), self.journal)
        self.pod_of: dict[PodLoop, Pod] = {}
        self.world.after = self._watch
        self.backends: list[str] = []
        self.pods = [Pod(self, number) for number in range(plan.pods)]
        for fault in plan.faults:
            self.world.at(fault.at, lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def _watch(self, loop: PodLoop) -> None:
        pod = self.pod_of[loop]
        campaign = pod.elector._campaign
        seat = campaign.seat if campaign is not None and not campaign.refused else None
        if seat is not pod.seat:
            if seat is not None and (pod.seat is None or pod.seat.token != seat.token):
                self.backends.append(seat.backend)
            pod.seat = seat
            self.journal.seated(pod.name, seat, loop.world_time(seat.valid_until) if seat is not None else 0.0)

    def _strike(self, fault: Fault) -> None:
        now, pod = self.world.now, self.pods[fault.pod % len(self.pods)]
        until = now + fault.seconds
        self.journal.note("FAULT", fault)
        match fault.kind:
            case "pause":
                pod.loop.paused_until = max(pod.loop.paused_until, until)
            case "crash" if not pod.loop.crashed:
                pod.crash()
                self.world.at(until, pod.start)
            case "terminate" if not pod.loop.crashed:
                generation = pod.generation
                pod.elector.stop()
                self.world.at(until + ENDING, lambda: self._replace(pod, generation))
            case "cut":
                for name in ("redis", "work") if fault.store == "redis" else (fault.store,):
                    pod.links[name].cut_until = max(pod.links[name].cut_until, until)
            case "outage" | "refuse":
                server = self.servers[fault.store]
                server.down_until, server.refuses = max(server.down_until, until), fault.kind == "refuse"
            case "blip":
                self.world.at(now, lambda: self._worsen(0.4, fault.seconds))
            case "delete":
                self.locks[fault.store].write(None)
            case "restore":
                past = self.locks[fault.store].past
                self.locks[fault.store].write(past[len(past) // 2] if past else None)
            case "forget":
                self.fence.fail_over(fault.steps)

    def _worsen(self, loss: float, seconds: float) -> None:
        self.weather.loss = loss
        self.world.at(self.world.now + seconds, lambda: setattr(self.weather, "loss", self.plan.loss))

    def _replace(self, pod: Pod, generation: int) -> None:
        if pod.generation == generation and not pod.loop.crashed:
            if pod.loop.paused_until + ENDING > self.world.now:
                self.world.at(pod.loop.paused_until + ENDING, lambda: self._replace(pod, generation))
                return
            if not pod.task.done():
                self.journal.violated(f"{pod.name} has not ended {ENDING:g} s after its termination")
            pod.crash()
            pod.start()

    def run(self, *, bound: float | None = None) -> Result:
        """Run to the end. ``bound``: seconds after the last fault within which somebody must lead."""
        plan, journal = self.plan, self.journal
        bound = self.timings.bound + 2 * SLICE if bound is None else bound
        quiet = plan.seconds - plan.calm
        self.world.run(quiet)
        # The calm has no lost messages, so that what is late is late by the elector's fault.
        self.weather.loss = self.weather.slow = 0.0
        before = journal.writes
        self.world.run(quiet + bound)
        if journal.writes == before:
            journal.violated(f"progress: no write within {bound:.1f} s after the last fault")
        self.world.run(plan.seconds)
        journal.longest_gap = max(journal.longest_gap, plan.seconds - journal.last_write)
        self._check_end()
        result = Result(
            plan, tuple(journal.violations), journal.text(), journal.longest_gap, journal.writes, self.fence.claims,
            journal.refused, tuple(journal.reasons), tuple(self.backends),
        )  # fmt: skip
        self._close()
        return result

    def _close(self) -> None:
        """End every coroutine, those of crashed processes too, so that none is left to the garbage collector."""
        self.world.after = lambda loop: None
        self.journal = Journal(self.world, single=False)
        self.fence = FenceStore(self.world, FenceState(lambda: 0), self.journal)
        for loop in self.pod_of:
            loop.crashed, loop.paused_until = False, 0.0
        # One that meets a time-out in the same moment may get lost, so the rest is asked again.
        while tasks := self._tasks():
            for task in tasks:
                task.cancel()
            self.world.run(self.world.now + 10)

    def _tasks(self) -> set[asyncio.Task[object]]:
        return {task for loop in self.pod_of for task in asyncio.all_tasks(loop)}

    def _check_end(self) -> None:
        journal = self.journal
        for pod in self.pods:
            for error in pod.loop.errors:
                journal.violated(f"{pod.name}: {error.get('message')}: {error.get('exception')!r}")
            if pod.task.done() and not pod.task.cancelled() and pod.task.exception() is not None:
                journal.violated(f"{pod.name}: the elector ended with {pod.task.exception()!r}")
            for name in LOCKS:
                if pod.links[name].busiest > 1:
                    journal.violated(f"{pod.name}: {pod.links[name].busiest} calls to {name} at the same time")


def simulate(plan: Plan, **options: object) -> Result:
    """Run a plan."""
    return Simulation(plan, **options).run()  # type: ignore[arg-type]
