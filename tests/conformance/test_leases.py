"""Leases: accepted under the token that holds the job now, whatever the clock says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from headrace.errors import InvalidInput
from headrace.lifecycle import promote
from headrace.migration import move_jobs
from headrace.stores.base import (
    MAX_BATCH,
    MAX_ENQUEUE,
    MAX_FUSED,
    MAX_PROMOTE,
    MAX_SETTLE,
    Claim,
    Failure,
    Fence,
    Release,
    Report,
    Settled,
    Store,
    Unknown,
)
from headrace.stores.protocols.working import LEASE_LOST
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    ids,
    key,
    new,
    opened,
    ref,
    releases,
    settled,
    sizes,
)


async def test_an_ack_removes_the_job_once(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim()
    assert await store.ack(ref(), settled(claim)) == []
    assert await sizes(store) == {}
    assert await store.ack(ref(), settled(claim)) == [0, 1]


async def test_an_ack_under_another_token_is_refused(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim()
    acks = [Settled(key("a"), b"w:99"), Settled(key("b"), claim.token), Settled(key("unknown"), claim.token)]
    assert await store.ack(ref(), acks) == [0, 2]
    assert await sizes(store) == {"leased": 1}


async def test_a_job_that_is_not_leased_cannot_be_settled(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    assert await store.ack(ref(), [Settled(key("a"), b"w:1")]) == [0]
    assert await store.fail(ref(), [Failure(key("a"), b"w:1", None, "boom")]) == [0]
    assert await store.release(ref(), [Release(key("a"), b"w:1")]) == [0]
    assert await store.renew(ref(), [Settled(key("a"), b"w:1")], LONG_MS) == [0]
    assert await sizes(store) == {"ready": 1}


async def test_a_job_named_twice_in_one_call_is_settled_once(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    acked, failed, released = settled(await Worker(store).claim())
    assert await store.ack(ref(), [acked, acked]) == [1]
    failure = Failure(*failed, LONG_MS, "boom")
    assert await store.fail(ref(), [failure, failure]) == [1]
    assert await store.release(ref(), [Release(*released), Release(*released)]) == [1]
    assert await sizes(store) == {"retry": 1, "ready": 1}


async def test_a_partition_that_does_not_exist_refuses_everything(store: Store) -> None:
    lease = Settled(key("a"), b"w:1")
    assert await store.ack(ref(), [lease, lease]) == [0, 1]
    assert await store.fail(ref(), [Failure(*lease, 1, "boom")]) == [0]
    assert await store.release(ref(), [Release(*lease)]) == [0]
    assert await store.renew(ref(), [lease], LONG_MS) == [0]
    assert await store.recover(ref()) == 0
    assert await store.promote_due(ref()) == 0
    assert await sizes(store) == {}


async def test_calls_without_elements_change_nothing(store: Store) -> None:
    await created(store)
    assert await store.ack(ref(), []) == []
    assert await store.fail(ref(), []) == []
    assert await store.release(ref(), []) == []
    assert await store.renew(ref(), [], LONG_MS) == []


async def test_the_holder_is_accepted_after_the_lease_ended_until_it_is_recovered(
    store: Store, advance: Advance
) -> None:
    await created(store)
    await enqueue(store, "acked", "failed", "released", "renewed")
    claim = await Worker(store).claim(lease_ms=20)
    await advance(20)
    ack, fail, release, renew = settled(claim)
    assert await store.ack(ref(), [ack]) == []
    assert await store.fail(ref(), [Failure(*fail, LONG_MS, "boom")]) == []
    assert await store.release(ref(), [Release(*release)]) == []
    assert await store.renew(ref(), [renew], LONG_MS) == []
    assert await store.recover(ref()) == 0
    assert await sizes(store) == {"retry": 1, "ready": 1, "leased": 1}


async def test_J2_M20_the_ack_of_a_lost_lease_is_refused_and_the_new_holders_accepted(
    store: Store, advance: Advance
) -> None:
    await created(store)
    await enqueue(store, "a")
    frozen = await Worker(store, "frozen").claim(lease_ms=20)
    await advance(20)
    taken = await Worker(store, "other").claim()
    assert ids(taken) == ["a"]
    assert await store.ack(ref(), settled(frozen)) == [0]
    assert await sizes(store) == {"leased": 1}
    assert await store.ack(ref(), settled(taken)) == []
    assert await sizes(store) == {}


async def _is_leased_to_another(store: Store, advance: Advance, held: Claim) -> None:
    await advance(20)
    assert ids(await Worker(store, "other").claim()) == ["a"]


async def _waits_for_a_retry_of_another(store: Store, advance: Advance, held: Claim) -> None:
    await advance(20)
    assert await store.fail(ref(), failures(await Worker(store, "other").claim(), LONG_MS)) == []


async def _died_with_another(store: Store, advance: Advance, held: Claim) -> None:
    await advance(20)
    assert await store.fail(ref(), failures(await Worker(store, "other").claim(), None)) == []


async def _is_parked_by_another(store: Store, advance: Advance, held: Claim) -> None:
    await advance(20)
    taken = await Worker(store, "other").claim()
    assert await store.park(ref(), [Unknown(*each, "rare") for each in settled(taken)]) == []


async def _was_recovered(store: Store, advance: Advance, held: Claim) -> None:
    await advance(20)
    assert await store.recover(ref()) == 1


async def _was_handed_back(store: Store, advance: Advance, held: Claim) -> None:
    assert await store.release(ref(), releases(held)) == []


async def _is_another_job_of_the_id(store: Store, advance: Advance, held: Claim) -> None:
    assert await store.ack(ref(), settled(held)) == []
    await enqueue(store, new("a", payload="other work"))


async def _is_another_job_of_the_id_that_runs(store: Store, advance: Advance, held: Claim) -> None:
    await _is_another_job_of_the_id(store, advance, held)
    assert ids(await Worker(store, "other").claim()) == ["a"]


async def _has_moved_on(store: Store, advance: Advance, held: Claim) -> None:
    assert await store.release(ref(), releases(held)) == []
    await promote(store, QUEUE, 2, 1)
    assert await move_jobs(store, ref(), Fence(1, "leader")) == 1


NEWER = [
    _is_leased_to_another,
    _waits_for_a_retry_of_another,
    _died_with_another,
    _is_parked_by_another,
    _was_recovered,
    _was_handed_back,
    _is_another_job_of_the_id,
    _is_another_job_of_the_id_that_runs,
    _has_moved_on,
]


@pytest.mark.parametrize("happens", NEWER, ids=lambda each: each.__name__.strip("_"))
async def test_M20_a_late_result_changes_no_newer_state(
    store: Store, advance: Advance, happens: Callable[[Store, Advance, Claim], Awaitable[None]]
) -> None:
    """Whatever a worker of the past sends of the job, alone or with its next claim."""
    await created(store)
    await enqueue(store, "a")
    late = Worker(store, "late")
    held = await late.claim(lease_ms=20)
    await happens(store, advance, held)
    before = [await sizes(store), await sizes(store, ref(0, 2)), await store.describe(ref(), key("a")[1:])]
    for _ in range(2):
        assert await store.ack(ref(), settled(held)) == [0]
        assert await store.fail(ref(), failures(held, 0)) == [0]
        assert await store.fail(ref(), failures(held, None)) == [0]
        assert await store.release(ref(), releases(held)) == [0]
        assert await store.renew(ref(), settled(held), LONG_MS, [Report(0, 1.0, "late")]) == [0]
        assert await store.park(ref(), [Unknown(*each, "rare") for each in settled(held)]) == [0]
        assert (await late.claim(0, acks=settled(held))).refused == [0]
        assert (await store.resume(ref(), "late", 1, LONG_MS)).jobs == []
    assert [await sizes(store), await sizes(store, ref(0, 2)), await store.describe(ref(), key("a")[1:])] == before


async def test_J2_the_same_worker_holds_a_job_under_each_claims_own_token(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    first = await worker.claim(lease_ms=20)
    await advance(20)
    second = await worker.claim()
    assert await store.ack(ref(), settled(first)) == [0]
    assert await store.ack(ref(), settled(second)) == []


async def test_J3_the_failure_of_a_lost_lease_costs_no_attempt(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    frozen = await Worker(store, "frozen").claim(lease_ms=20)
    await advance(20)
    taken = await Worker(store, "other").claim()
    assert await store.fail(ref(), failures(frozen, None)) == [0]
    assert await store.fail(ref(), failures(frozen, 1000)) == [0]
    assert await store.release(ref(), releases(frozen)) == [0]
    assert await sizes(store) == {"leased": 1}
    await store.release(ref(), releases(taken))
    job = opened((await Worker(store).claim()).jobs[0])
    assert (job.attempt, job.expiries, job.last_error) == (0, 1, LEASE_LOST)


async def test_J4_a_lost_lease_is_not_renewed(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    frozen = await Worker(store, "frozen").claim(lease_ms=20)
    await advance(20)
    taken = await Worker(store, "other").claim(lease_ms=20)
    assert await store.renew(ref(), settled(frozen), LONG_MS) == [0]
    await advance(20)
    assert await store.recover(ref()) == 1
    assert await store.renew(ref(), settled(taken), LONG_MS) == [0]


async def test_a_renewed_lease_lasts_from_the_renewal(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "renewed", "left")
    claim = await Worker(store).claim(lease_ms=100)
    assert await store.renew(ref(), settled(claim)[:1], LONG_MS) == []
    await advance(100)
    assert ids(await Worker(store, "other").claim()) == ["left"]
    assert await sizes(store) == {"leased": 2}


async def test_a_lease_named_twice_in_one_call_is_renewed(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    (lease,) = settled(await Worker(store).claim())
    assert await store.renew(ref(), [lease, lease], LONG_MS) == []


async def test_a_lease_may_be_shortened(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    claim = await Worker(store).claim()
    assert await store.renew(ref(), settled(claim), 20) == []
    await advance(20)
    assert await store.recover(ref()) == 1


async def test_no_call_takes_more_than_the_batch_limit(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    lease = settled(await Worker(store).claim())[0]
    calls: dict[int, Callable[[list[Settled]], list[Awaitable[object]]]] = {
        MAX_BATCH: lambda many: [store.ack(ref(), many), store.renew(ref(), many, LONG_MS)],
        MAX_FUSED: lambda many: [Worker(store, "other").claim(acks=many)],
        MAX_SETTLE: lambda many: [
            store.fail(ref(), [Failure(*each, None, "boom") for each in many]),
            store.release(ref(), [Release(*each) for each in many]),
            store.renew(ref(), many, LONG_MS, [Report(0, 0.5, "half")] * len(many)),
        ],
    }
    for most, made in calls.items():
        for call in made([lease] * (most + 1)):
            with pytest.raises(InvalidInput, match=f"at most {most} in one call"):
                await call
    assert await sizes(store) == {"leased": 1}


async def test_leases_are_settled_up_to_the_batch_limit(store: Store) -> None:
    await created(store)
    for start in range(0, MAX_BATCH, MAX_ENQUEUE):
        await enqueue(store, *(f"job-{n}" for n in range(start, start + MAX_ENQUEUE)))
    worker = Worker(store)

    async def held() -> list[Settled]:
        return [lease for _ in range(MAX_BATCH // MAX_SETTLE) for lease in settled(await worker.claim(MAX_SETTLE))]

    leases = await held()
    assert await store.renew(ref(), leases, LONG_MS) == []
    for start in range(0, MAX_BATCH, MAX_SETTLE):
        failed = [Failure(*lease, 0, "boom") for lease in leases[start : start + MAX_SETTLE]]
        assert await store.fail(ref(), failed) == []
    assert [await store.promote_due(ref()) for _ in range(MAX_BATCH // MAX_PROMOTE)] == [MAX_PROMOTE] * 2
    leases = await held()
    for start in range(0, MAX_BATCH, MAX_SETTLE):
        released = [Release(*lease) for lease in leases[start : start + MAX_SETTLE]]
        assert await store.release(ref(), released) == []
    assert await store.ack(ref(), await held()) == []
    assert await sizes(store) == {}
