"""Recovery and promotion of due jobs outside of claims, and the counts of a partition."""

from __future__ import annotations

from headrace.lifecycle import promote
from headrace.stores.base import MAX_ENQUEUE, MAX_PROMOTE, MAX_RECOVER, Store
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
    key,
    new,
    ref,
    settled,
    sizes,
)


async def test_V20_recovery_is_bounded_and_counts_what_it_did(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "kept", *(f"job-{n}" for n in range(MAX_RECOVER + 10)))
    await Worker(store, "alive").claim(1)
    await Worker(store).claim(MAX_RECOVER + 10, lease_ms=20)
    await advance(20)
    recovered = [await store.recover(ref()) for _ in range(3)]
    assert recovered == [MAX_RECOVER, 10, 0]
    assert await sizes(store) == {"ready": MAX_RECOVER + 10, "leased": 1}


async def test_QC5_promotion_is_bounded_and_counts_what_it_did(store: Store, advance: Advance) -> None:
    await created(store)
    for start in range(0, MAX_PROMOTE, MAX_ENQUEUE):
        await enqueue(store, *(new(f"job-{start + n}", when=-20) for n in range(MAX_ENQUEUE)))
    await enqueue(store, *(new(f"more-{n}", when=-20) for n in range(10)), new("later", when=-LONG_MS))
    await advance(20)
    assert [await store.promote_due(ref()) for _ in range(3)] == [MAX_PROMOTE, 10, 0]
    assert await sizes(store) == {"ready": MAX_PROMOTE + 10, "scheduled": 1}


async def test_M1_promotion_moves_nothing_before_its_time(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, new("a", when=-100), new("later", when=-LONG_MS))
    at = (await counts(store)).next_due_at
    assert at is not None
    if await store.promote_due(ref()) == 0:
        await advance(100)
        assert await store.promote_due(ref()) == 1
    assert (await counts(store)).now >= at
    assert await sizes(store) == {"ready": 1, "scheduled": 1}


async def test_counts_tell_every_state(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    start = (await counts(store)).now
    await enqueue(store, "failed", "dead", "leased", new("ready", when=7_000), "ready too")
    claim = await worker.claim(3)
    failed, dead = failures(claim, LONG_MS)[0], failures(claim, None)[1]
    await store.fail(ref(), [failed, dead])
    await enqueue(store, new("scheduled", when=-2 * LONG_MS))

    found = await counts(store)
    assert found.state == "active"
    assert found.nonempty() == {"ready": 2, "scheduled": 1, "retry": 1, "leased": 1, "dead": 1}
    assert found.live == 5
    assert found.oldest_ready_at == 7_000
    assert found.next_due_at is not None
    assert start + LONG_MS <= found.next_due_at <= found.now + LONG_MS
    assert found.marked_at is None
    assert found.now >= claim.now >= start


async def test_counts_of_many_partitions_come_in_the_order_asked(store: Store) -> None:
    await created(store, 2)
    await enqueue(store, "a", at=ref(1), partitions=2)
    second, absent, first = await store.counts([ref(1), ref(7), ref(0)])
    assert (second.state, second.ready) == ("active", 1)
    assert (absent.state, absent.nonempty(), absent.oldest_ready_at, absent.next_due_at) == ("absent", {}, None, None)
    assert (first.state, first.ready) == ("active", 0)
    assert await store.counts([]) == []


async def test_a_drains_begin_is_told_once_and_for_all(store: Store, advance: Advance) -> None:
    await created(store)
    await promote(store, QUEUE, 2, 1)
    first = await counts(store)
    assert first.state == "draining"
    assert first.marked_at is not None
    await advance(20)
    third = await promote(store, QUEUE, 3, 1)
    await store.mark(ref(), third)
    assert (await store.close_partition(ref())).marked_at == first.marked_at
    assert (await counts(store)).marked_at == first.marked_at


async def test_the_last_settled_job_leaves_nothing_behind(store: Store, advance: Advance) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "failed", "expired", "released", new("late", when=-20))
    claim = await worker.claim(1)
    await store.fail(ref(), failures(claim, 0))
    await Worker(store, "dead").claim(1, lease_ms=20)
    await advance(20)
    last = await worker.claim()
    assert sorted(ids(last)) == ["expired", "failed", "late", "released"]
    assert await store.ack(ref(), settled(last)) == []
    assert await sizes(store) == {}
    # Nothing of the old life of an id shows in its next one.
    assert await enqueue(store, "failed") is not None
    (again,) = (await worker.claim()).jobs
    assert (again.key, again.changes) == (key("failed"), b"")
