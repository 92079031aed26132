"""A claim whose answer is lost: its partition waits until it is known what it took, everything else goes on."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace import App, Context, JobSpec, Store, StoreUnavailable
from headrace.stores.base import Claim
from headrace.topology import PartitionRef
from tests.integration.worker.support import QUEUE, Faulty, empty, eventually, queue, sizes, working
from tests.integration.worker.test_worker_claims import ids_in

SILENT, OTHER = PartitionRef(QUEUE, 1, 0), PartitionRef(QUEUE, 1, 1)


class HalfDeaf(Faulty):
    """Loses the answers of the first claims of one partition, once all have been applied.

    ``resumable``: how many of them can be resumed now. ``taken`` notes (partition, server time, jobs) of each claim.
    """

    def __init__(self, store: Store, lost: int = 1) -> None:
        super().__init__(store)
        self._left = lost
        self._applied = asyncio.Event()
        self.taken: list[tuple[PartitionRef, int, int]] = []
        self.resumable = 0

    async def claim(self, ref: PartitionRef, *args: Any, **options: Any) -> Claim:
        claim = await self._store.claim(ref, *args, **options)
        self.taken.append((ref, claim.now, len(claim.jobs)))
        if ref == SILENT and not self._applied.is_set():
            self._left -= 1
            if self._left == 0:
                self._applied.set()
            await self._applied.wait()
            raise StoreUnavailable("the answer is lost")
        return claim

    async def resume(self, ref: PartitionRef, *args: Any) -> Claim:
        if self.resumable <= 0:
            raise StoreUnavailable("away")
        self.resumable -= 1
        return await self._store.resume(ref, *args)

    @property
    def took(self) -> int:
        """Jobs taken from the partition whose answers are lost."""
        return sum(jobs for ref, _, jobs in self.taken if ref == SILENT)


class Runs:
    """A handler that notes its runs, holds those whose payload is "hold", and knows how many ran at the same time."""

    def __init__(self) -> None:
        self.app = App()
        self.ended: list[str] = []
        self.now = self.most = 0
        self.may_end = asyncio.Event()

        @self.app.handler("job")
        async def job(ctx: Context, payload: Any) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await (self.may_end.wait() if payload == "hold" else asyncio.sleep(0))
            self.now -= 1
            self.ended.append(ctx.job.id)


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_V14_other_partitions_go_on_while_a_claim_is_in_doubt(store: Store, concurrency: int) -> None:
    runs, deaf = Runs(), HalfDeaf(store)
    producer = await queue(store, partitions=2)
    there = [job.id for job in await producer.enqueue_many(QUEUE, [JobSpec("job", id=i) for i in ids_in(0, 2, 20)])]
    # The leases outlive the test: nothing is waited for but the answers.
    async with working(runs.app, cast(Store, deaf), concurrency=concurrency, lease_ms=3_600_000) as running:
        await eventually(lambda: deaf.took == concurrency)
        elsewhere = [
            job.id for job in await producer.enqueue_many(QUEUE, [JobSpec("job", id=i) for i in ids_in(1, 2, 40)])
        ]
        await eventually(lambda: sorted(runs.ended) == sorted(elsewhere))
        deaf.resumable = 1
        await eventually(lambda: empty(store))
        assert running.told.lost == 0
    assert sorted(runs.ended) == sorted([*there, *elsewhere])
    assert runs.most <= concurrency


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_V14_what_finds_no_slot_when_the_doubt_ends_is_handed_back(store: Store, concurrency: int) -> None:
    runs, deaf = Runs(), HalfDeaf(store)
    producer = await queue(store, partitions=2)
    there = ids_in(0, 2, concurrency)
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=i) for i in there])
    async with working(runs.app, cast(Store, deaf), concurrency=concurrency, lease_ms=3_600_000) as running:
        await eventually(lambda: deaf.took == concurrency)
        elsewhere = ids_in(1, 2, concurrency)
        await producer.enqueue_many(QUEUE, [JobSpec("job", "hold", id=i) for i in elsewhere])
        await eventually(lambda: runs.now == concurrency)
        deaf.resumable = 1

        async def handed_back() -> bool:
            return await sizes(store) == {"leased": concurrency, "ready": concurrency}

        await eventually(handed_back)
        assert running.told.outcomes == {"handed_back": concurrency}
        runs.may_end.set()
        await eventually(lambda: empty(store))
        assert running.told.lost == 0
    assert sorted(runs.ended) == sorted([*there, *elsewhere])
    assert runs.most == concurrency


async def test_V14_M8_claims_in_doubt_count_against_max_in_flight_until_their_leases_end(store: Store) -> None:
    runs, deaf, lease_ms = Runs(), HalfDeaf(store), 1500
    producer = await queue(store, partitions=2)
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=i) for i in ids_in(0, 2, 4)])
    async with working(runs.app, cast(Store, deaf), concurrency=4, max_in_flight=4, lease_ms=lease_ms):
        await eventually(lambda: deaf.took == 4)
        await producer.enqueue_many(QUEUE, [JobSpec("job", id=i) for i in ids_in(1, 2, 8)])
        await eventually(lambda: len(runs.ended) == 8)
        (_, taken_at, _), *following = deaf.taken
        assert {ref for ref, _, _ in following} == {OTHER}
        assert min(now for _, now, _ in following) >= taken_at + lease_ms - 50  # two clocks
        deaf.resumable = 1
        await eventually(lambda: empty(store))
    assert len(runs.ended) == len(set(runs.ended)) == 12


async def test_V14_a_partition_waits_for_the_last_of_two_claims_in_doubt(store: Store) -> None:
    runs, deaf = Runs(), HalfDeaf(store, lost=2)
    producer = await queue(store, partitions=1)
    there = ids_in(0, 1, 100)
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=i) for i in there])
    async with working(runs.app, cast(Store, deaf), concurrency=64, lease_ms=3_600_000) as running:
        claims = running.worker._claims
        await eventually(lambda: deaf.took)
        claims.hint(SILENT)  # as the answer of another partition's claim may give it
        await eventually(lambda: len(deaf.taken) == 2 and not claims._open_calls)
        assert deaf.took == 64
        deaf.resumable = 1
        await eventually(lambda: runs.ended)
        await eventually(lambda: not claims.rotation and not claims._open_calls)  # the hint after it has been looked at
        assert len(deaf.taken) == 2
        deaf.resumable = 1
        await eventually(lambda: empty(store))
        assert not claims._in_doubt
        assert running.told.lost == 0
    assert sorted(runs.ended) == sorted(there)
