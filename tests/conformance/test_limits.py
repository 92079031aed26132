"""Priority lanes, pauses and limits, as every partition enforces them."""

from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.errors import QueueFull, QueueHeld
from headrace.lifecycle import configure, promote
from headrace.producer import Producer
from headrace.settings import DrainSettings, QueueSettings
from headrace.stores.base import Failure, Moved, Release, Store, Unknown
from tests.conformance.actors import PROMOTION, Gate, killed_after, promoting, standing_before
from tests.conformance.conftest import Advance, Complete
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    ids,
    new,
    ref,
    releases,
    run_everything,
    settled,
    sizes,
    stored_topology,
)


async def set_limits(store: Store, **settings: object) -> None:
    await configure(store, QUEUE, QueueSettings.model_validate(settings))


async def test_lanes_share_a_claim_by_weight(store: Store) -> None:
    await created(store)
    await enqueue(store, *(new(f"{lane}-{n}", lane=lane.encode()) for lane in "012" for n in range(100)))
    claim = await Worker(store).claim(100)
    assert Counter(name[0] for name in ids(claim)) == {"0": 70, "1": 20, "2": 10}


async def test_lanes_leave_their_share_to_others(store: Store) -> None:
    await created(store)
    await enqueue(store, *(new(f"2-{n}", lane=b"2") for n in range(20)), *(new(f"0-{n}", lane=b"0") for n in range(3)))
    claim = await Worker(store).claim(20)
    assert Counter(name[0] for name in ids(claim)) == {"0": 3, "2": 17}


async def test_lanes_do_not_starve_when_jobs_are_claimed_one_by_one(store: Store) -> None:
    await created(store)
    await enqueue(store, *(new(f"{lane}-{n}", lane=lane.encode()) for lane in "012" for n in range(100)))
    worker = Worker(store)
    taken = Counter([ids(await worker.claim(1))[0][0] for _ in range(100)])
    assert taken == {"0": 70, "1": 20, "2": 10}


async def test_V12_J21_a_held_queue_takes_jobs_and_runs_none(store: Store) -> None:
    await created(store)
    await set_limits(store, stop="hold")
    await enqueue(store, "a")
    worker = Worker(store)
    assert ids(await worker.claim()) == []
    assert await sizes(store) == {"ready": 1}
    while await store.wait_hint([QUEUE], 0.01) is not None:
        assert ids(await worker.claim()) == []
    await set_limits(store, stop="none")
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert ids(await worker.claim()) == ["a"]


async def test_V12_a_version_promoted_while_held_starts_held(store: Store) -> None:
    await created(store)
    await set_limits(store, stop="hold")
    await promote(store, QUEUE, 2, 1)
    await enqueue(store, "a", at=ref(0, 2))
    assert ids(await Worker(store).claim(at=ref(0, 2))) == []


@pytest.mark.parametrize("steps", range(PROMOTION.index("write_topology") + 1, len(PROMOTION)))
async def test_V12_it_is_held_from_its_first_moment_whoever_dies(store: Store, steps: int) -> None:
    """Also where its promoter has ended right after it wrote the topology."""
    await created(store)
    await set_limits(store, stop="hold")
    assert await killed_after(store, steps, promoting(2, 3)) == PROMOTION[:steps]
    for partition in range(3):
        assert not isinstance(await enqueue(store, f"job-{partition}", at=ref(partition, 2), partitions=3), Moved)
        assert ids(await Worker(store).claim(at=ref(partition, 2))) == []


@pytest.mark.parametrize("pause", PROMOTION)
async def test_V12_a_pause_during_a_promotion_holds_in_every_version(store: Store, pause: str) -> None:
    await created(store)
    before = await Producer(store).enqueue(QUEUE, "send")
    gate = Gate(store)
    async with standing_before(gate, pause, promoting(2, 3)) as promotion:
        await set_limits(store, stop="hold")
    assert (await promotion).active == 2
    topology = await stored_topology(store)
    assert (topology.active, topology.settings.stop) == (2, "hold")
    placed = [await Producer(store).enqueue(QUEUE, "send") for _ in range(9)]
    assert {each.version for each in placed} == {2}
    assert await run_everything(store, topology) == []
    await set_limits(store, stop="none")
    ran = await run_everything(store, await stored_topology(store))
    assert sorted(ran) == sorted(each.id for each in (before, *placed))


