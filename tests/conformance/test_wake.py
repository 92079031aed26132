"""Hints and timer: every ready or due job is reached, one worker wakes for it, and nothing else wakes anybody."""

from __future__ import annotations

import asyncio
import threading

from headrace.lifecycle import promote
from headrace.stores.base import RECHECK_MS, Store
from headrace.topology import PartitionRef
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    ids,
    new,
    ref,
    releases,
    settled,
)

AT_ONCE = 60.0  # a limit for hints that are there, not a time that passes
NOT = 0.05


async def take(store: Store, *queues: str) -> PartitionRef | str | None:
    return await store.wait_hint(queues or (QUEUE,), AT_ONCE)


async def nothing(store: Store) -> bool:
    return await store.wait_hint([QUEUE], NOT) is None


async def test_a_job_on_an_empty_partition_raises_one_hint(store: Store) -> None:
    await created(store, 2)
    assert await nothing(store)
    await enqueue(store, "a", at=ref(1), partitions=2)
    await enqueue(store, "b", at=ref(1), partitions=2)
    assert await take(store) == ref(1)
    assert await nothing(store)


async def test_V18_of_many_waiting_workers_one_wakes(store: Store) -> None:
    await created(store)
    waiting = [asyncio.create_task(take(store)) for _ in range(40)]
    await asyncio.sleep(0)
    await enqueue(store, "a")
    woken, others = await asyncio.wait(waiting, timeout=AT_ONCE, return_when=asyncio.FIRST_COMPLETED)
    more, others = await asyncio.wait(others, timeout=0.4)
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    assert [each.result() for each in (*woken, *more)] == [ref()]


async def test_each_hint_wakes_a_worker_of_its_own(store: Store) -> None:
    await created(store, 8)
    waiting = [asyncio.create_task(take(store)) for _ in range(8)]
    for partition in range(8):
        await enqueue(store, f"job-{partition}", at=ref(partition), partitions=8)
    assert set(await asyncio.gather(*waiting)) == {ref(partition) for partition in range(8)}


async def test_hints_are_served_in_the_order_in_which_they_were_raised(store: Store, advance: Advance) -> None:
    await created(store, 12)
    order = [3, 11, 0, 7]
    for partition in order:
        await enqueue(store, f"job-{partition}", at=ref(partition), partitions=12)
        await advance(2)
    assert [await take(store) for _ in order] == [ref(partition) for partition in order]


async def test_J11_leftovers_go_behind_the_other_partitions(store: Store, advance: Advance) -> None:
    await created(store, 2)
    await enqueue(store, *(f"job-{n}" for n in range(50)), at=ref(0), partitions=2)
    await advance(2)
    await enqueue(store, "lonely", at=ref(1), partitions=2)
    await advance(2)
    worker = Worker(store)
    assert await take(store) == ref(0)
    first = await worker.claim(10)
    assert first.next_hint == ref(1)
    assert await take(store) == ref(1)
    assert ids(await worker.claim(10, at=ref(1))) == ["lonely"]
    assert await take(store) == ref(0)


