"""What was seen to go wrong with jobs elsewhere: sweeps against claims, moves cut short, order, what is left behind."""

from __future__ import annotations

import asyncio

import pytest

from headrace.lifecycle import promote
from headrace.producer import JobSpec, Producer
from headrace.stores.base import MAX_ENQUEUE, MAX_PROMOTE, Claim, Store
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    ids,
    new,
    ref,
    run_everything,
    settled,
    sizes,
)
from tests.services.redis_setups import RedisSetups


async def test_QA7_no_sweep_takes_a_job_that_is_just_being_claimed(store: Store) -> None:
    """Claims and sweeps of many actors in one moment, in many orders: a lease that lasts is never taken back."""
    await created(store)
    for turn in range(20):
        await enqueue(store, *(f"{turn}-{n}" for n in range(8)))
        claiming = [Worker(store, f"w{n}-{turn}").claim(2) for n in range(6)]
        sweeping = [store.recover(ref()) for _ in range(6)]
        calls = [call for pair in zip(claiming, sweeping, strict=True) for call in pair]
        answers = await asyncio.gather(*calls[turn % 12 :], *calls[: turn % 12])
        claims = [answer for answer in answers if isinstance(answer, Claim)]
        assert sum(answer for answer in answers if isinstance(answer, int)) == 0
        assert sorted(job for claim in claims for job in ids(claim)) == sorted(f"{turn}-{n}" for n in range(8))
        for claim in claims:
            assert await store.ack(ref(), settled(claim)) == []
    assert await sizes(store) == {}


async def test_QB1_a_delay_occupies_no_lease_and_is_delivered_once(store: Store, advance: Advance) -> None:
    """The job waits for many times as long as a lease lasts."""
    await created(store)
    worker = Worker(store)
    await enqueue(store, new("a", when=-120))
    due = (await counts(store)).next_due_at
    assert due is not None
    delivered: list[str] = []
    looks_after_it = 3
    while looks_after_it:
        looks_after_it -= (await counts(store)).now >= due
        claim = await worker.claim(lease_ms=10)
        await store.recover(ref())
        if claim.jobs:
            assert claim.now >= due
            assert await store.ack(ref(), settled(claim)) == []
        elif not delivered:
            assert await sizes(store) == {"scheduled": 1} or (await counts(store)).now >= due
        delivered += ids(claim)
        await advance(10)
    assert delivered == ["a"]


async def test_QB2_due_jobs_are_moved_once_however_many_move_them(store: Store, advance: Advance) -> None:
    """The move is one step, so nobody can die in the middle of it; and nobody moves what another one has moved."""
    await created(store)
    names = [f"job-{n}" for n in range(400)]
    await enqueue(store, *(new(name, when=-10) for name in names))
    await advance(10)
    workers = [Worker(store, f"w{n}") for n in range(8)]
    moved = await asyncio.gather(*(store.promote_due(ref()) for _ in range(8)), *(each.claim(60) for each in workers))
    ready = sum(answer for answer in moved if isinstance(answer, int))
    assert ready in (0, 400)
    left = await Worker(store, "last").claim(256)
    claimed = [job for claim in moved if isinstance(claim, Claim) for job in ids(claim)] + ids(left)
    assert sorted(claimed) == sorted(names)


@pytest.mark.parametrize("drained", [False, True])
async def test_QK3_jobs_come_in_order_and_the_last_ones_too(store: Store, drained: bool) -> None:
    """Also of a version that drains: nearly first in, first out, in whatever portions they are asked for."""
    topology = await created(store)
    producer = Producer(store)
    portions = (1, 5, 256, 7, 256, 256, 256)
    # One more, so that the last claim finds a single job.
    placed = await producer.enqueue_many(QUEUE, [JobSpec("send", n) for n in range(sum(portions) + 1)])
    if drained:
        topology = await promote(store, QUEUE, 2, 2)
    worker, came = Worker(store), list[str]()
    for portion in (*portions, 256):
        claim = await worker.claim(portion)
        came += ids(claim)
        assert await store.ack(ref(), settled(claim)) == []
    assert came == [job.id for job in placed]
    assert await run_everything(store, topology) == []


async def test_QC5_thousands_that_fall_due_at_once_are_promoted_in_bounded_portions(
    store: Store, advance: Advance
) -> None:
    """Each claim promotes a portion, and is not kept from leasing by those that wait behind."""
    await created(store)
    for part in range(10):
        await enqueue(store, *(new(f"{part}-{n}", when=-10) for n in range(MAX_ENQUEUE)))
    await advance(10)
    claim = await Worker(store).claim(50)
    assert len(claim.jobs) == 50
    assert await sizes(store) == {"ready": MAX_PROMOTE - 50, "scheduled": 5000 - MAX_PROMOTE, "leased": 50}


async def test_QD1_QD4_what_has_run_leaves_nothing_behind(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups, advance: Advance
) -> None:
    """Whatever has happened to the jobs: no event, record, index entry or history outlives them."""
    topology = await created(store, 2)
    producer = Producer(store)
    for turn in range(5):
        await producer.enqueue_many(QUEUE, [JobSpec("send", n, delay=0.001 * (n % 3)) for n in range(200)])
        worker = Worker(store, f"failing-{turn}")
        for at in topology.refs(1):
            claim = await worker.claim(20, at=at)
            assert await store.fail(at, failures(claim, 1)) == []
            await worker.claim(5, lease_ms=1, at=at)
        await advance(5)
    ran: list[str] = []
    async with asyncio.timeout(60):
        while len(ran) < 1000:
            ran += await run_everything(store, topology)
            for at in topology.refs(1):
                claim = await Worker(store, f"alone-{len(ran)}").claim(at=at, alone=True)
                assert await store.ack(at, settled(claim)) == []
                ran += ids(claim)
            await advance(1)
            await asyncio.sleep(0)
    assert len(set(ran)) == 1000
    found = await store.counts(topology.refs(1))
    assert [each.live + each.dead for each in found] == [0, 0]
    if backend != "memory":
        left = redis_setups.keys(backend, prefix)
        names = {name.rpartition(":")[2] for name in left}
        # The names and the wakes are those of all queues, of wakes the last thousand.
        assert names <= {"topology", "meta", "seen", "alarm", "due", "hot", "queues", "wakes"}
        # Nonces of the last calls, which end by themselves.
        assert all(0 <= ms <= 10_000 for name, ms in left.items() if name.endswith(":seen"))
