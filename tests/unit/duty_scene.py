"""A queue in memory whose leader does one duty after the other, by a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.election.fence import Token
from headrace.maintenance import Duty, Signs
from headrace.maintenance.turn import Turn
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef, Topology

QUEUE = "emails"


class Counting(MemoryStore):
    """Counts the calls of duties by method."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in ("settle", "mark", "counts", "hint", "close_partition", "survey", "trim", "trim_parked"):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return await method(*args, **options)

        return call


class Scene:
    """A queue, a leader's signs of it, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.store = Counting(lambda: int(self.now * 1000))
        self.signs = Signs()
        self.token = Token(1, "n")
        self.reread = 0

    async def read(self) -> Topology:
        """Read the topology, as the leader's worker does."""
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        self.signs.read(topology)
        return topology

    def due(self, duty: Duty) -> float | None:
        at = duty.due(self.signs, self.now)
        return None if at is None else at - self.now

    async def run(self, duty: Duty) -> Counter[str]:
        """Run a duty, which must be due; the calls that it made."""
        assert (due := self.due(duty)) is not None
        assert due <= 0
        self.store.calls.clear()

        async def pause(seconds: float) -> None:
            self.now += seconds

        def reread() -> None:
            self.reread += 1

        turn = Turn(QUEUE, self.store, lambda: self.token, reread, lambda: self.now, pause)
        await duty.run(turn, self.signs)
        return self.store.calls


class Held:
    def __init__(self, ref: PartitionRef) -> None:
        self.ref = ref


async def held(store: MemoryStore, topology: Topology) -> list[Held]:
    refs = topology.refs(topology.active)
    return [Held(ref) for ref, each in zip(refs, await store.counts(refs), strict=True) if each.live]


async def held_in(store: MemoryStore, version: int) -> list[Held]:
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    refs = topology.refs(version)
    return [Held(ref) for ref, each in zip(refs, await store.counts(refs), strict=True) if each.live]
