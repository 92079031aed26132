"""What a lease carries beside the job: a fencing token that only grows, and what its run reports of its progress."""

from __future__ import annotations

import pytest

from headrace.job import Progress
from headrace.stores.base import Claim, Report, Settled, Store
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    Worker,
    created,
    enqueue,
    failures,
    key,
    opened,
    ref,
    releases,
    settled,
    sizes,
)

HOW_LEASES_END = ("handed back", "failed", "put off", "lost", "reply lost")


@pytest.mark.parametrize("seed", range(3))
async def test_QB4_the_fencing_token_of_a_job_grows_with_every_lease(store: Store, advance: Advance, seed: int) -> None:
    """However the leases end, and however many there are within one millisecond."""
    await created(store)
    await enqueue(store, "a")
    workers = [Worker(store, name) for name in ("w", "x", "y")]
    tokens: list[int] = []
    for turn in range(30):
        worker = workers[(turn + seed) % 3]
        how = HOW_LEASES_END[(turn * (seed + 1)) % 5]
        claim = await worker.claim(lease_ms=1 if how == "lost" else LONG_MS, alone=True, suspects=1)
        assert [opened(job).id for job in claim.jobs] == ["a"]
        tokens.append(claim.fencing_token)
        if how == "reply lost":
            resumed = await store.resume(ref(), worker.name, worker.seq, LONG_MS)
            tokens.append(resumed.fencing_token)
            await handed_back(store, resumed)
        elif how == "handed back":
            await handed_back(store, claim)
        elif how == "failed":
            assert await store.fail(ref(), failures(claim, 0)) == []
        elif how == "put off":
            assert await store.release(ref(), releases(claim, 1, "snoozed")) == []
            await advance(2)
        else:
            await advance(5)
            assert await store.recover(ref()) == 1
            # A job that is lost too often is dead: this run of it ends by itself.
            survived = await worker.claim(alone=True)
            tokens.append(survived.fencing_token)
            assert await store.fail(ref(), failures(survived, 0)) == []
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 0


async def handed_back(store: Store, claim: Claim) -> None:
    assert await store.release(ref(), releases(claim)) == []


async def test_the_fencing_token_grows_although_the_clock_hardly_moves(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    tokens: list[int] = []
    worker = Worker(store)
    for _ in range(200):
        claim = await worker.claim(limit=1)
        tokens.append(claim.fencing_token)
        await handed_back(store, claim)
    assert tokens == sorted(set(tokens))
    nothing = await worker.claim(limit=0)
    assert (nothing.jobs, nothing.fencing_token) == ([], 0)
    following = await worker.claim(limit=1)
    assert following.fencing_token > tokens[-1]


async def progress(store: Store, worker: Worker) -> Progress | None:
    """What the next run of the only job finds; it is handed back."""
    claim = await worker.claim(alone=True)
    (found,) = claim.jobs
    await handed_back(store, claim)
    return opened(found).progress


async def test_the_last_report_of_a_run_is_kept_with_its_job(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    claim = await worker.claim()
    for value, note in ((0.25, "page 1"), (0.5, "page 2 äöü")):
        assert await store.renew(ref(), settled(claim), LONG_MS, [Report(0, value, note)]) == []
    assert await store.renew(ref(), settled(claim), LONG_MS) == []  # without a report, the last one stays
    await handed_back(store, claim)
    found = await progress(store, worker)
    assert found is not None
    assert (found.value, found.note) == (0.5, "page 2 äöü")
    assert found.at >= claim.now


async def test_a_report_outlives_failures_lost_leases_and_the_job(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    claim = await worker.claim()
    assert await store.renew(ref(), settled(claim), LONG_MS, [Report(0, 7, "seven")]) == []
    assert await store.fail(ref(), failures(claim, 0)) == []
    failed = await worker.claim(lease_ms=1)
    assert (opened(failed.jobs[0]).attempt, opened(failed.jobs[0]).progress) == (1, Progress(7, "seven", _at(failed)))
    await advance(5)
    assert await store.recover(ref()) == 1
    lost = await worker.claim(alone=True)
    job = opened(lost.jobs[0])
    assert (job.expiries, job.suspect, job.progress) == (1, True, Progress(7, "seven", _at(failed)))
    assert await store.fail(ref(), failures(lost, None)) == []
    assert await sizes(store) == {"dead": 1}
    (letter,) = await store.dead_letters(ref())
    assert b"seven" in letter.changes


def _at(claim: Claim) -> int:
    found = opened(claim.jobs[0]).progress
    assert found is not None
    return found.at


async def test_reports_belong_to_the_leases_of_their_call_and_those_of_refused_ones_are_dropped(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    worker = Worker(store)
    claim = await worker.claim()
    a, b, c = settled(claim)
    leases = [a, Settled(key("b"), b"other:1"), c]
    reports = [Report(2, 3, "of c"), Report(1, 2, "of nobody"), Report(0, 1, "of a")]
    assert await store.renew(ref(), leases, LONG_MS, reports) == [1]
    assert await store.ack(ref(), [a]) == []
    assert await store.fail(ref(), failures(claim, 0)[1:]) == []
    again = await worker.claim()
    found = {opened(job).id: opened(job).progress for job in again.jobs}
    assert found["b"] is None
    assert found["c"] is not None
    assert (found["c"].value, found["c"].note) == (3, "of c")
    assert await store.renew(ref(), [b], LONG_MS, [Report(0, 1, "late")]) == [0]
