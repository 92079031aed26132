"""Every test of this folder runs on each store: memory, one server, a Cluster, a primary under Sentinels, and
the oldest Redis that Headrace works with.

Time is the store's. Memory gets a clock that the test advances; on a server the test waits until the server's clock
says that the time has passed, so its delays are short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headrace.errors import HeadraceError, NotDrained
from headrace.lifecycle import complete
from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import Topology
from tests.conformance.steps import QUEUE, no_pause, ref
from tests.services.redis_setups import SUPPORTED, RedisSetups

Advance = Callable[[int], Awaitable[None]]
Complete = Callable[..., Awaitable[Topology]]

START_MS = 1_700_000_000_000


class ManualClock:
    """Milliseconds that pass only when told."""

    def __init__(self) -> None:
        self.now = START_MS

    def __call__(self) -> int:
        return self.now


@pytest.fixture(params=("memory", *SUPPORTED))
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(backend: str, clock: ManualClock, prefix: str, redis_setups: RedisSetups) -> AsyncIterator[Store]:
    opened: Store = MemoryStore(clock) if backend == "memory" else RedisStore(redis_setups.url(backend), prefix=prefix)
    yield opened
    try:
        await sound(opened)
    finally:
        await opened.close()


async def sound(store: Store) -> None:
    """Whatever a test did: each job that it left is in one place, and each entry of an index has its job."""
    try:
        topology = await store.read_topology(QUEUE)
    except HeadraceError:  # the test damaged it
        return
    for version in topology.versions if topology else ():
        for at in topology.refs(version)[:8] if topology else ():
            audit = await store.audit_partition(at, repair=False, pause=no_pause)
            assert audit.proven
            if not any(each.kind == "parked under another type" for each in audit.leftovers):  # as some tests do
                assert list(audit.leftovers) == []


@pytest.fixture
def advance(backend: str, clock: ManualClock, store: Store) -> Advance:
    """Let the store's clock go on by at least that many milliseconds."""

    async def server_now() -> int:
        (counts,) = await store.counts([ref()])
        return counts.now

    async def wait(ms: int) -> None:
        end = await server_now() + ms
        async with asyncio.timeout(60):
            while await server_now() < end:
                await asyncio.sleep(0.002)

    async def turn(ms: int) -> None:
        clock.now += ms

    return turn if backend == "memory" else wait


@pytest.fixture
def completed(backend: str, store: Store, advance: Advance) -> Complete:
    """Complete a version after the time in which clients may retry; on a server that time is short here."""
    window = 5_000 if backend == "memory" else 40

    async def after_the_window(version: int, through: Store | None = None, *, queue: str = QUEUE) -> Topology:
        while True:
            try:
                return await complete(through or store, queue, version, client_retry_ms=window)
            except NotDrained as error:
                if error.reason != "ClientsMayRetry":
                    raise
                await advance(window)

    return after_the_window
