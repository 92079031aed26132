"""Queues without workers: a partition sleeps only if nothing in it needs one, and the next job says that it woke it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.errors import QueueHeld
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings
from headrace.stores.base import Moved, Store, Unknown, Wakes
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    key,
    new,
    ref,
    releases,
    settled,
)

AT_ONCE = 60.0  # a limit for wakes that are there, not a time that passes
NOT = 0.05
HORIZON_MS = 60_000


async def woken(store: Store, since: bytes) -> Wakes:
    return await store.wait_wakes(since, AT_ONCE)


async def silent(store: Store, since: bytes) -> bool:
    return await store.wait_wakes(since, NOT) == Wakes(since, ())


async def asleep(store: Store, partitions: int = 1, version: int = 1) -> None:
    """Put every partition to sleep; all of them must be ready for it."""
    for partition in range(partitions):
        assert (await store.sleep(ref(partition, version), HORIZON_MS)).asleep


async def test_O20_a_job_wakes_a_sleeping_queue_and_the_next_one_does_not(store: Store) -> None:
    await created(store)
    await asleep(store)
    since = await store.last_wake()
    await enqueue(store, "a")
    wakes = await woken(store, since)
    assert wakes.queues == (QUEUE,)
    await enqueue(store, "b")
    assert await silent(store, wakes.cursor)


async def test_O20_each_sleep_is_ended_by_one_wake(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    for job in ("a", "b", "c"):
        await asleep(store)
        since = await store.last_wake()
        await enqueue(store, job)
        assert (await woken(store, since)).queues == (QUEUE,)
        await store.ack(ref(), settled(await worker.claim()))


async def test_a_new_partition_begins_asleep(store: Store) -> None:
    """Nobody has to know whether a queue sleeps when a version is promoted."""
    await created(store)
    since = await store.last_wake()
    await promote(store, QUEUE, 2, 2)
    assert await silent(store, since)
    for partition in range(2):
        since = await store.last_wake()
        await enqueue(store, f"job-{partition}", at=ref(partition, 2), partitions=2)
        assert (await woken(store, since)).queues == (QUEUE,)


async def test_many_jobs_wake_a_partition_once_and_each_partition_of_its_own(store: Store) -> None:
    await created(store, 2)
    await asleep(store, 2)
    since = await store.last_wake()
    await enqueue(store, *(f"job-{n}" for n in range(50)), at=ref(1), partitions=2)
    wakes = await woken(store, since)
    assert await silent(store, wakes.cursor)
    await enqueue(store, "other", at=ref(0), partitions=2)
    assert (await woken(store, wakes.cursor)).queues == (QUEUE,)


async def test_a_job_for_later_wakes_as_well_since_the_timer_has_to_be_set(store: Store) -> None:
    await created(store)
    await asleep(store)
    since = await store.last_wake()
    await enqueue(store, new("later", -LONG_MS))
    assert (await woken(store, since)).queues == (QUEUE,)
    nap = await store.sleep(ref(), HORIZON_MS)
    assert nap.asleep
    assert nap.next_due_at == (await counts(store)).next_due_at


async def test_what_adds_no_job_wakes_nobody(store: Store) -> None:
    await created(store)
    await enqueue(store, new("live", -LONG_MS))
    await asleep(store)
    since = await store.last_wake()
    await enqueue(store, "live")
    await enqueue(store)
    assert isinstance(await enqueue(store, "stray", partitions=7), Moved)
    assert await silent(store, since)
    await enqueue(store, "new")
    assert (await woken(store, since)).queues == (QUEUE,)


async def test_a_call_whose_reply_was_lost_wakes_when_it_is_repeated(store: Store) -> None:
    """Once is enough where wakes cannot be lost; elsewhere whoever finds the call applied says it again."""
    await created(store)
    await asleep(store)
    since = await store.last_wake()
    await enqueue(store, "a", nonce=b"same")
    wakes = await woken(store, since)
    await enqueue(store, "a", nonce=b"same")
    assert await silent(store, wakes.cursor) is not store.hints_may_be_lost
    since = await store.last_wake()
    topology = await promote(store, QUEUE, 2, 1)
    assert await store.probe(ref(), topology, [(key("a"), b"same")]) == [True]
    assert await silent(store, since) is not store.hints_may_be_lost
    since = await store.last_wake()
    assert await store.probe(ref(), topology, [(key("a"), b"")]) == [True]
    assert await silent(store, since)


async def test_a_partition_with_a_ready_job_does_not_sleep(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    assert not (await store.sleep(ref(), HORIZON_MS)).asleep


async def test_QG7_a_partition_with_a_running_job_does_not_sleep(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    claim = await Worker(store).claim()
    assert not (await store.sleep(ref(), HORIZON_MS)).asleep
    await store.ack(ref(), settled(claim))
    assert (await store.sleep(ref(), HORIZON_MS)).asleep


async def test_a_partition_with_a_suspect_does_not_sleep(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    await Worker(store).claim(lease_ms=1)
    await advance(5)
    assert await store.recover(ref()) == 1
    assert not (await store.sleep(ref(), HORIZON_MS)).asleep


async def test_QC7_a_partition_with_a_job_due_soon_does_not_sleep(store: Store) -> None:
    await created(store)
    await enqueue(store, new("later", -30_000))
    assert not (await store.sleep(ref(), 40_000)).asleep
    assert (await store.sleep(ref(), 1_000)).asleep


async def test_a_retry_counts_as_a_delayed_job(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim()
    await store.fail(ref(), failures(claim, 30_000)[:1])
    await store.release(ref(), releases(claim, 50_000)[1:])
    nap = await store.sleep(ref(), 40_000)
    assert not nap.asleep
    assert nap.next_due_at is not None
    assert nap.next_due_at <= nap.now + 30_000
    assert (await store.sleep(ref(), 1_000)).asleep


async def test_E3_a_job_that_nobody_knows_lets_its_queue_sleep(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    claim = await Worker(store).claim()
    await store.park(ref(), [Unknown(job.key, claim.token, "strange") for job in claim.jobs])
    await asleep(store)


async def test_E3_a_held_queue_sleeps_with_its_jobs_but_not_with_one_that_runs(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b", new("later", -1_000))
    claim = await Worker(store).claim(1)
    await configure(store, QUEUE, QueueSettings(stop="hold"))
    assert not (await store.sleep(ref(), HORIZON_MS)).asleep
    await store.release(ref(), releases(claim))
    await asleep(store)
    since = await store.last_wake()
    await enqueue(store, "c")
    assert (await woken(store, since)).queues == (QUEUE,)


async def test_an_enqueue_that_is_refused_wakes_nobody(store: Store) -> None:
    await created(store)
    await asleep(store)
    await configure(store, QUEUE, QueueSettings(stop="hold_and_drain"))
    since = await store.last_wake()
    with pytest.raises(QueueHeld):
        await enqueue(store, "a")
    assert await silent(store, since)


async def test_a_draining_partition_sleeps_when_it_is_empty(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await promote(store, QUEUE, 2, 1)
    assert not (await store.sleep(ref(), HORIZON_MS)).asleep
    await store.ack(ref(), settled(await Worker(store).claim()))
    await asleep(store)


async def test_partitions_that_are_gone_keep_nobody_awake(store: Store) -> None:
    nap = await store.sleep(ref(), HORIZON_MS)
    assert (nap.asleep, nap.next_due_at) == (True, None)
    await created(store)
    await promote(store, QUEUE, 2, 1)
    await store.close_partition(ref())
    await asleep(store)
    await store.remove(ref())
    await asleep(store)
    assert (await counts(store)).state == "tombstone"


async def test_sleeping_changes_nothing_else(store: Store) -> None:
    await created(store)
    await enqueue(store, new("later", -LONG_MS))
    before = await counts(store)
    await asleep(store)
    assert (await counts(store))._replace(now=0) == before._replace(now=0)
    claim = await Worker(store).claim()
    assert not claim.gone
    assert claim.jobs == []


async def test_every_listener_hears_every_wake(store: Store) -> None:
    await created(store)
    await asleep(store)
    since = await store.last_wake()
    listeners = [asyncio.create_task(woken(store, since)) for _ in range(3)]
    await asyncio.sleep(0)
    await enqueue(store, "a")
    assert {wakes.queues for wakes in await asyncio.gather(*listeners)} == {(QUEUE,)}


async def test_one_who_listens_late_hears_what_was_said_before(store: Store) -> None:
    await created(store)
    await asleep(store)
    since = await store.last_wake()
    await enqueue(store, "a")
    assert (await woken(store, since)).queues == (QUEUE,)
    assert (await woken(store, since)).queues == (QUEUE,)
    assert await silent(store, await store.last_wake())


async def test_a_listener_in_another_thread_hears_it(store: Store) -> None:
    await created(store)
    await asleep(store)
    since = await store.last_wake()
    heard: list[Wakes] = []
    listens = threading.Event()

    async def listen() -> None:
        other = store.clone()
        try:
            listens.set()
            heard.append(await woken(other, since))
        finally:
            await other.close()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    await asyncio.to_thread(listens.wait, AT_ONCE)
    await enqueue(store, "a")
    await asyncio.to_thread(thread.join, 2 * AT_ONCE)
    assert [wakes.queues for wakes in heard] == [(QUEUE,)]


async def test_a_glance_tells_ready_and_due_jobs(store: Store, advance: Advance) -> None:
    await created(store)
    found = await store.glance(QUEUE)
    assert (found.ready, found.next_due_at) == (False, None)
    await enqueue(store, new("later", -LONG_MS))
    found = await store.glance(QUEUE)
    assert not found.ready
    assert found.next_due_at == (await counts(store)).next_due_at
    await enqueue(store, "now")
    assert (await store.glance(QUEUE)).ready
