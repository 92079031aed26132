"""The stores behind a network that delays, loses and cuts: what a pod sends is applied when it arrives, if it does."""

from __future__ import annotations

import asyncio
import copy
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from headrace.election.errors import Conflict, LockError, Unavailable
from headrace.election.fence import Answer, Claim, FenceView, Token
from headrace.election.memory_fence import FenceState
from headrace.election.record import Record, Version
from tests.simulation.election.world import PodLoop, World

if TYPE_CHECKING:
    from tests.simulation.election.journal import Journal

T = TypeVar("T")


@dataclass
class Weather:
    """How calls fare. ``slow``: share of calls with a leg of up to ``slowest`` seconds; ``loss``: per leg."""

    loss: float = 0.005
    slow: float = 0.01
    slowest: float = 6.0


@dataclass
class Server:
    """A store's machine: ``down_until``, and whether it refuses or hangs meanwhile."""

    name: str
    down_until: float = -math.inf
    refuses: bool = False


class Link:
    """The way of one pod to one server."""

    def __init__(self, world: World, loop: PodLoop, server: Server, rng: random.Random, weather: Weather) -> None:
        self.world, self.loop, self.server, self._rng, self._weather = world, loop, server, rng, weather
        self.cut_until = -math.inf
        self.busy = self.busiest = 0

    def delay(self) -> float:
        if self._rng.random() < self._weather.slow:
            return self._rng.uniform(0.2, self._weather.slowest)
        return self._rng.uniform(0.0005, 0.04)

    def lost(self) -> bool:
        return self.world.now < self.cut_until or self._rng.random() < self._weather.loss

    async def call(self, apply: Callable[[], T]) -> T:
        """Send; what ``apply`` returns or raises comes back, unless a leg is lost."""
        reply: asyncio.Future[T] = self.loop.create_future()

        def arrive() -> None:
            if self.world.now < self.server.down_until:
                return
            result: T | LockError
            try:
                result = apply()
            except LockError as error:
                result = error
            if not self.lost():
                self.world.at(self.world.now + self.delay(), lambda: self.loop.call_soon(deliver, result))

        def deliver(result: T | LockError) -> None:
            if reply.done():
                return
            if isinstance(result, LockError):
                reply.set_exception(result)
            else:
                reply.set_result(result)

        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            if self.server.refuses and self.world.now < self.server.down_until:
                await asyncio.sleep(0.001)
                raise Unavailable(f"{self.server.name} refuses connections", ambiguous=False)
            if not self.lost():
                self.world.at(self.world.now + self.delay(), arrive)
            return await reply
        finally:
            self.busy -= 1


@dataclass
class LockStore:
    """One lock. ``atomic``: whether compare and write are one step; else the write comes a moment later."""

    name: str
    record: Record | None = None
    version: int = 0
    past: list[Record | None] = field(default_factory=list)

    def write(self, record: Record | None) -> int:
        self.past.append(self.record)
        self.record = record
        self.version += 1
        return self.version

    def create(self, record: Record) -> int:
        if self.record is not None:
            raise Conflict(f"{self.name}: exists")
        return self.write(record)

    def cas(self, version: Version, record: Record) -> int:
        if self.record is None or version != self.version:
            raise Conflict(f"{self.name}: at version {self.version}, not {version}")
        return self.write(record)

    def read(self) -> tuple[Version, Record] | None:
        return None if self.record is None else (self.version, self.record)


class TornStore(LockStore):
    """A store that compares first and writes later, so that two writers may both be told that they won."""

    def __init__(self, name: str, world: World, rng: random.Random) -> None:
        super().__init__(name)
        self._world, self._rng = world, rng

    def cas(self, version: Version, record: Record) -> int:
        if self.record is None or version != self.version:
            raise Conflict(f"{self.name}: at version {self.version}, not {version}")
        self._world.at(self._world.now + self._rng.uniform(0, 0.05), lambda: void(self.write(record)))
        return self.version + 1


def void(_: object) -> None:
    """Nothing."""


