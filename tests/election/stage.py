"""Electors on a stage: virtual time, shared locks and fence in memory, and faults of single calls by hand."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from headrace.election.backends.memory import MemoryLock
from headrace.election.elector import Elector
from headrace.election.errors import Forbidden, LockError, Unavailable
from headrace.election.fence import Answer, Claim, FenceView, Token
from headrace.election.memory_fence import FenceState
from headrace.election.record import RankedLock, Record, Version, holder_of
from headrace.election.states import Reason, State
from headrace.election.tenure import Term
from headrace.election.timings import STANDARD, Timings
from tests.simulation.election.world import PodLoop, World

RANKS = {"lease": 3, "mongo": 2, "redis": 1}


@dataclass
class Line:
    """How the calls of one candidate to one store fare; may be changed at any time.

    ``latency``: seconds there and back. ``hang``: the request gets lost. ``lose_reply``: it is applied, and silence
    follows. ``error``: raised instead. ``only``: kinds of calls that all this is about. ``every``: one of so many.
    """

    latency: float = 0.01
    hang: bool = False
    lose_reply: bool = False
    error: LockError | None = None
    only: tuple[str, ...] = ()
    every: int = 1
    calls: list[tuple[float, str, float]] = field(default_factory=list)

    def clear(self) -> None:
        self.hang = self.lose_reply = False
        self.error, self.only, self.every, self.latency = None, (), 1, 0.01

    async def pass_on(self, kind: str, now: float, timeout: float, apply: Callable[[], Awaitable[object]]) -> object:
        self.calls.append((now, kind, timeout))
        hit = (not self.only or kind in self.only) and len(self.calls) % self.every == 0
        await asyncio.sleep(self.latency / 2)
        if hit and self.error is not None:
            raise self.error
        if hit and self.hang:
            await asyncio.sleep(1e9)
        result = await apply()
        if hit and self.lose_reply:
            await asyncio.sleep(1e9)
        await asyncio.sleep(self.latency / 2)
        return result

    def kinds(self, since: float = -math.inf) -> list[str]:
        return [kind for at, kind, _ in self.calls if at >= since]


class StageLock:
    """One candidate's way to a shared lock."""

    def __init__(self, lock: MemoryLock, line: Line, loop: PodLoop) -> None:
        self.lock, self.line, self._loop = lock, line, loop

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        return await self._call("read", timeout, lambda: self.lock.read(timeout))  # type: ignore[return-value]

    async def create(self, record: Record, timeout: float) -> Version:
        return await self._call("write", timeout, lambda: self.lock.create(record, timeout))

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        return await self._call("write", timeout, lambda: self.lock.cas(version, record, timeout))

    async def close(self) -> None:
        """Nothing to close."""

    async def _call(self, kind: str, timeout: float, apply: Callable[[], Awaitable[object]]) -> object:
        return await self.line.pass_on(kind, self._loop.world.now, timeout, apply)


class StageFence:
    """One candidate's way to the shared fence."""

    def __init__(self, state: FenceState, line: Line, loop: PodLoop, hints: list[Candidate]) -> None:
        self.state, self.line, self._loop, self._hints = state, line, loop, hints

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        return await self._call("claim", timeout, lambda: self.state.claim(claim, round(ttl * 1000)))  # type: ignore[return-value]

    async def beat(self, token: Token, ttl: float, timeout: float) -> bool:
        return bool(await self._call("beat", timeout, lambda: self.state.beat(token, round(ttl * 1000))))

    async def release(self, nonce: str, timeout: float) -> None:
        await self._call("release", timeout, lambda: self.state.release(nonce))

    async def read(self, timeout: float) -> FenceView:
        return await self._call("read", timeout, self.state.view)  # type: ignore[return-value]

    async def announce(self, timeout: float) -> None:
        def tell() -> None:
            for each in self._hints:
                each.elector.hint()

        await self._call("announce", timeout, tell)

    async def announcements(self) -> AsyncIterator[None]:
        await asyncio.sleep(1e9)
        yield

    async def close(self) -> None:
        """Nothing to close."""

    async def _call(self, kind: str, timeout: float, apply: Callable[[], object]) -> object:
        async def step() -> object:
            return apply()

        return await self.line.pass_on(kind, self._loop.world.now, timeout, step)


