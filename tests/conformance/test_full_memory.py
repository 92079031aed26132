"""Redis has reached its maxmemory: what is in the queue goes on and ends; what would add to it is refused and says so.

Every primary is full, in a Cluster the one with the queue's hints, too. Memory as a store knows no such limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from headrace import App, Context, JobSpec, Producer, Snooze
from headrace.deletion import Deletion, delete_queue
from headrace.election.backends.redis import RedisLock
from headrace.election.fence import Accepted, Claim, Token
from headrace.election.record import Record
from headrace.election.redis_fence import RedisFence
from headrace.errors import StoreFull
from headrace.lifecycle import complete, configure, promote
from headrace.migration import move_jobs
from headrace.pausing import pause_queue, resume_queue
from headrace.redis.by_url import open_client
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import Failure, Fence, Release, Report, Settled, Store, Success, Unknown
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    ids,
    key,
    new,
    ref,
    run_everything,
    settled,
    sizes,
    stored_topology,
)
from tests.integration.worker.support import eventually, working
from tests.services.redis_setups import SUPPORTED, RedisSetups

Full = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=SUPPORTED)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def full(backend: str, redis_setups: RedisSetups) -> Full:
    """Within it every primary is full."""
    return partial(redis_setups.full, backend)


async def hint(store: Store) -> object:
    """The next hint of a partition, which must be there: nobody ticks."""
    while (found := await store.wait_hint([QUEUE], 60)) == QUEUE:
        pass
    return found


async def test_V19_an_enqueue_is_refused_with_its_own_error_and_adds_nothing(store: Store, full: Full) -> None:
    await created(store, 2)
    producer = Producer(store)
    await producer.enqueue(QUEUE, "send", id="there")
    with full():
        for given in ({}, {"id": "mine"}, {"delay": 60}, {"priority": "high"}):
            with pytest.raises(StoreFull, match="maxmemory"):
                await producer.enqueue(QUEUE, "send", **given)
        results = await producer.enqueue_each(QUEUE, [JobSpec("send", n, id=f"job-{n}") for n in range(8)])
        assert [type(each) for each in results] == [StoreFull] * 8
    assert sum([(await sizes(store, ref(n))).get("ready", 0) for n in range(2)]) == 1
    assert not (await producer.enqueue(QUEUE, "send", id="mine")).existing


async def test_V19_every_step_that_ends_a_job_goes_on(store: Store, full: Full, advance: Advance) -> None:
    await created(store)
    names = ["done", "retried", "dead", "back", "later", "parked", "lost", "cancelled", "fused"]
    await enqueue(store, *names, new("due", when=-1), new("high", lane=b"0"))
    await advance(2)
    worker = Worker(store)
    assert await hint(store) == ref()
    with full():
        first = await worker.claim(3)
        assert first.next_hint == ref()  # there is more, and whoever asks is told so
        claims = [first, *[await worker.claim(1) for _ in range(8)]]
        assert [len(claim.jobs) for claim in claims] == [3] + [1] * 8
        assert [len((await store.resume(ref(), "w", seq, LONG_MS)).jobs) for seq in (1, 2)] == [3, 1]
        held = {name: lease for claim in claims for name, lease in zip(ids(claim), settled(claim), strict=True)}
        assert await store.renew(ref(), list(held.values()), LONG_MS, [Report(0, 0.5, "half")]) == []
        assert await store.ack(ref(), [held["done"]]) == []
        assert await store.fail(ref(), [Failure(*held["retried"], 0, "boom")]) == []
        assert await store.fail(ref(), [Failure(*held["dead"], None, "boom")]) == []
        assert await store.release(ref(), [Release(*held["back"])]) == []
        assert await store.release(ref(), [Release(*held["later"], 1)]) == []
        assert await store.park(ref(), [Unknown(*held["parked"], "rare")]) == []
        assert await store.withdraw(ref(), [key("cancelled")[1:]], running=True) == ["leased"]
        assert await store.renew(ref(), [held["lost"]], 1) == []
        assert await hint(store) == ref()
        await store.hint(ref())  # no free slot: somebody else may have it
        assert await hint(store) == ref()
        assert await store.unpark(ref(), ["rare"]) == 1
        await advance(3)
        await store.recover(ref())
        await store.promote_due(ref())
        ran: list[str] = []
        acks = [held["fused"], held["due"], held["high"]]
        while (claim := await worker.claim(acks=acks, alone=True)).jobs:
            assert claim.refused == []
            ran += ids(claim)
            acks = settled(claim)
            await store.tick(QUEUE, "w")
        assert sorted(ran) == ["back", "later", "lost", "parked", "retried"]
        assert await sizes(store) == {"dead": 1}
        await store.leave(QUEUE, "w")
    await enqueue(store, "again")
    assert await sizes(store) == {"ready": 1, "dead": 1}


async def test_V19_expired_leases_are_taken_back_by_claims(store: Store, full: Full, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    with full():
        await Worker(store, "dead").claim(lease_ms=1)
        await advance(2)
        taken = [await Worker(store, name).claim() for name in ("one", "two")]
        assert sorted(ids(taken[0]) + ids(taken[1])) == ["a", "b"]
        for claim in taken:
            assert await store.ack(ref(), settled(claim)) == []
    assert await sizes(store) == {}


async def test_V19_limits_and_retention_do_not_stop_claims(store: Store, full: Full) -> None:
    await created(store)
    await configure(store, QUEUE, QueueSettings(max_in_flight=2, rate_per_second=1000.0, retention=Retention()))
    await enqueue(store, *(f"job-{n}" for n in range(6)))
    worker, done = Worker(store), 0
    acks: list[Settled] = []
    with full():
        while done < 6:
            claim = await worker.claim(acks=acks)
            done += len(acks)
            acks = settled(claim)
            told = acks[:1]
            assert await store.ack(ref(), told, [Success("send", 0) for _ in told]) == []
            done, acks = done + len(told), acks[1:]
    assert await sizes(store) == {}


async def test_V19_a_new_leader_is_obeyed_where_only_a_leader_runs_jobs(store: Store, full: Full) -> None:
    await created(store)
    await configure(store, QUEUE, QueueSettings(mode="leader_only"))
    await enqueue(store, "a", "b")
    worker = Worker(store)
    with full():
        assert ids(await worker.claim(1, fence=Fence(1, "first"))) == ["a"]
        await store.fence(ref(), Fence(2, "second"))
        assert (await worker.claim(1, fence=Fence(1, "first"))).fenced
        assert ids(await worker.claim(1, fence=Fence(2, "second"))) == ["b"]


async def test_V19_jobs_that_cannot_move_run_where_they_are(store: Store, full: Full) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    await promote(store, QUEUE, 2, 1)
    fence = Fence(1, "leader")
    await store.fence(ref(0, 2), fence)
    with full():
        assert await move_jobs(store, ref(), fence) == 0
        claim = await Worker(store).claim(1)
        assert ids(claim) == ["a"]
        assert await store.ack(ref(), settled(claim)) == []
        assert await sizes(store) == {"ready": 2}
    (aside,) = await store.set_aside(ref(), fence, 2, 1)
    with full():
        with pytest.raises(StoreFull):
            await move_jobs(store, ref(), fence)
        assert await sizes(store) == {"ready": 1, "moving": 1}
    assert await store.adopt(ref(0, 2), 1, fence, ref(), [aside]) == [True]
    with full():  # what was adopted is let go
        assert await move_jobs(store, ref(), fence) == 1
        assert (await sizes(store), await sizes(store, ref(0, 2))) == ({"ready": 1}, {"ready": 1})
    assert await move_jobs(store, ref(), fence) == 1
    assert await run_everything(store, await stored_topology(store)) == ["b", "c"]


async def test_V19_a_queue_is_paused_repartitioned_drained_put_to_sleep_and_deleted(store: Store, full: Full) -> None:
    """What ends jobs or gives memory back must not need any; a partition that is made for that takes a few bytes."""
    await created(store, 2)
    producer = Producer(store)
    placed = [(await producer.enqueue(QUEUE, "send")).id for _ in range(6)]
    with full():
        await pause_queue(store, QUEUE)
        assert not [job for n in range(2) for job in (await Worker(store).claim(at=ref(n))).jobs]
        await resume_queue(store, QUEUE)
        topology = await promote(store, QUEUE, 2, 3)
        with pytest.raises(StoreFull):
            await producer.enqueue(QUEUE, "send")  # moved on to the new version, and refused there
        assert sorted(await run_everything(store, topology)) == sorted(placed)
        await complete(store, QUEUE, 1, client_retry_ms=0)
        assert [(await store.sleep(ref(n, 2), 0)).asleep for n in range(3)] == [True] * 3
        assert await delete_queue(store, QUEUE) == Deletion(QUEUE, 3, {})
        assert (await promote(store, QUEUE, 1, 1)).incarnation == 2  # over what was left of the deleted one
        assert await delete_queue(store, QUEUE) == Deletion(QUEUE, 1, {})
    assert await store.read_topology(QUEUE) is None


async def test_V19_a_version_with_letters_to_carry_over_ends_when_there_is_memory_again(
    store: Store, full: Full
) -> None:
    await created(store)
    await enqueue(store, "dead")
    await store.fail(ref(), [Failure(*each, None, "boom") for each in settled(await Worker(store).claim())])
    await promote(store, QUEUE, 2, 1)
    with full(), pytest.raises(StoreFull):
        await complete(store, QUEUE, 1, client_retry_ms=0)
    assert await sizes(store) == {"dead": 1}
    await complete(store, QUEUE, 1, client_retry_ms=0)
    assert await sizes(store, ref(0, 2)) == {"dead": 1}


async def test_V19_a_leader_begins_goes_on_and_ends(
    backend: str, prefix: str, redis_setups: RedisSetups, full: Full
) -> None:
    tag = f"{prefix}:{QUEUE}"
    fence = RedisFence(open_client(redis_setups.url(backend)), tag)
    lock = RedisLock(open_client(redis_setups.url(backend)), tag)
    record = Record("a", term=1, duration=15.0, seq=1, acquired=1, epoch=1)
    try:
        with full():
            version = await lock.create(record, 5.0)
            await lock.cas(version, replace(record, seq=2), 5.0)
            for _ in range(2):
                assert await fence.claim(Claim("a", "n1", "redis", 1, 1), 15.0, 5.0) == Accepted(1)
            assert await fence.beat(Token(1, "n1"), 15.0, 5.0)
            await fence.release("n1", 5.0)
            assert await fence.claim(Claim("b", "n2", "redis", 1, 2), 15.0, 5.0) == Accepted(2)
            assert not await fence.beat(Token(1, "n1"), 15.0, 5.0)
    finally:
        await fence.close()
        await lock.close()


@pytest.mark.parametrize("mode", ["shared", "leader_only"])
async def test_V19_workers_run_all_that_is_there(store: Store, full: Full, mode: str) -> None:
    """Also what fails, puts itself off, or is of a type that only a worker which comes later knows."""
    settings = QueueSettings.model_validate({"mode": mode})
    await promote(store, QUEUE, 1, 3, settings=settings)
    producer, runs = Producer(store), Counter[str]()
    app, knowing = App(), App()

    @app.handler("send")
    async def send(ctx: Context, payload: int) -> None:
        runs[ctx.job.id] += 1
        if payload % 10 == 0 and runs[ctx.job.id] == 1:
            raise RuntimeError("the first run fails")
        if payload % 10 == 1 and runs[ctx.job.id] == 1:
            raise Snooze(timedelta(milliseconds=5))

    @knowing.handler("rare")
    async def rare(ctx: Context, payload: int) -> None:
        runs[ctx.job.id] += 1

    specs = [JobSpec("rare" if n % 10 == 2 else "send", n) for n in range(100)]
    placed = [job.id for job in await producer.enqueue_many(QUEUE, specs)]

    async def left() -> Counter[str]:
        return sum([Counter(await sizes(store, ref(n))) for n in range(3)], Counter())

    with full():
        async with working(app, store, batch_size=4, leader_profile="fast"):
            with pytest.raises(StoreFull):
                await producer.enqueue(QUEUE, "send", 7)

            async def parked() -> bool:
                return await left() == Counter(parked=10)

            await eventually(parked)
        async with working(knowing, store, worker_id="later", leader_profile="fast"):

            async def empty() -> bool:
                return not await left()

            await eventually(empty)
    assert runs.keys() == set(placed)
    assert Counter(runs.values()) == {1: 80, 2: 20}
