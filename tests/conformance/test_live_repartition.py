"""Everything at once: producers, workers, promoters that die and calls that get lost, while versions come and go."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, cast

from headrace.errors import NotDrained, StoreUnavailable, UnknownVersion
from headrace.lifecycle import complete, promote
from headrace.producer import JobSpec, Producer
from headrace.stores.base import Settled, Store
from headrace.topology import PartitionRef
from tests.conformance.actors import completing, killed_after, promoting
from tests.conformance.conftest import Advance
from tests.conformance.steps import LONG_MS, QUEUE, opened, states, stored_topology

PRODUCERS, WORKERS, CALLS, BULK = 3, 3, 12, 4
WINDOW_MS = 2_500


class Line:
    """The way to the store: lets other actors go first, and loses a part of the calls, or of their replies."""

    def __init__(self, store: Store, rng: random.Random, loss: float = 0.0) -> None:
        self._inner = store
        self._rng = rng
        self._loss = loss

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._inner, method)

        async def travel(*args: Any) -> Any:
            await asyncio.sleep(0)
            fate = self._rng.random()
            if fate < self._loss / 2:
                raise StoreUnavailable("the call was lost")
            reply = await call(*args)
            if fate < self._loss:
                raise StoreUnavailable("the reply was lost")
            return reply

        return travel


async def produce(store: Store, name: str, expected: set[str]) -> None:
    producer = Producer(store, retry_for=WINDOW_MS / 1000 - 0.5)
    for n in range(CALLS):
        job_id = f"{name}-{n}"
        one = await producer.enqueue(QUEUE, "send", id=job_id)
        bulk = await producer.enqueue_many(QUEUE, [JobSpec("send", i) for i in range(BULK)])
        expected.update([one.id, *(job.id for job in bulk)])


async def until_answered(call: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0)


async def work(store: Store, lossy: Store, name: str, runs: Counter[str], finished: Callable[[], bool]) -> None:
    """Claim from every version, resume what a lost reply hides, and acknowledge until there is an answer."""
    sequence = count(1)
    while not finished():
        topology = await store.read_topology(QUEUE)
        assert topology is not None
        for version in topology.versions:
            for at in topology.refs(version):
                await _work_once(lossy, at, name, next(sequence), runs)
        await asyncio.sleep(0)


async def _work_once(lossy: Store, at: PartitionRef, name: str, seq: int, runs: Counter[str]) -> None:
    try:
        claim = await lossy.claim(at, name, seq, 5, LONG_MS)
    except StoreUnavailable:
        claim = await until_answered(lambda: lossy.resume(at, name, seq, LONG_MS))
    acks = [Settled(job.key, claim.token) for job in claim.jobs]
    for job in claim.jobs:
        decoded = opened(job, at)
        assert (decoded.attempt, decoded.expiries) == (0, 0)
        runs[decoded.id] += 1
    if acks:
        await until_answered(lambda: lossy.ack(at, acks))


async def repartition(store: Store, rng: random.Random) -> None:
    """Promote versions one above the other; every promoter dies a few times before one gets through."""
    for version, partitions in ((2, 5), (3, 2), (4, 3)):
        await asyncio.sleep(0.03)
        while await killed_after(store, rng.randrange(24), promoting(version, partitions)) is not None:
            pass


async def tidy(store: Store, rng: random.Random, finished: Callable[[], bool]) -> None:
    """Complete what is drained, again by actors that die."""
    while not finished():
        for version in (await stored_topology(store)).older:
            with contextlib.suppress(NotDrained, UnknownVersion):
                await killed_after(store, rng.randrange(20), completing(version, after_ms=WINDOW_MS))
        await asyncio.sleep(0.005)


async def test_V1_V5_T9_T11_no_job_is_lost_or_run_twice_while_versions_come_and_go(
    store: Store, advance: Advance
) -> None:
    rng = random.Random(1)
    lossy, safe = cast(Store, Line(store, rng, 0.1)), cast(Store, Line(store, rng))
    await promote(store, QUEUE, 1, 3)
    expected: set[str] = set()
    runs: Counter[str] = Counter()
    changes = asyncio.ensure_future(repartition(safe, rng))
    producing = [asyncio.ensure_future(produce(lossy, f"p{n}", expected)) for n in range(PRODUCERS)]

    def all_ran() -> bool:
        return changes.done() and all(task.done() for task in producing) and expected <= runs.keys()

    working = [asyncio.ensure_future(work(safe, lossy, f"w{n}", runs, all_ran)) for n in range(WORKERS)]
    tidying = asyncio.ensure_future(tidy(safe, rng, all_ran))
    async with asyncio.timeout(60):
        await asyncio.gather(changes, tidying, *producing, *working)

    assert len(expected) == PRODUCERS * CALLS * (1 + BULK)
    assert {job_id: n for job_id, n in runs.items() if n != 1} == {}
    assert runs.keys() == expected

    async with asyncio.timeout(60):
        while older := (await stored_topology(store)).older:
            try:
                await complete(store, QUEUE, older[0], client_retry_ms=WINDOW_MS)
            except NotDrained as error:
                if error.reason != "ClientsMayRetry":
                    raise
                await advance(100)
    topology = await stored_topology(store)
    assert list(topology.versions) == [4]
    assert await states(store, 4, 4) == ["active"] * 3 + ["absent"]
    for version, partitions in ((1, 3), (2, 5), (3, 2)):
        assert await states(store, version, partitions) == ["tombstone"] * partitions