class Candidate:
    """One process. ``work``: what it does as leader, until cancelled; default: nothing."""

    def __init__(self, stage: Stage, name: str, timings: Timings, chain: tuple[str, ...]) -> None:
        self.stage, self.name = stage, name
        self.loop = PodLoop(stage.world, rate=1.0, offset=1000.0)  # type: ignore[abstract]
        self.lines = {store: Line() for store in (*RANKS, "fence")}
        self.events: list[tuple[float, str]] = []
        self.states: list[State] = []
        self.leaders: list[str] = []
        self.wedged = 0
        self.work: Callable[[Term], Awaitable[None]] = self._idle
        locks = [
            RankedLock(store, RANKS[store], StageLock(stage.locks[store], self.lines[store], self.loop))
            for store in chain
        ]
        self.elector = Elector(
            locks,
            StageFence(stage.fence, self.lines["fence"], self.loop, stage.candidates),
            self,
            timings,
            identity=name,
            clock=self.loop.time,
            wall=self._wall,
            rng=random.Random(name),
            on_wedged=self._on_wedged,
        )
        self.wall_offset = 0.0
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = self.loop.begin(self.elector.run())

    def _wall(self) -> int:
        return int((self.stage.world.now + self.wall_offset) * 1e6)

    def _on_wedged(self) -> None:
        self.wedged += 1

    async def _idle(self, term: Term) -> None:
        await asyncio.sleep(1e9)

    async def on_started(self, term: Term) -> None:
        self.events.append((self.stage.world.now, "started"))
        await self.work(term)

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        self.events.append((self.stage.world.now, f"stopped: {reason}"))

    def on_new_leader(self, identity: str) -> None:
        self.leaders.append(identity)

    def said(self) -> list[str]:
        return [event for _, event in self.events]

    def when(self, event: str) -> float:
        return next(at for at, name in self.events if name == event)

    @property
    def leads(self) -> bool:
        return self.elector.is_leader()


class Stage:
    """The world and what all candidates share."""

    def __init__(self) -> None:
        self.world = World()
        self.locks = {name: MemoryLock(name) for name in RANKS}
        self.fence = FenceState(lambda: int(self.world.now * 1000))
        self.candidates: list[Candidate] = []
        self.world.after = self._check
        self.most_leaders = 0

    def _check(self, loop: PodLoop) -> None:
        self.most_leaders = max(self.most_leaders, len(self.leaders()))

    def candidate(
        self, name: str, timings: Timings = STANDARD, chain: tuple[str, ...] = ("lease",), *, start: bool = True
    ) -> Candidate:
        made = Candidate(self, name, timings, chain)
        self.candidates.append(made)
        if start:
            made.start()
        return made

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def until(self, condition: Callable[[], bool], within: float = 120.0) -> float:
        """Go on until it is true; returns the time that took."""
        begun = self.world.now
        while not condition():
            if self.world.now - begun > within:
                raise AssertionError(f"not within {within} s: {[(c.name, c.events) for c in self.candidates]}")
            self.run(0.01)
        return self.world.now - begun

    def leaders(self) -> list[str]:
        return [each.name for each in self.candidates if each.leads]

    def close(self) -> None:
        """End every coroutine."""
        for each in self.candidates:
            each.loop.paused_until, each.loop.crashed = 0.0, False
            for task in asyncio.all_tasks(each.loop):
                task.cancel()
        self.run(30)


UNREACHABLE = Unavailable("no connection", ambiguous=False)
FORBIDDEN = Forbidden("update Lease x: 403 not allowed")


def leading(
    stage: Stage, name: str = "a", timings: Timings = STANDARD, chain: tuple[str, ...] = ("lease",)
) -> Candidate:
    """A candidate that has become leader."""
    made = stage.candidate(name, timings, chain)
    stage.until(lambda: made.leads)
    return made


def foreign(stage: Stage, *, duration: float = 15, seq: int | None = 77, term: int = 4) -> None:
    """The lock is held by a process that is not on the stage."""
    lock = stage.locks["lease"]
    lock.record = Record(holder_of("stranger", "n0"), term, duration, seq)
    lock.version += 1
