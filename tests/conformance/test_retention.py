"""What the retention of a queue bounds besides finished jobs: dead letters, and the history of a job."""

from __future__ import annotations

import pytest

from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Store, Unknown
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    QUEUE,
    Worker,
    counts,
    enqueue,
    failures,
    new,
    opened,
    ref,
    releases,
    settled,
)


async def limited(store: Store, **retention: int) -> None:
    settings = QueueSettings(retention=Retention(done_count=0, **retention), crash_limit=1)
    await promote(store, QUEUE, 1, 1, settings=settings)


async def die(store: Store, *names: str) -> None:
    await enqueue(store, *names)
    claim = await Worker(store, f"w-{names[0]}").claim(256)
    await store.fail(ref(), failures(claim, None))


async def dead(store: Store) -> list[str]:
    return [letter.stored_id.decode() for letter in await store.dead_letters(ref(), limit=1000)]


async def dropped(store: Store) -> int:
    found = await summarise(store, QUEUE)
    assert found is not None
    return found.counters["dead_dropped"]


async def test_QD5_without_a_limit_no_dead_letter_is_dropped(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    await die(store, *(f"job-{number}" for number in range(50)))
    assert (await store.trim(ref())).dead == 0
    assert len(await dead(store)) == 50


async def test_QD5_beyond_the_limit_the_oldest_go_and_are_counted(store: Store, advance: Advance) -> None:
    await limited(store, dead_count=3)
    for number in range(5):
        await die(store, f"job-{number}")
        await advance(2)
    assert await dead(store) == ["job-2", "job-3", "job-4"]
    assert await dropped(store) == 2
    await die(store, *(f"batch-{number}" for number in range(20)))
    assert len(await dead(store)) == 3
    assert await dropped(store) == 22


async def test_QD5_the_same_for_jobs_that_lose_their_worker_and_for_retired_types(
    store: Store, advance: Advance
) -> None:
    await limited(store, dead_count=2)
    await enqueue(store, *(f"lost-{number}" for number in range(6)))
    for number in range(8):  # twice in company, then each alone
        await Worker(store, f"w{number}").claim(lease_ms=1, suspects=6, alone=True)
        await advance(3)
        await store.recover(ref())
    assert (await counts(store)).dead == 2
    lost = await dropped(store)
    assert lost == 4
    await enqueue(store, *(f"typed-{number}" for number in range(6)))
    claim = await Worker(store, "c").claim(suspects=0)
    await store.park(ref(), [Unknown(*lease, "old") for lease in settled(claim)])
    assert await store.bury_parked(ref(), "old") == 6
    assert (await counts(store)).dead == 2
    assert await dropped(store) == lost + 6


async def test_QD5_a_limit_that_is_lowered_is_reached_in_bounded_steps(store: Store) -> None:
    await limited(store)
    for number in range(5):
        await die(store, *(f"job-{number}-{n}" for n in range(250)))
    await configure(store, QUEUE, QueueSettings(retention=Retention(dead_count=10)))
    steps = []
    while gone := (await store.trim(ref())).dead:
        steps.append(gone)
    assert steps == [500, 500, 240]
    assert (await counts(store)).dead == 10
    assert await dropped(store) == 1240


@pytest.mark.parametrize("entries", [0, 2, 30])
async def test_M13_the_history_is_as_long_as_the_queue_says(store: Store, entries: int) -> None:
    await limited(store, history_entries=entries)
    await enqueue(store, new("a"))
    for run in range(entries + 3):
        claim = await Worker(store, f"w{run}").claim()
        await store.fail(ref(), failures(claim, 0, f"run {run}"))
        await store.promote_due(ref())
    (claimed,) = (await Worker(store, "onlooker").claim()).jobs
    job = opened(claimed)
    assert job.attempt == entries + 3  # counted, whatever is remembered
    assert job.last_error == f"run {entries + 2}"
    assert [entry.error for entry in job.history] == [f"run {run}" for run in range(3, entries + 3)]


async def test_M13_every_event_obeys_it(store: Store, advance: Advance) -> None:
    """Interruptions, lost leases and parking as well as failures."""
    await limited(store, history_entries=1)
    await configure(store, QUEUE, QueueSettings(retention=Retention(done_count=0, history_entries=1), crash_limit=100))
    await enqueue(store, new("a"))
    await store.release(ref(), releases(await Worker(store, "w1").claim(), note="interrupted"))
    await Worker(store, "w2").claim(lease_ms=1)
    await advance(3)
    await store.recover(ref())
    claim = await Worker(store, "w3").claim()
    assert [entry.status for entry in opened(claim.jobs[0]).history] == ["lease expired"]
    await store.park(ref(), [Unknown(*settled(claim)[0], "old")])
    await store.unpark(ref(), ["old"])
    claim = await Worker(store, "w4").claim()
    assert [entry.status for entry in opened(claim.jobs[0]).history] == ["parked"]
    await store.release(ref(), releases(claim, note="interrupted"))
    claim = await Worker(store, "w5").claim()
    assert [entry.status for entry in opened(claim.jobs[0]).history] == ["interrupted"]