@pytest.mark.parametrize("pause", ["read_topology", "write_topology", "settle 1:0"])
async def test_V12_a_promotion_during_a_pause_is_held_too(store: Store, pause: str) -> None:
    await created(store)
    before = await Producer(store).enqueue(QUEUE, "send")
    gate = Gate(store)
    async with standing_before(gate, pause, lambda through: set_limits(through, stop="hold")) as pausing:
        await promote(store, QUEUE, 2, 3)
    await pausing
    topology = await stored_topology(store)
    assert (topology.active, topology.settings.stop) == (2, "hold")
    placed = await Producer(store).enqueue(QUEUE, "send")
    assert placed.version == 2
    assert await run_everything(store, topology) == []
    await set_limits(store, stop="none")
    ran = await run_everything(store, await stored_topology(store))
    assert sorted(ran) == sorted([before.id, placed.id])


async def test_J21_leases_of_a_held_queue_are_acknowledged(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    claim = await Worker(store).claim()
    await set_limits(store, stop="hold")
    assert await store.ack(ref(), settled(claim)) == []
    assert await sizes(store) == {}


async def test_J21_what_runs_when_a_queue_is_held_goes_on_and_all_of_its_outcomes_count(
    store: Store, advance: Advance
) -> None:
    """Renewed, failed, put off, handed back, parked, lost with its worker; nothing begins before the hold ends."""
    await created(store)
    worker = Worker(store)
    await enqueue(store, "renewed", "failed", "dead", "put off", "handed back", "parked", "acked")
    names = dict(zip(ids(claim := await worker.claim()), settled(claim), strict=True))
    await enqueue(store, "lost")
    await Worker(store, "dies").claim(lease_ms=20)
    await set_limits(store, stop="hold")
    assert await store.renew(ref(), list(names.values()), LONG_MS) == []
    ends = [Failure(*names["failed"], 5, "boom"), Failure(*names["dead"], None, "boom")]
    assert await store.fail(ref(), ends) == []
    back = [Release(*names["put off"], 5, "snoozed"), Release(*names["handed back"])]
    assert await store.release(ref(), back) == []
    assert await store.park(ref(), [Unknown(*names["parked"], "send")]) == []
    await advance(20)
    held = await worker.claim(acks=[names["acked"]])
    assert (held.jobs, held.refused) == ([], [])
    assert await store.unpark(ref(), ["send"]) == 1
    assert await sizes(store) == {"ready": 5, "leased": 1, "dead": 1}
    assert not (await worker.claim()).jobs
    await set_limits(store, stop="none")
    first = await worker.claim()
    assert sorted(ids(first)) == ["failed", "handed back", "lost", "parked", "put off"]
    assert await store.ack(ref(), settled(first)) == []
    assert await store.ack(ref(), [names["renewed"]]) == []
    assert await sizes(store) == {"dead": 1}


async def test_J21_hold_and_drain_refuses_new_jobs_and_runs_the_old(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await set_limits(store, stop="hold_and_drain")
    with pytest.raises(QueueHeld, match="HoldAndDrain"):
        await enqueue(store, "b")
    await enqueue(store, "a")  # its job lives: nothing is added
    assert ids(await Worker(store).claim()) == ["a"]


async def test_the_rate_limit_opens_as_time_passes(store: Store, advance: Advance) -> None:
    await created(store)
    await set_limits(store, rate_per_second=20.0)
    await enqueue(store, *(f"job-{n}" for n in range(60)))
    worker = Worker(store)
    start = (first := await worker.claim()).now
    taken = len(first.jobs)
    while taken < 30:
        hint = await store.wait_hint([QUEUE], 0.05)
        if hint != ref():
            await advance(25)
            await store.tick(QUEUE, worker.name)
            continue
        claim = await worker.claim()
        taken += len(claim.jobs)
        # One second of the rate may have been saved up; beyond it each job costs 50 ms.
        assert taken <= 20 + (claim.now - start) / 50 + 1
    assert taken >= 30


async def test_the_in_flight_limit_holds_and_reopens(store: Store) -> None:
    await created(store)
    await set_limits(store, max_in_flight=2)
    await enqueue(store, *"abcdef")
    worker = Worker(store)
    claim = await worker.claim()
    assert ids(claim) == ["a", "b"]
    assert ids(await worker.claim()) == []
    assert await store.wait_hint([QUEUE], 0.01) != ref()
    for how in ("ack", "fail"):
        if how == "ack":
            assert await store.ack(ref(), settled(claim)[:1]) == []
        else:
            assert await store.fail(ref(), failures(claim, None)[1:]) == []
        assert await store.wait_hint([QUEUE], 5) == ref()
        assert len(ids(await worker.claim())) == 1
    held = await worker.claim()
    assert ids(held) == []


async def test_the_in_flight_limit_reopens_when_jobs_are_handed_back(store: Store) -> None:
    await created(store)
    await set_limits(store, max_in_flight=1)
    await enqueue(store, "a", "b")
    worker = Worker(store)
    claim = await worker.claim()
    while await store.wait_hint([QUEUE], 0.01) is not None:
        pass
    assert await store.release(ref(), releases(claim)) == []
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert ids(await worker.claim()) == ["a"]


async def test_limits_divide_by_partitions_and_round_up(store: Store) -> None:
    await created(store, 2)
    await set_limits(store, max_in_flight=3)
    await enqueue(store, *"abcdef", at=ref(1), partitions=2)
    assert len(ids(await Worker(store).claim(at=ref(1)))) == 2


async def test_QD5_a_full_queue_refuses_with_the_numbers_and_adds_nothing(store: Store) -> None:
    await created(store)
    await set_limits(store, max_length=3)
    await enqueue(store, "a", "b")
    with pytest.raises(QueueFull, match="2 of 3 jobs"):
        await enqueue(store, "c", "d")
    assert await sizes(store) == {"ready": 2}
    await enqueue(store, "a", "b", "c")
    assert await sizes(store) == {"ready": 3}
    await enqueue(store, "a")  # it lives already: nothing is added


async def test_V2_limits_change_on_a_live_queue(store: Store) -> None:
    await created(store)
    await enqueue(store, *"abc")
    worker = Worker(store)
    await set_limits(store, max_in_flight=1)
    assert len(ids(await worker.claim())) == 1
    await set_limits(store, max_in_flight=None)
    assert len(ids(await worker.claim())) == 2


async def test_with_order_strict_a_version_waits_for_its_turn(store: Store, completed: Complete) -> None:
    await created(store)
    await enqueue(store, "old")
    await configure(store, QUEUE, QueueSettings(drain=DrainSettings(policy="migrate", order="strict")))
    await promote(store, QUEUE, 2, 1)
    await promote(store, QUEUE, 3, 1)
    await enqueue(store, "new", at=ref(0, 3))
    worker = Worker(store)
    assert (await worker.claim(at=ref(0, 3))).jobs == []
    old = await worker.claim()
    assert ids(old) == ["old"]
    assert await store.ack(ref(), settled(old)) == []
    await completed(1)
    assert (await worker.claim(at=ref(0, 3))).jobs == []  # version 2 is drained, but not proven so
    while await store.wait_hint([QUEUE], 0.01):
        pass
    await completed(2)
    assert ref(0, 3) in {await store.wait_hint([QUEUE], 5) for _ in range(2)}
    assert ids(await worker.claim(at=ref(0, 3))) == ["new"]


async def test_what_waits_for_its_turn_takes_jobs_unless_the_queue_is_shut(store: Store) -> None:
    await created(store)
    drain = DrainSettings(policy="migrate", order="strict")
    await configure(store, QUEUE, QueueSettings(drain=drain, stop="hold_and_drain"))
    await promote(store, QUEUE, 2, 1)
    with pytest.raises(QueueHeld):
        await enqueue(store, "a", at=ref(0, 2))
    assert not (await Worker(store).claim()).jobs
    await configure(store, QUEUE, QueueSettings(drain=drain))
    await enqueue(store, "a", at=ref(0, 2))
    assert not (await Worker(store).claim(at=ref(0, 2))).jobs
    await configure(store, QUEUE, QueueSettings())
    assert ids(await Worker(store).claim(at=ref(0, 2))) == ["a"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"order": "strict"}, "order strict needs policy migrate"),
        ({"on_timeout": "migrate"}, "on_timeout migrate needs timeout_ms"),
        ({"timeout_ms": 1}, "greater than or equal to 1000"),
    ],
)
def test_a_drain_that_could_stop_the_queue_for_ever_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        DrainSettings.model_validate(given)
