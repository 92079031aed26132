"""Statistics: depths that are measured, counters that grow, and one small read of both."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import UnknownQueue
from headrace.lifecycle import promote
from headrace.statistics import summarise
from headrace.stores.base import COUNTERS, HORIZONS, Depth, Growth, Statistics, Store, Unknown
from headrace.topology import PartitionRef
from tests.conformance.conftest import Advance, Complete
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    id_of,
    new,
    ref,
    settled,
    sizes,
)


async def measured(store: Store) -> Statistics:
    found = await summarise(store, QUEUE)
    assert found is not None
    return found


async def test_a_queue_that_was_never_measured_has_none(store: Store) -> None:
    assert await store.read_stats(QUEUE) is None
    with pytest.raises(UnknownQueue):
        await summarise(store, QUEUE)
    await created(store)
    assert await store.read_stats(QUEUE) is None


async def test_every_state_is_counted_per_version(store: Store, advance: Advance) -> None:
    topology = await created(store, 2)
    at = ref(0)
    jobs = [f"{id_of(0, 2)}-{n}" for n in range(5)]
    await enqueue(store, *jobs, new("later", when=-LONG_MS), at=at, partitions=2)
    await enqueue(store, "elsewhere", at=ref(1), partitions=2)
    worker = Worker(store)
    claim = await worker.claim(4, at=at)
    retried, dead, unknown = (failures(claim, delay)[n] for n, delay in enumerate((LONG_MS, None, 0)))
    await store.fail(at, [retried, dead])
    await store.park(at, [Unknown(unknown.key, unknown.token, "other")])
    await promote(store, QUEUE, 2, 1)
    await enqueue(store, "new", at=ref(0, 2))

    found = await measured(store)
    assert found.epoch == topology.epoch + 1
    old, fresh = found.versions[1], found.versions[2]
    assert (old.state, old.partitions, fresh.state, fresh.partitions) == ("draining", 2, "active", 1)
    assert (old.ready, old.scheduled, old.retry, old.leased, old.parked, old.dead) == (2, 1, 1, 1, 1, 1)
    assert (fresh.ready, fresh.scheduled, fresh.dead) == (1, 0, 0)
    assert found.total("ready") == 3
    assert old.next_due_at is not None
    assert old.next_due_at > found.now
    assert found.oldest_ready_at == old.oldest_ready_at
    assert old.oldest_ready_at is not None
    assert old.oldest_ready_at <= found.now
    await advance(20)
    again = await store.read_stats(QUEUE)
    assert again is not None
    assert again.versions == found.versions
    assert again.age_ms >= 20


async def test_delayed_jobs_are_counted_by_how_soon_they_are_due(store: Store) -> None:
    await created(store)
    delays = (5, 9, 20, 250, 3_599, 9_000)
    await enqueue(store, *(new(f"in-{seconds}", when=-seconds * 1000) for seconds in delays))
    claim = await Worker(store).claim(1)
    assert claim.jobs == []
    found = await measured(store)
    assert HORIZONS == (10, 30, 60, 300, 900, 3600)
    assert found.versions[1].due_within == (2, 3, 3, 4, 4, 5)


async def test_what_becomes_ready_is_counted_when_it_does(store: Store, advance: Advance) -> None:
    """A load for next week is no arrival; a retry is one, and so is a delayed job at its time."""
    await created(store)
    await enqueue(store, "now", new("next-week", when=-7 * 24 * 3_600_000), new("soon", when=-5))
    first = await measured(store)
    assert (first.counters["enqueued"], first.counters["arrived"]) == (3, 1)
    await advance(6)
    worker = Worker(store)
    claim = await worker.claim()
    assert len(claim.jobs) == 2
    assert (await measured(store)).counters["arrived"] == 2
    await store.fail(ref(), failures(claim, 5))
    await advance(6)
    assert await store.promote_due(ref()) == 2
    found = await measured(store)
    assert (found.counters["enqueued"], found.counters["arrived"]) == (3, 4)


async def test_leases_that_end_are_counted(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    assert len((await Worker(store).claim(lease_ms=1)).jobs) == 2
    await advance(3)
    assert await store.recover(ref()) == 2
    assert (await measured(store)).counters["expired"] == 2


async def test_measuring_again_counts_nothing_twice(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    counters = [(await measured(store)).counters for _ in range(3)]
    assert counters[0]["enqueued"] == 2
    assert counters == [counters[0]] * 3


async def test_counters_grow_on_when_a_version_is_gone(store: Store, completed: Complete) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    await measured(store)
    await promote(store, QUEUE, 2, 1)
    claim = await Worker(store).claim()
    await store.ack(ref(), settled(claim))
    await enqueue(store, "d", at=ref(0, 2))
    await completed(1)
    found = await measured(store)
    assert set(found.versions) == {2}
    assert found.counters["enqueued"] == 4


async def test_of_two_that_measure_at_once_one_is_stored(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    found = await asyncio.gather(*(measured(store) for _ in range(4)))
    assert {each.counters["enqueued"] for each in found} == {1}
    before = await store.read_stats(QUEUE)
    assert before is not None
    assert not await store.write_stats(QUEUE, before.measured_at - 1, 1, {}, {1: Growth(enqueued=100)})
    assert await store.write_stats(QUEUE, before.measured_at, 1, {1: Depth("active", 1)}, {1: Growth(enqueued=3)})
    after = await store.read_stats(QUEUE)
    assert after is not None
    assert after.measured_at > before.measured_at
    assert after.counters["enqueued"] == 3


async def test_a_counter_that_went_back_adds_nothing(store: Store) -> None:
    """A partition that was lost begins anew; what it had counted is counted already."""
    await created(store)
    at = 0
    for counted, total in ((10, 10), (4, 10), (7, 13)):
        assert await store.write_stats(QUEUE, at, 1, {}, {1: Growth(arrived=counted)})
        found = await store.read_stats(QUEUE)
        assert found is not None
        assert found.counters["arrived"] == total
        at = found.measured_at


async def test_workers_add_what_they_have_counted(store: Store) -> None:
    assert not await store.count_work(QUEUE, {"claimed": 5})  # a queue that is gone is not brought back
    assert await store.read_stats(QUEUE) is None
    await created(store)
    assert await store.count_work(QUEUE, {"claimed": 5, "service_ms": 1234})
    assert await store.count_work(QUEUE, {"claimed": 2, "succeeded": 3})
    found = await store.read_stats(QUEUE)
    assert found is not None
    assert found.measured_at == 0
    assert found.versions == {}
    expected = dict.fromkeys(COUNTERS, 0) | {"claimed": 7, "service_ms": 1234, "succeeded": 3}
    assert found.counters == expected
    assert (await measured(store)).counters["claimed"] == 7


async def test_partitions_that_are_not_there_count_as_empty(store: Store) -> None:
    await created(store)
    (absent,) = await store.survey([PartitionRef(QUEUE, 9, 0)])
    assert absent.counts.state == "absent"
    assert (absent.growth, absent.due_within) == (Growth(), (0,) * len(HORIZONS))
    assert await sizes(store) == {}


async def test_what_scaling_remembers_is_read_with_the_statistics(store: Store) -> None:
    assert not await store.write_scaling(QUEUE, b"early")
    await created(store)
    assert await store.write_scaling(QUEUE, b"\x00first")
    found = await store.read_stats(QUEUE)
    assert found is not None
    assert (found.scaling, found.measured_at) == (b"\x00first", 0)
    await enqueue(store, "a")
    assert (await measured(store)).scaling == b"\x00first"
    await store.count_work(QUEUE, {"claimed": 1})
    await store.write_scaling(QUEUE, b"second")
    found = await measured(store)
    assert (found.scaling, found.counters["claimed"], found.total("ready")) == (b"second", 1, 1)
