"""What is not about jobs: the mark of a data set, the server's check, closing, and several stores at once."""

from __future__ import annotations

import asyncio
import threading

from headrace.stores.base import Settled, Store
from tests.conformance.steps import LONG_MS, created, enqueue, fresh_nonce, new, ref, sizes


async def test_the_first_mark_counts(store: Store) -> None:
    assert await store.read_marker() is None
    assert await store.write_marker("data-1") == "data-1"
    assert await store.write_marker("data-2") == "data-1"
    assert await store.read_marker() == "data-1"


async def test_a_store_that_works_passes_its_check(store: Store) -> None:
    await store.check()


async def test_a_store_may_be_closed_twice(store: Store) -> None:
    other = store.clone()
    await other.check()
    await other.close()
    await other.close()
    await store.check()


async def test_many_calls_at_once_are_answered_each(store: Store) -> None:
    await created(store)
    await asyncio.gather(*(enqueue(store, f"job-{n}") for n in range(300)))
    claims = await asyncio.gather(*(store.claim(ref(), f"w{n}", 1, 10, LONG_MS) for n in range(40)))
    keys = [job.key for claim in claims for job in claim.jobs]
    assert len(keys) == len(set(keys)) == 300


async def test_stores_of_several_threads_see_one_data_set(store: Store) -> None:
    """Four threads, each with a loop of its own, take turns on the same partition; every job runs once."""
    await created(store)
    done: list[bytes] = []
    problems: list[BaseException] = []
    jobs, threads = 60, 4

    async def work(other: Store, name: str) -> None:
        for n in range(jobs // threads):
            await other.enqueue(ref(), 1, fresh_nonce(), [new(f"{name}-{n}")])
        seq = 0
        async with asyncio.timeout(60):
            while len(done) < jobs:
                seq += 1
                claim = await other.claim(ref(), name, seq, 3, LONG_MS)
                acks = [Settled(job.key, claim.token) for job in claim.jobs]
                assert await other.ack(ref(), acks) == []
                done.extend(ack.key for ack in acks)
        await other.close()

    def run(name: str) -> None:
        try:
            asyncio.run(work(store.clone(), name))
        except BaseException as error:
            problems.append(error)

    running = [threading.Thread(target=run, args=(f"thread-{n}",)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        await asyncio.to_thread(thread.join, 40)
    assert problems == []
    assert len(done) == len(set(done)) == jobs
    assert await sizes(store) == {}
