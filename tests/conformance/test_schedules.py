"""What is kept of schedules, and jobs that are enqueued once whoever repeats it."""

from __future__ import annotations

import asyncio

import pytest

from headrace import JobSpec, Producer
from headrace.deletion import delete_queue
from headrace.errors import Fenced
from headrace.lifecycle import promote
from headrace.schedules import ScheduleMark
from headrace.stores.base import Accepted, Fence, Once, Store
from tests.conformance.steps import QUEUE, Worker, fresh_nonce, ids, new, ref, run_everything, settled, sizes

FIRST, SECOND = Fence(3, "a"), Fence(4, "b")
NOON, ONE = ScheduleMark(1_700_000_000_000, "every 60 s"), ScheduleMark(1_700_000_060_000, "0 3 * * * Europe/Paris")


async def test_QJ1_what_is_noted_is_replaced_by_compare_and_set(store: Store) -> None:
    assert not await store.note_schedule(QUEUE, FIRST, "nightly", None, NOON)  # there is no such queue
    await promote(store, QUEUE, 1, 2)
    assert (await store.read_schedules(QUEUE)).marks == {}
    assert await store.note_schedule(QUEUE, FIRST, "nightly", None, NOON)
    assert not await store.note_schedule(QUEUE, FIRST, "nightly", None, ONE)
    assert not await store.note_schedule(QUEUE, FIRST, "nightly", ONE, NOON)
    assert await store.note_schedule(QUEUE, FIRST, "nightly", NOON, ONE)
    assert await store.note_schedule(QUEUE, FIRST, "hourly", None, NOON)
    now, marks, _ = await store.read_schedules(QUEUE)
    assert marks == {"nightly": ONE, "hourly": NOON}
    assert now > NOON.at - 1


@pytest.mark.parametrize(
    "late", [FIRST, Fence(4, "of another term"), Fence(5, "c", incarnation=2)], ids=["older", "same epoch", "queue"]
)
async def test_L9_QJ1_a_former_leader_notes_nothing(store: Store, late: Fence) -> None:
    await promote(store, QUEUE, 1, 1)
    assert await store.note_schedule(QUEUE, FIRST, "nightly", None, NOON)
    assert await store.note_schedule(QUEUE, SECOND, "hourly", None, NOON)
    with pytest.raises(Fenced):
        await store.note_schedule(QUEUE, late, "nightly", NOON, ONE)
    assert (await store.read_schedules(QUEUE)).marks["nightly"] == NOON
    assert await store.note_schedule(QUEUE, SECOND, "nightly", NOON, ONE)


async def test_a_schedule_is_forgotten_unless_it_has_gone_on(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    assert not await store.forget_schedule(QUEUE, "nightly", NOON)
    assert await store.note_schedule(QUEUE, FIRST, "nightly", None, NOON)
    assert not await store.forget_schedule(QUEUE, "nightly", ONE)
    assert await store.forget_schedule(QUEUE, "nightly", NOON)
    assert (await store.read_schedules(QUEUE)).marks == {}
    assert await store.note_schedule(QUEUE, FIRST, "nightly", None, ONE)  # one that is declared begins anew
    assert not await store.forget_schedule("nobody", "nightly", NOON)


async def test_what_is_noted_goes_with_the_queue(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    await store.note_schedule(QUEUE, FIRST, "nightly", None, NOON)
    await delete_queue(store, QUEUE)
    await promote(store, QUEUE, 2, 1)
    assert (await store.read_schedules(QUEUE)).marks == {}
    with pytest.raises(Fenced):
        await store.note_schedule(QUEUE, SECOND, "nightly", None, NOON)
    assert await store.note_schedule(QUEUE, FIRST._replace(incarnation=2), "nightly", None, NOON)


async def test_QJ2_a_time_is_enqueued_once_even_if_its_job_has_ended(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    worker = Worker(store)

    async def run_all() -> list[str]:
        claim = await worker.claim()
        assert await store.ack(ref(), settled(claim)) == []
        return ids(claim)

    async def fire(number: int) -> Accepted:
        job = new(f"nightly@{number}")
        answer = await store.enqueue(ref(), 1, fresh_nonce(), [job], once=Once("nightly", number))
        assert isinstance(answer, Accepted)
        return answer

    assert (await fire(5)).existing == frozenset()
    assert await run_all() == ["nightly@5"]
    assert await sizes(store) == {}
    assert (await fire(5)).existing == {0}  # however late
    assert (await fire(4)).existing == {0}
    assert await sizes(store) == {}
    assert (await fire(6)).existing == frozenset()
    other = await store.enqueue(ref(), 1, fresh_nonce(), [new("hourly@1")], once=Once("hourly", 1))
    assert other == Accepted(frozenset())
    assert await sizes(store) == {"ready": 2}
    assert sorted(await run_all()) == ["hourly@1", "nightly@6"]


async def test_QJ1_many_that_fire_the_same_times_at_once_give_one_job_each(store: Store) -> None:
    await promote(store, QUEUE, 1, 4)
    times = [f"nightly@{number}" for number in range(1, 13)]

    async def fire_all() -> list[str]:
        producer, fresh = Producer(store), []
        for number, name in enumerate(times, 1):
            placed = await producer.enqueue_once(QUEUE, JobSpec("send", None, name), Once("nightly", number))
            fresh += [] if placed.existing else [placed.id]
        return fresh

    fresh = await asyncio.gather(*(fire_all() for _ in range(8)))
    assert sorted(each for part in fresh for each in part) == sorted(times)
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    assert sorted(await run_everything(store, topology)) == sorted(times)
