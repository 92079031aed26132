"""What is kept does not grow with jobs that have run, and nothing that is to stay is dropped, however much it is."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from headrace import Enqueued, PayloadTooLarge, SyncProducer
from headrace.dead_letter_lines import line_of
from headrace.dead_letters import dead_jobs
from headrace.lifecycle import promote
from headrace.producer import JobSpec, Producer
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import MAX_CLAIM, MAX_ENQUEUE, MAX_SETTLE, Store
from headrace.stores.memory import MemoryStore
from tests.conformance.conftest import Advance
from tests.conformance.steps import QUEUE, Worker, created, enqueue, failures, ref, releases, run_everything
from tests.services.redis_setups import RedisSetups

DEAD = 10_050


def held_in_memory(root: Any) -> int:
    """How many elements the collections hold that are reachable from an object of the library."""
    seen, waiting, elements = set[int](), [root], 0
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict | list | set | frozenset | deque):
            elements += len(each)
            waiting += [*each.values()] if isinstance(each, dict) else [*each]
        elif type(each).__module__.startswith("headrace"):
            slots = [name for base in type(each).__mro__ for name in getattr(base, "__slots__", ())]
            waiting += [getattr(each, name) for name in {*slots, *getattr(each, "__dict__", ())} if hasattr(each, name)]
    return elements


async def test_QD4_a_fifth_week_leaves_no_more_than_the_first(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups, advance: Advance
) -> None:
    """Jobs that fail, are handed back, lose their worker and run at last: counters stay, and nothing for each job."""

    async def held() -> int:
        if isinstance(store, MemoryStore):
            return held_in_memory([store._data.partitions[at] for at in topology.refs(1)])
        return redis_setups.entries(backend, prefix, without=("seen", "wakes"))

    topology = await created(store, 2)
    producer, held_after = Producer(store), list[int]()
    for week in range(5):
        await producer.enqueue_many(QUEUE, [JobSpec("send", n, delay=0.001 * (n % 3)) for n in range(200)])
        for at in topology.refs(1):
            claim = await Worker(store, f"failing-{week}").claim(30, at=at)
            assert await store.fail(at, failures(claim, 1)[:20]) == []
            assert await store.release(at, releases(claim)[20:]) == []
            await Worker(store, f"lost-{week}").claim(5, lease_ms=1, at=at)
        ran: list[str] = []
        async with asyncio.timeout(60):
            while len(ran) < 200:
                await advance(5)
                ran += await run_everything(store, topology)
                await asyncio.sleep(0)
        if isinstance(store, MemoryStore):
            await advance(20_000)  # nonces pass with time
        await enqueue(store, f"last-{week}", at=ref(0), partitions=2)
        assert await run_everything(store, topology) == [f"last-{week}"]
        held_after.append(await held())
    assert held_after[0] > 0
    assert held_after[-1] <= held_after[0] + 4, held_after  # of a thousand jobs


async def test_QD1_what_a_job_remembers_of_its_runs_is_bounded_in_bytes(store: Store, advance: Advance) -> None:
    """However often it fails; of an error a worker sends 2,000 characters."""
    await created(store)
    await enqueue(store, "a")
    sizes = list[int]()
    for run in range(60):
        while not (claim := await Worker(store, f"w-{run}").claim()).jobs:
            await advance(1)
            await store.promote_due(ref())
        sizes.append(len(claim.jobs[0].changes))
        assert await store.fail(ref(), failures(claim, 0, f"run {run}: ".ljust(2_000, "x"))) == []
    assert sizes[0] == 0 < sizes[1]
    assert max(sizes) < 21 * 2_100  # 20 entries and the last error
    assert max(sizes[40:]) <= max(sizes[:40]) + 200


async def test_QD1_of_wakes_the_last_thousand_are_kept(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups
) -> None:
    topology = await created(store, 48)
    refs = topology.refs(1)
    for turn in range(40):
        assert all(nap.asleep for nap in await asyncio.gather(*(store.sleep(at, 0) for at in refs)))
        names = {at: f"{turn}-{at.partition}" for at in refs}
        await asyncio.gather(*(enqueue(store, names[at], at=at, partitions=48) for at in refs))
        await asyncio.gather(*(store.withdraw(at, [names[at].encode()], running=False) for at in refs))
    if isinstance(store, MemoryStore):
        kept = held_in_memory(store._data.wakes)
    else:
        kept = redis_setups.entries(backend, f"{prefix}}}:wakes")
    assert 1000 <= kept <= 1200  # of 1,920; a server drops whole nodes of its stream, of a hundred each


@pytest.mark.parametrize("limited", [False, True])
async def test_QD5_beyond_ten_thousand_dead_jobs_none_goes_in_silence(
    store: Store, advance: Advance, limited: bool
) -> None:
    """Without a limit all stay, and all are exported; with the default one, 10,000, those beyond it are counted."""
    retention = Retention(done_count=0) if limited else None
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=retention))
    names = [f"job-{number:05}" for number in range(DEAD)]
    for start in range(0, DEAD, MAX_ENQUEUE):
        await enqueue(store, *names[start : start + MAX_ENQUEUE])
    killer = Worker(store, "killer")
    while (claim := await killer.claim(MAX_CLAIM)).jobs:
        dying = failures(claim, None)
        for start in range(0, len(dying), MAX_SETTLE):
            assert await store.fail(ref(), dying[start : start + MAX_SETTLE]) == []
        await advance(1)  # those that die later are the newer ones
    while (await store.trim(ref())).dead:
        pass
    exported = [line_of(dead)["id"] async for dead in dead_jobs(store, QUEUE)]
    found = await summarise(store, QUEUE)
    assert found is not None
    assert found.counters["dead_dropped"] == (50 if limited else 0)
    assert len(exported) == DEAD - found.counters["dead_dropped"]
    assert set(exported) <= set(names)
    if limited:  # a batch dies in one moment: of the first one some are gone, and none of the later ones
        assert set(names[MAX_CLAIM:]) <= set(exported)


async def test_QD6_a_payload_of_five_megabytes_is_refused_and_nothing_is_sent(store: Store) -> None:
    """By the default limit, in whatever way it is enqueued; the error names the field, the size and the limit."""
    topology = await created(store, 2)
    large = b"x" * (5 << 20)
    producer = Producer(store)
    with pytest.raises(PayloadTooLarge) as one:
        await producer.enqueue(QUEUE, "send", large)
    with pytest.raises(PayloadTooLarge) as text:
        await producer.enqueue(QUEUE, "send", {"file": "x" * (5 << 20)})
    with pytest.raises(PayloadTooLarge) as many:
        await producer.enqueue_many(QUEUE, [JobSpec("send"), JobSpec("send", large)])
    placed, each = await producer.enqueue_each(QUEUE, [JobSpec("send", id="small"), JobSpec("send", large)])
    assert isinstance(each, PayloadTooLarge)
    assert [error.limit for error in (one.value, text.value, many.value, each)] == [1 << 20] * 4
    assert [error.field for error in (one.value, text.value, many.value, each)] == [
        "payload",
        "payload",
        "jobs[1].payload",
        "jobs[1].payload",
    ]
    assert str(one.value).startswith("payload: 5242880 bytes")
    assert "1048576" in str(one.value)

    def plainly() -> None:
        with SyncProducer(store.clone()) as plain:
            with pytest.raises(PayloadTooLarge):
                plain.enqueue(QUEUE, "send", large)
            with pytest.raises(PayloadTooLarge):
                plain.enqueue_many(QUEUE, [JobSpec("send"), JobSpec("send", large)])

    await asyncio.to_thread(plainly)
    assert isinstance(placed, Enqueued)
    assert await run_everything(store, topology) == ["small"]
    just = b"x" * ((1 << 20) - 100)
    kept = await producer.enqueue(QUEUE, "send", just)
    assert await run_everything(store, topology) == [kept.id]