class SimLock:
    """One pod's client of a lock."""

    def __init__(self, store: LockStore, link: Link, journal: Journal, pod: str) -> None:
        self._store, self.link, self._journal, self._pod = store, link, journal, pod

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        return await self.link.call(self._store.read)

    async def create(self, record: Record, timeout: float) -> Version:
        return await self.link.call(lambda: self._write(lambda: self._store.create(record), record))

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        if record.holder == "":
            self._journal.frees(self._pod, self._store.name)
        return await self.link.call(lambda: self._write(lambda: self._store.cas(version, record), record))

    def _write(self, apply: Callable[[], int], record: Record) -> int:
        try:
            version = apply()
        except Conflict:
            self._journal.note(self._pod, "conflict at", self._store.name, record.holder[-20:])
            raise
        self._journal.note(self._pod, "wrote", self._store.name, record.holder[-20:], f"term {record.term}")
        return version

    async def close(self) -> None:
        """Nothing to close."""


class FenceStore:
    """The fence and the writes that it let pass, with a replica that lags: a failover forgets the newest steps."""

    def __init__(self, world: World, state: FenceState, journal: Journal) -> None:
        self.state, self._world, self._journal = state, world, journal
        self.accepted: list[tuple[int, str, str]] = []
        self.claims = 0
        self._replica: deque[tuple[FenceState, int]] = deque(maxlen=12)
        self.listeners: list[Callable[[], None]] = []

    def keep(self) -> None:
        """Remember the state before a step."""
        before = copy.copy(self.state)
        before.high = dict(self.state.high)
        self._replica.append((before, len(self.accepted)))

    def fail_over(self, steps: int) -> None:
        """Forget the newest steps, and the writes among them."""
        steps = min(steps, len(self._replica))
        if steps:
            self.state, length = list(self._replica)[-steps]
            del self.accepted[length:]
            self._replica.clear()
            self._journal.forgot()

    def claim(self, claim: Claim, ttl: float) -> Answer:
        self.keep()
        epoch = self.state.epoch
        answer = self.state.claim(claim, round(ttl * 1000))
        if self.state.epoch != epoch:
            self.claims += 1
            self._journal.claimed(claim)
        self._journal.note(claim.holder, "claims", claim.backend, f"term {claim.term}", answer)
        return answer

    def beat(self, token: Token, ttl: float) -> bool:
        self.keep()
        return self.state.beat(token, round(ttl * 1000))

    def release(self, nonce: str) -> None:
        self.keep()
        self.state.release(nonce)

    def write(self, pod: str, token: Token, ttl: float) -> bool:
        """One script of a leader."""
        if not self.state.beat(token, round(ttl * 1000)):
            self._journal.note(pod, "fenced", token)
            return False
        self.keep()
        self.accepted.append((token.epoch, token.nonce, pod))
        self._journal.accepted(pod, token)
        return True


class SimFence:
    """One pod's client of the fence."""

    def __init__(self, store: FenceStore, link: Link) -> None:
        self.store, self.link = store, link
        self._heard = asyncio.Event()

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        return await self.link.call(lambda: self.store.claim(claim, ttl))

    async def beat(self, token: Token, ttl: float, timeout: float) -> bool:
        return await self.link.call(lambda: self.store.beat(token, ttl))

    async def release(self, nonce: str, timeout: float) -> None:
        await self.link.call(lambda: self.store.release(nonce))

    async def read(self, timeout: float) -> FenceView:
        return await self.link.call(self.store.state.view)

    async def announce(self, timeout: float) -> None:
        def tell() -> None:
            for listener in self.store.listeners:
                listener()

        await self.link.call(tell)

    async def announcements(self) -> AsyncIterator[None]:
        loop, link = self.link.loop, self.link

        def heard() -> None:
            if not link.lost():
                link.world.at(link.world.now + link.delay(), lambda: void(loop.call_soon(self._heard.set)))

        self.store.listeners.append(heard)
        while True:
            await self._heard.wait()
            self._heard.clear()
            yield

    async def close(self) -> None:
        """Nothing to close."""
