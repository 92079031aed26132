"""Store.claim and Store.resume: who gets which jobs, and what happens in passing."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import InvalidInput
from headrace.lifecycle import promote
from headrace.stores.base import MAX_CLAIM, MAX_ENQUEUE, MAX_RECOVER, Settled, Store
from headrace.stores.protocols.working import LEASE_LOST
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    claim_when_due,
    created,
    enqueue,
    ids,
    key,
    new,
    opened,
    ref,
    settled,
    sizes,
)


async def test_jobs_are_claimed_in_the_order_of_their_arrival(store: Store) -> None:
    await created(store)
    await enqueue(store, "c", "a")
    await enqueue(store, "b")
    worker = Worker(store)
    assert ids(await worker.claim(2)) == ["c", "a"]
    assert ids(await worker.claim(2)) == ["b"]
    assert ids(await worker.claim(2)) == []


async def test_lower_lanes_are_claimed_first(store: Store) -> None:
    await created(store)
    await enqueue(store, new("low", lane=b"2"), new("normal"), new("high", lane=b"0"))
    worker = Worker(store)
    assert [ids(await worker.claim(1)) for _ in range(3)] == [["high"], ["normal"], ["low"]]


async def test_an_id_is_live_whatever_its_lane(store: Store) -> None:
    await created(store)
    await enqueue(store, new("a", lane=b"0"))
    await enqueue(store, new("a", lane=b"2"))
    assert await sizes(store) == {"ready": 1}


async def test_M3_two_claims_never_return_the_same_job(store: Store) -> None:
    await created(store)
    await enqueue(store, *(f"job-{n}" for n in range(20)))
    first, second = await Worker(store, "a").claim(12), await Worker(store, "b").claim(12)
    assert len(first.jobs) == 12
    assert len(second.jobs) == 8
    assert not set(ids(first)) & set(ids(second))
    assert first.token == b"a:1"
    assert second.token == b"b:1"


async def test_M3_a_claim_returns_exactly_what_that_call_claimed(store: Store) -> None:
    """A claims T1, T2 appears, B claims: it gets T2 and nothing of A's; nor does A's own next call."""
    await created(store)
    a, b = Worker(store, "a"), Worker(store, "b")
    await enqueue(store, "T1")
    first = await a.claim()
    await enqueue(store, "T2")
    second = await b.claim()
    await enqueue(store, "T3")
    third = await a.claim()
    assert [ids(claim) for claim in (first, second, third)] == [["T1"], ["T2"], ["T3"]]
    assert len({claim.token for claim in (first, second, third)}) == 3
    assert (await store.resume(ref(), "a", 1, LONG_MS)).jobs == first.jobs


async def test_M3_workers_that_claim_at_once_never_get_the_same_job(store: Store) -> None:
    await created(store)
    names = [f"job-{n}" for n in range(200)]
    await enqueue(store, *names)
    others = [store.clone() for _ in range(4)]
    try:
        calls = [Worker(other, f"w{n}-{k}").claim(7) for n, other in enumerate(others) for k in range(10)]
        claims = await asyncio.gather(*calls)
    finally:
        for other in others:
            await other.close()
    taken = [name for claim in claims for name in ids(claim)]
    assert sorted(taken) == sorted(names)
    assert await sizes(store) == {"leased": 200}


async def test_a_claim_takes_up_to_its_limit_and_no_more_may_be_asked(store: Store) -> None:
    await created(store)
    await enqueue(store, *(f"job-{n}" for n in range(MAX_CLAIM + 1)))
    worker = Worker(store)
    assert (await worker.claim(0)).jobs == []
    for wrong in (-1, MAX_CLAIM + 1):
        with pytest.raises(InvalidInput, match="limit"):
            await worker.claim(wrong)
    assert len((await worker.claim(MAX_CLAIM)).jobs) == MAX_CLAIM
    assert await sizes(store) == {"ready": 1, "leased": MAX_CLAIM}


async def test_V11_an_expired_lease_is_recovered_by_the_next_claim(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    dead, alive = Worker(store, "dead"), Worker(store, "alive")
    lost = await dead.claim(lease_ms=100)
    assert ids(lost) == ["a"]
    again = await claim_when_due(alive, advance, 100, not_before=lost.now + 100)
    job = opened(again.jobs[0])
    assert (job.id, job.attempt, job.expiries, job.last_error) == ("a", 0, 1, LEASE_LOST)
    assert [(entry.status, entry.worker) for entry in job.history] == [("lease expired", "dead")]
    assert job.history[0].at <= again.now


async def test_V20_expired_leases_are_recovered_in_bounded_steps(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, *(f"job-{n}" for n in range(MAX_RECOVER + 50)))
    worker = Worker(store)
    await worker.claim(MAX_RECOVER + 50, lease_ms=20)
    await advance(20)
    await worker.claim(0)
    assert await sizes(store) == {"ready": MAX_RECOVER, "leased": 50}
    await worker.claim(0)
    assert await sizes(store) == {"ready": MAX_RECOVER + 50}


async def test_V20_a_thousand_expired_leases_are_recovered_while_claims_go_on(store: Store, advance: Advance) -> None:
    """No call takes back more than its share, each serves what is ready, and no job is lost or handed out twice."""
    await created(store)
    for start in range(0, 1000, MAX_ENQUEUE):
        await enqueue(store, *(f"lost-{start + n}" for n in range(MAX_ENQUEUE)))
    dead = Worker(store, "dead")
    leases = [lease for _ in range(4) for lease in settled(await dead.claim(250))]
    assert len(leases) == 1000
    assert await store.renew(ref(), leases, 1) == []
    await advance(2)
    await enqueue(store, *(f"fresh-{n}" for n in range(12)))
    alive = Worker(store, "alive")
    left, done = 1000, []
    while left:
        claim = await alive.claim(1, suspects=0)
        (name,) = ids(claim)
        done.append(name)
        before, left = left, (await sizes(store))["leased"] - len(done)
        assert len(claim.lost) == before - left == MAX_RECOVER
    assert done == [f"fresh-{n}" for n in range(10)]
    taken: list[str] = []
    while (claim := await alive.claim(100, suspects=100)).jobs:
        taken += ids(claim)
    assert sorted(taken) == sorted([f"lost-{n}" for n in range(1000)] + ["fresh-10", "fresh-11"])


async def test_due_jobs_become_ready_in_the_order_of_their_times(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, new("third", -60), new("first", -20), new("second", -40))
    await advance(60)
    assert ids(await Worker(store).claim()) == ["first", "second", "third"]


async def test_a_claim_acknowledges_in_the_same_step(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    worker = Worker(store)
    first = await worker.claim(2)
    second = await worker.claim(2, acks=[*settled(first), Settled(key("c"), first.token), Settled(key("x"), b"w:1")])
    assert ids(second) == ["c"]
    assert second.refused == [2, 3]
    assert await sizes(store) == {"leased": 1}


async def test_a_claim_for_no_job_does_the_housekeeping(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "leased", new("due", when=-20))
    worker = Worker(store)
    await worker.claim(lease_ms=20)
    await advance(20)
    assert (await worker.claim(0)).jobs == []
    assert await sizes(store) == {"ready": 2}


async def test_a_partition_that_holds_nothing_for_ever_is_gone(store: Store) -> None:
    worker = Worker(store)
    acks = [Settled(key("a"), b"w:1"), Settled(key("b"), b"w:1")]

    async def assert_gone() -> None:
        claim = await worker.claim(acks=acks)
        assert (claim.gone, claim.jobs, claim.refused) == (True, [], [0, 1])

    await assert_gone()  # absent
    await created(store)
    await promote(store, QUEUE, 2, 1)
    claim = await worker.claim(acks=acks)
    assert (claim.gone, claim.refused) == (False, [0, 1])
    await store.close_partition(ref())
    await assert_gone()
    await store.remove(ref())
    await assert_gone()


async def test_V14_M4_resume_returns_the_batch_of_a_lost_reply(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    worker = Worker(store)
    lost = await worker.claim(2, lease_ms=150)
    resumed = await store.resume(ref(), worker.name, worker.seq, LONG_MS)
    assert resumed.token == lost.token
    assert sorted(resumed.jobs) == sorted(lost.jobs)
    await advance(150)
    assert ids(await Worker(store, "other").claim()) == ["c"]  # the leases were renewed: nothing expired
    assert await store.ack(ref(), settled(resumed)) == []
    assert await sizes(store) == {"leased": 1}


async def test_V14_after_an_empty_resume_the_claim_is_never_applied(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    resumed = await store.resume(ref(), "w", 1, LONG_MS)
    assert (resumed.jobs, resumed.gone) == ([], False)
    late = await store.claim(ref(), "w", 1, 10, LONG_MS)
    assert late.jobs == []
    assert await sizes(store) == {"ready": 1}
    assert ids(await store.claim(ref(), "w", 2, 10, LONG_MS)) == ["a"]


async def test_V14_the_acks_of_a_late_claim_are_applied_once(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    first = await Worker(store).claim(1)
    await store.resume(ref(), "w", 2, LONG_MS)
    late = await store.claim(ref(), "w", 2, 1, LONG_MS, settled(first))
    assert (late.jobs, late.refused) == ([], [])
    assert await sizes(store) == {"ready": 1}


async def test_V14_resume_twice_returns_the_same_batch(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await store.claim(ref(), "w", 1, 10, LONG_MS)
    first, second = [await store.resume(ref(), "w", 1, LONG_MS) for _ in range(2)]
    assert sorted(first.jobs) == sorted(second.jobs)
    assert len(first.jobs) == 2


async def test_V14_resume_returns_only_what_is_still_leased_under_the_token(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "acked", "taken", "kept")
    worker = Worker(store)
    claim = await worker.claim(3, lease_ms=50)
    await store.ack(ref(), settled(claim)[:1])
    await store.renew(ref(), settled(claim)[2:], LONG_MS)
    await advance(50)
    assert ids(await Worker(store, "other").claim()) == ["taken"]
    assert ids(await store.resume(ref(), worker.name, worker.seq, LONG_MS)) == ["kept"]
    assert ids(await store.resume(ref(), "stranger", worker.seq, LONG_MS)) == []


async def test_resume_brings_what_changed_on_the_job(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    await Worker(store, "dead").claim(lease_ms=20)
    await advance(20)
    await store.claim(ref(), "w", 1, 10, LONG_MS)
    resumed = await store.resume(ref(), "w", 1, LONG_MS)
    assert opened(resumed.jobs[0]).expiries == 1


async def test_V14_a_batch_is_found_whole_among_many_leases(store: Store) -> None:
    """A server looks through the leases page by page."""
    await created(store)
    for part in range(4):
        await enqueue(store, *(f"{part}-{n}" for n in range(MAX_CLAIM)))
    worker = Worker(store)
    claims = [await worker.claim(MAX_CLAIM) for _ in range(4)]
    again = await store.resume(ref(), worker.name, 2, LONG_MS)
    assert sorted(again.jobs) == sorted(claims[1].jobs)
    assert again.fencing_token > max(claim.fencing_token for claim in claims)
    assert await store.ack(ref(), settled(again)) == []
    assert await sizes(store) == {"leased": 3 * MAX_CLAIM}


async def test_resume_in_a_partition_that_is_gone(store: Store) -> None:
    assert (await store.resume(ref(), "w", 1, LONG_MS)).gone


async def test_V1_a_draining_partition_is_still_claimed(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await promote(store, QUEUE, 2, 1)
    await promote(store, QUEUE, 3, 1)
    assert ids(await Worker(store).claim()) == ["a"]


async def test_QD6_a_claim_of_large_jobs_is_bounded_in_bytes(store: Store) -> None:
    await created(store)
    names = [f"job-{n}" for n in range(8)]
    for name in names:
        await enqueue(store, new(name, payload="x" * 200_000))
    worker = Worker(store)
    taken: list[str] = []
    while len(taken) < 8:
        claim = await worker.claim()
        assert 1 <= len(claim.jobs) <= 2
        assert claim.next_hint == ref() or len(taken) + len(claim.jobs) == 8
        taken += ids(claim)
    assert taken == names


async def test_QD6_a_single_job_above_the_bound_is_claimed(store: Store) -> None:
    await created(store)
    await enqueue(store, new("small"), new("large", payload="x" * 3_000_000), new("next"))
    worker = Worker(store)
    assert [ids(await worker.claim()) for _ in range(3)] == [["small"], ["large"], ["next"]]
