"""Store.fail and Store.release: retries, dead letters, hand-backs, and what the job remembers of them."""

from __future__ import annotations

import pytest

from headrace.retry import RetryPolicy, decide
from headrace.settings import DEFAULT_HISTORY_ENTRIES as HISTORY_ENTRIES
from headrace.stores.base import Failure, Store
from headrace.stores.protocols.working import LEASE_LOST
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    Worker,
    claim_when_due,
    counts,
    created,
    enqueue,
    failures,
    ids,
    key,
    new,
    opened,
    ref,
    releases,
    sizes,
)


async def test_a_failed_job_waits_for_its_retry_and_remembers_the_failure(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, new("a", payload="kept"))
    worker = Worker(store)
    claim = await worker.claim()
    assert await store.fail(ref(), [Failure(key("a"), claim.token, 150, "no route", "timed out")]) == []
    found = await counts(store)
    assert found.nonempty() == {"retry": 1}
    assert found.next_due_at is not None
    assert claim.now + 150 <= found.next_due_at <= found.now + 150
    again = await claim_when_due(worker, advance, 150, not_before=found.next_due_at)
    job = opened(again.jobs[0])
    assert (job.payload, job.attempt, job.expiries, job.last_error) == ("kept", 1, 0, "no route")
    assert [(e.status, e.worker, e.error) for e in job.history] == [("timed out", "w", "no route")]
    assert claim.now <= job.history[0].at <= found.now


async def test_a_failure_without_a_next_run_is_a_dead_letter(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim()
    assert await store.fail(ref(), failures(claim, None)) == []
    found = await counts(store)
    assert found.nonempty() == {"dead": 2}
    assert found.live == 0


async def test_every_death_of_an_id_is_kept(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    for _ in range(30):
        await enqueue(store, "a")
        await store.fail(ref(), failures(await worker.claim(), None))
    assert await sizes(store) == {"dead": 30}


async def test_J18_M10_three_retries_are_four_runs_in_every_store(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    policy = RetryPolicy(max_retries=3, base_ms=1, strategy="linear")
    runs = 0
    while (await counts(store)).live:
        claim = await worker.claim()
        for claimed in claim.jobs:
            runs += 1
            job = opened(claimed)
            assert job.attempt == runs - 1
            delay = decide(policy, job.attempt + 1).delay_ms
            await store.fail(ref(), [Failure(claimed.key, claim.token, None if delay is None else 0, f"run {runs}")])
    assert runs == 4
    assert await sizes(store) == {"dead": 1}


async def test_the_history_keeps_the_newest_entries(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    for run in range(HISTORY_ENTRIES + 5):
        await store.fail(ref(), failures(await worker.claim(), 0, f"run {run}"))
    job = opened((await worker.claim()).jobs[0])
    assert job.attempt == HISTORY_ENTRIES + 5
    assert [entry.error for entry in job.history] == [f"run {run}" for run in range(5, HISTORY_ENTRIES + 5)]


@pytest.mark.parametrize("error", ["ünïcödé ☃ 🚀", "", "x" * 100_000, "a\x00b\nc"])
async def test_an_error_is_kept_as_it_was_given(store: Store, error: str) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store, "wörker:with:colons")
    await store.fail(ref(), failures(await worker.claim(), 0, error))
    job = opened((await worker.claim()).jobs[0])
    assert job.last_error == error
    assert (job.history[0].error, job.history[0].worker) == (error, "wörker:with:colons")


async def test_an_error_that_is_no_valid_unicode_is_kept_readable(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    assert await store.fail(ref(), failures(await worker.claim(), 0, "no such file: caf\udce9")) == []
    assert opened((await worker.claim()).jobs[0]).last_error == "no such file: caf?"


async def test_retries_and_scheduled_jobs_become_ready_together(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "retried")
    await store.fail(ref(), failures(await Worker(store).claim(), 20))
    await enqueue(store, new("scheduled", when=-20))
    await advance(20)
    assert sorted(ids(await Worker(store).claim())) == ["retried", "scheduled"]


async def test_a_released_job_is_the_first_of_its_lane_and_not_charged(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c", "d")
    worker = Worker(store)
    claim = await worker.claim(3)
    assert await store.release(ref(), releases(claim)) == []
    assert await sizes(store) == {"ready": 4}
    again = await worker.claim()
    assert ids(again) == ["a", "b", "c", "d"]
    assert all((job.attempt, job.expiries, job.history) == (0, 0, ()) for job in map(opened, again.jobs))


async def test_a_released_job_goes_back_to_its_own_lane(store: Store) -> None:
    await created(store)
    await enqueue(store, new("high", lane=b"0"), new("normal"), new("low", lane=b"2"))
    worker = Worker(store)
    claim = await worker.claim()
    await store.release(ref(), list(reversed(releases(claim))))
    assert [ids(await worker.claim(1)) for _ in range(3)] == [["high"], ["normal"], ["low"]]


async def test_a_job_may_be_released_for_later(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    await store.release(ref(), releases(await worker.claim(), 100))
    found = await counts(store)
    assert found.nonempty() == {"retry": 1}
    assert found.next_due_at is not None
    again = await claim_when_due(worker, advance, 100, not_before=found.next_due_at)
    job = opened(again.jobs[0])
    assert (job.attempt, job.history) == (0, ())


async def test_a_release_with_a_note_is_remembered(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    await store.release(ref(), releases(await worker.claim(), note="stopped"))
    job = opened((await worker.claim()).jobs[0])
    assert (job.attempt, job.last_error) == (0, "")
    assert [(e.status, e.worker, e.error) for e in job.history] == [("stopped", "w", "")]


async def test_attempts_and_expiries_are_counted_apart(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    await store.fail(ref(), failures(await worker.claim(), 0, "boom"))
    await worker.claim(lease_ms=20)
    await advance(20)
    await store.fail(ref(), failures(await worker.claim(lease_ms=LONG_MS), 0, ""))
    job = opened((await worker.claim()).jobs[0])
    assert (job.attempt, job.expiries, job.last_error) == (2, 1, LEASE_LOST)
    assert [entry.status for entry in job.history] == ["failed", "lease expired", "failed"]