async def test_a_claim_that_leaves_jobs_keeps_the_hint_and_one_that_does_not_removes_it(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    worker = Worker(store)
    await worker.claim(1)
    assert await take(store) == ref()
    await store.hint(ref())
    await worker.claim(1)
    assert await nothing(store)


async def test_a_hint_may_be_given_back_and_is_the_next_then(store: Store, advance: Advance) -> None:
    await created(store, 3)
    await enqueue(store, "a", at=ref(0), partitions=3)
    await advance(2)
    await store.hint(ref(2))
    await store.hint(ref(2))
    assert [await take(store), await take(store)] == [ref(2), ref(0)]
    assert await nothing(store)


async def test_a_hint_reaches_only_those_who_serve_its_queue(store: Store) -> None:
    other = ref()._replace(queue="reports")
    first = asyncio.create_task(store.wait_hint([QUEUE], 0.2))
    await asyncio.sleep(0)
    await store.hint(other)
    assert await first is None
    assert await take(store, QUEUE, "reports") == other
    await store.hint(ref())
    assert await take(store, QUEUE, "reports") == ref()


async def test_no_queue_starves_another_in_one_worker(store: Store) -> None:
    one, two = ref()._replace(queue="one"), ref()._replace(queue="two")
    await store.hint(one)
    await store.hint(two)
    served = set()
    for _ in range(4):
        hint = await take(store, "one", "two")
        assert isinstance(hint, PartitionRef)
        served.add(hint.queue)
        await store.hint(hint)
    assert served == {"one", "two"}


async def test_a_workers_hint_in_another_event_loop(store: Store) -> None:
    await created(store)
    other = store.clone()
    hints: list[PartitionRef | str | None] = []

    async def wait() -> None:
        hints.append(await other.wait_hint([QUEUE], AT_ONCE))
        await other.close()

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    await enqueue(store, "a")
    await asyncio.to_thread(thread.join, AT_ONCE)
    assert not thread.is_alive()
    assert hints == [ref()]


async def reached(store: Store, worker: str = "alive") -> PartitionRef:
    """What a worker does that only waits: it sets its timer when told, and every now and then."""
    async with asyncio.timeout(60):
        while True:
            hint = await store.wait_hint([QUEUE], NOT)
            if isinstance(hint, PartitionRef):
                return hint
            await store.tick(QUEUE, worker)


async def test_V17_the_hint_of_a_cancelled_wait_is_not_lost(store: Store) -> None:
    await created(store)
    waiting = asyncio.create_task(take(store))
    await asyncio.sleep(0.02)
    await enqueue(store, "a")
    waiting.cancel()
    (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
    if isinstance(outcome, asyncio.CancelledError):
        assert await reached(store) == ref()
    else:
        assert outcome == ref()


async def test_V16_V17_jobs_whose_hint_died_with_a_worker_are_hinted_again(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    assert await take(store) == ref()  # and this worker dies
    await enqueue(store, "b")
    await advance(RECHECK_MS)
    assert await reached(store) == ref()
    assert ids(await Worker(store).claim()) == ["a", "b"]


async def test_V11_a_dead_workers_leases_are_hinted_when_they_end(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    await take(store)
    lost = await Worker(store, "dead").claim(lease_ms=50)
    await advance(50)
    assert await reached(store) == ref()
    again = await Worker(store, "alive").claim()
    assert ids(again) == ["a"]
    assert again.now >= lost.now + 50


async def test_nothing_due_needs_no_alarm(store: Store) -> None:
    await created(store)
    assert (await store.tick(QUEUE, "w")).alarm_ms is None
    await Worker(store).claim()
    assert (await store.tick(QUEUE, "w")).alarm_ms is None


async def test_P1_the_queues_earliest_waiting_job_makes_one_worker_set_its_timer(store: Store) -> None:
    await created(store)
    await enqueue(store, new("a", when=-LONG_MS))
    assert await take(store) == QUEUE
    assert await nothing(store)
    alarm = (await store.tick(QUEUE, "first")).alarm_ms
    assert alarm is not None
    assert 0 < alarm <= LONG_MS
    # Only the holder of the alarm needs to know.
    assert (await store.tick(QUEUE, "second")).alarm_ms is None
    assert (await store.tick(QUEUE, "first")).alarm_ms is not None

    await enqueue(store, new("later", when=-2 * LONG_MS))
    assert await nothing(store)

    await enqueue(store, new("earlier", when=-LONG_MS // 2))
    assert await take(store) == QUEUE
    alarm = (await store.tick(QUEUE, "second")).alarm_ms
    assert alarm is not None
    assert 0 < alarm <= LONG_MS // 2
    assert (await store.tick(QUEUE, "first")).alarm_ms is None


async def test_a_tick_answers_the_request_to_set_the_timer(store: Store) -> None:
    await created(store)
    await enqueue(store, new("a", when=-LONG_MS))
    assert (await store.tick(QUEUE, "w")).alarm_ms is not None
    assert await nothing(store)


async def test_M1_a_due_job_is_hinted_at_its_time(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, new("a", when=-50))
    due_at = (await counts(store)).next_due_at
    assert due_at is not None
    await advance(50)
    assert await reached(store) == ref()
    claim = await Worker(store).claim()
    assert ids(claim) == ["a"]
    assert claim.now >= due_at


async def test_the_alarm_of_a_dead_holder_is_taken_over(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, new("a", when=-500))
    assert (await store.tick(QUEUE, "dead")).alarm_ms is not None  # it is not due yet
    await advance(510)
    assert (await store.tick(QUEUE, "alive")).alarm_ms is not None
    assert await take(store) == ref()


async def test_V17_a_worker_that_leaves_hands_the_alarm_over_at_once(store: Store) -> None:
    await created(store)
    await enqueue(store, new("later", LONG_MS * -1))
    assert await take(store) == QUEUE  # somebody is to set the timer
    assert (await store.tick(QUEUE, "leaves")).alarm_ms is not None
    assert (await store.tick(QUEUE, "stays")).alarm_ms is None
    await store.leave(QUEUE, "leaves")
    assert await take(store) == QUEUE
    assert await nothing(store)
    assert (await store.tick(QUEUE, "stays")).alarm_ms is not None


async def test_a_worker_that_leaves_without_the_alarm_takes_it_from_nobody(store: Store) -> None:
    await created(store)
    await enqueue(store, new("later", LONG_MS * -1))
    await store.tick(QUEUE, "holds")
    await store.leave(QUEUE, "leaves")
    await store.leave(QUEUE, "leaves")
    assert await nothing(store)
    assert (await store.tick(QUEUE, "leaves")).alarm_ms is None


async def test_where_nothing_is_due_a_leaving_worker_wakes_nobody(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store, "leaves")
    claim = await worker.claim()
    await store.tick(QUEUE, "leaves")
    await worker.claim(acks=settled(claim))
    await store.leave(QUEUE, "leaves")
    assert await nothing(store)


async def test_a_claim_tells_the_alarm_to_the_worker_that_leaves_the_earliest_time(store: Store) -> None:
    await created(store, 2)
    first, second = Worker(store, "first"), Worker(store, "second")
    await enqueue(store, "a", "b", partitions=2)
    assert (await first.claim(1)).alarm_ms is None  # jobs are left: there is nothing to wait for
    alarm = (await first.claim(1)).alarm_ms
    assert alarm is not None
    assert RECHECK_MS < alarm <= LONG_MS
    await enqueue(store, "c", at=ref(1), partitions=2)
    assert (await second.claim(lease_ms=2 * LONG_MS, at=ref(1))).alarm_ms is None
    await enqueue(store, "d", at=ref(1), partitions=2)
    alarm = (await second.claim(lease_ms=LONG_MS // 2, at=ref(1))).alarm_ms
    assert alarm is not None
    assert RECHECK_MS < alarm <= LONG_MS // 2


async def test_whatever_makes_jobs_ready_raises_a_hint(store: Store, advance: Advance) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "a")
    await store.release(ref(), releases(await worker.claim()))
    assert await take(store) == ref()

    await store.fail(ref(), failures(await worker.claim(), 0))
    assert await store.promote_due(ref()) == 1
    while (hint := await take(store)) == QUEUE:
        pass
    assert hint == ref()

    await worker.claim(lease_ms=20)
    await advance(20)
    assert await store.recover(ref()) == 1
    assert await take(store) == ref()


async def test_a_retry_without_delay_is_hinted_by_the_next_tick(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await store.fail(ref(), failures(await Worker(store).claim(), 0))
    await store.tick(QUEUE, "w")
    assert await take(store) == ref()


async def test_partitions_that_are_gone_are_hinted_no_more(store: Store, advance: Advance) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "a")
    await promote(store, QUEUE, 2, 1)
    await store.ack(ref(), settled(await worker.claim(lease_ms=20)))
    await store.close_partition(ref())
    await store.hint(ref())
    assert await take(store) == ref()
    assert (await worker.claim()).gone
    await advance(20)
    assert (await store.tick(QUEUE, "w")).alarm_ms is None
    assert await nothing(store)

    await store.hint(ref())
    await store.remove(ref())
    assert await nothing(store)


async def test_an_idle_queue_wakes_nobody(store: Store, advance: Advance) -> None:
    await created(store, 4)
    worker = Worker(store)
    await enqueue(store, "a", partitions=4)
    await take(store)
    await store.ack(ref(), settled(await worker.claim(lease_ms=20)))
    await advance(20)
    # The end of the lease, which nobody took back, costs one more look; then there is silence.
    await store.tick(QUEUE, "w")
    assert await take(store) == ref()
    await worker.claim()
    assert (await store.tick(QUEUE, "w")).alarm_ms is None
    assert await nothing(store)


async def test_a_cancelled_wait_ends_at_whatever_moment_it_is_cancelled(store: Store) -> None:
    await created(store)
    for turns in range(60):  # through connecting, sending and waiting for the reply
        waiting = asyncio.create_task(take(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        done, _ = await asyncio.wait([waiting], timeout=AT_ONCE / 2)
        assert done, f"the wait goes on after it was cancelled in turn {turns} of the event loop"
        assert waiting.cancelled()
