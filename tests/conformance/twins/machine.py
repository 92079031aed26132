"""Gives each command to memory and to a server, and compares their answers and everything that they hold then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, ClassVar, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.envelope import encode_body
from headrace.errors import HeadraceError
from headrace.stores.base import NewJob, Settled, Store
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE, key
from tests.conformance.twins.clock import TimedRedisStore, TwinClock
from tests.conformance.twins.commands import Command, commands_of, integers, one_of, several
from tests.conformance.twins.states import differences, of_memory, of_redis
from tests.conformance.witness import Witness
from tests.services.redis import RedisServer

T = TypeVar("T")

IDS = ["a", "b", "c", "d", "e", "ünïcödé", "exactly-16-bytes", "018f3c5e-7b1a-7c3d-9e2f-0a1b2c3d4e5f"]
TYPES = ["send", "resize", "sénd"]
WORKERS = ["w", "v", "worker:with:colons"]
VERSIONS, PARTITIONS = 4, 2

numbers = integers(0, 60)
picks = several(numbers, 4)
ids = one_of(*IDS)
types = one_of(*TYPES)
workers = one_of(*WORKERS)
spans = one_of(1, 1000, 30_000, 3_600_000)
"""Milliseconds of leases and delays."""


class Refused(str):
    """An error of Headrace as an answer: its type and text."""


class Twins(RuleBasedStateMachine):
    """Commands are in the classes that derive from this one. ``server``: one that belongs to this machine alone."""

    server: ClassVar[RedisServer]
    steps: ClassVar[Counter[str]]
    """How often each step of a store was compared, over all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client = self.server.client()
        self.client.flushall()
        self.clock = TwinClock(self.client)
        self.memory = MemoryStore(self.clock)
        self.redis = TimedRedisStore(self.server.url)
        self.commands = 0
        self.seq = 0
        self.nonces: list[tuple[PartitionRef, bytes, list[NewJob]]] = []
        self.leases: list[tuple[PartitionRef, Settled]] = []
        self.cursors: dict[bool, bytes] = {}
        self.random: Random
        self.known = commands_of(type(self))
        self.weights = [each.weight for each in self.known]
        self.taken: list[str] = []

    @initialize(random=st.randoms(use_true_random=True))
    def begin(self, random: Random) -> None:
        """Create the queue."""
        self.random = random
        self.take(next(each for each in self.known if each.name == "create"))

    @rule()
    def step(self) -> None:
        """Give one command."""
        self.take(self.random.choices(self.known, self.weights)[0])

    def take(self, command: Command) -> None:
        arguments = command.drawn(self.random)
        self.taken.append(f"{command.name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})")
        getattr(self, command.name)(**arguments)

    def teardown(self) -> None:
        note("the commands were:\n" + "\n".join(self.taken))
        self.run(self.redis.close())
        self.client.close()
        self.loop.close()

    def run(self, step: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        return self.loop.run_until_complete(_awaited(step))

    def both(
        self, command: Callable[[Store], Awaitable[T]], shown: Callable[[T], object] = lambda answer: answer
    ) -> T | None:
        """Give one command to both: their answers, as far as ``shown``, must be the same. None if it was refused."""
        self.commands += 1
        expected = self.run(_tried(command, Witness(self.memory, self.steps).store))
        found = self.run(_tried(command, self.redis))
        if isinstance(expected, Refused) or isinstance(found, Refused):
            assert found == expected, f"memory answers {expected!r}, the server {found!r}"
            return None
        memory, server = shown(expected), shown(found)
        assert server == memory, f"memory answers {memory}, the server {server}"
        return expected

    @invariant()
    def they_hold_the_same(self) -> None:
        """After each rule, in every key."""
        found = differences(of_memory(self.memory), of_redis(self.client))
        assert not found, "path: memory, server\n" + "\n".join(f"{path}: {pair}" for path, pair in found.items())

    # ---- what the rules choose from ----------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology | None:
        """The topology that memory holds."""
        return self.run(self.memory.read_topology(QUEUE))

    def place(self, number: int) -> PartitionRef:
        """Return a partition: mostly one of a listed version, now and then one that may not exist."""
        topology = self.topology
        listed = [ref for version in sorted(topology.versions) for ref in topology.refs(version)] if topology else []
        if number % 8 == 7 or not listed:
            return PartitionRef(QUEUE, 1 + number % VERSIONS, number % PARTITIONS)
        return listed[-1 - number % len(listed)]

    def draining(self, number: int) -> PartitionRef | None:
        """Return a partition of an older version, if there is one."""
        topology = self.topology
        older = [ref for version in topology.older for ref in topology.refs(version)] if topology else []
        return older[-1 - number % len(older)] if older else None

    def busy(self, number: int) -> PartitionRef:
        """Return a partition with jobs that are ready or will be, mostly."""
        partitions = self.memory._data.partitions
        found = sorted(ref for ref, each in partitions.items() if each.ready or each.next_due() is not None)
        return found[number % len(found)] if found and number % 6 else self.place(number)

    def held(self, chosen: list[int]) -> dict[PartitionRef, list[Settled]]:
        """Return some leases by partition: mostly such as are held now, also some that were lost or are over."""
        partitions = self.memory._data.partitions
        now = [
            (ref, Settled(key, lease.token))
            for ref, partition in sorted(partitions.items())
            for key, lease in sorted(partition._leases._leases.items())
        ]
        found: dict[PartitionRef, list[Settled]] = {}
        for number in chosen:
            leases = now if now and number % 6 else self.leases[-12:]
            if leases:
                ref, lease = leases[number % len(leases)]
                found.setdefault(ref, []).append(lease)
        return found

    def job(self, job_id: str, when: int, lane: bytes, size: int = 0) -> NewJob:
        """Return a job whose type follows from its id, as the types under which workers park do."""
        payload = {"n": self.commands, "pad": "x" * size}
        return NewJob(key(job_id, lane), when, encode_body(type_of(job_id), payload, priority=int(lane)))


def type_of(job_id: str) -> str:
    """Return the type of a job of that id."""
    return TYPES[IDS.index(job_id) % len(TYPES)]


async def _awaited(step: Awaitable[T]) -> T:
    return await step


async def _tried(command: Callable[[Store], Awaitable[T]], store: Store) -> T | Refused:
    try:
        return await command(store)
    except HeadraceError as error:
        return Refused(f"{type(error).__name__}: {error}")
