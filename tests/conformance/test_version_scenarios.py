"""Jobs and producers across versions: stale caches, lost replies, dead workers; step by step on every store."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import OutcomeUnknown, VersionNotHigher
from headrace.lifecycle import configure, promote
from headrace.producer import JobSpec, Producer
from headrace.retry import RetryPolicy
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from tests.conformance.actors import Gate, promoting, standing_before
from tests.conformance.conftest import Advance, Complete
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    id_of,
    ids,
    opened,
    ref,
    run_everything,
    settled,
    sizes,
    stored_topology,
)


async def test_V1_a_job_two_versions_back_still_runs(store: Store) -> None:
    await created(store)
    placed = await Producer(store).enqueue(QUEUE, "send", {"n": 1})
    await promote(store, QUEUE, 2, 4)
    third = await promote(store, QUEUE, 3, 2)
    claim = await Worker(store).claim()
    assert ids(claim) == [placed.id]
    assert await store.fail(ref(), failures(claim, 0)) == []
    assert await run_everything(store, third) == [placed.id]


async def test_V2_a_settings_edit_on_a_live_queue_stops_nobody(store: Store) -> None:
    await created(store, 2)
    producer, worker = Producer(store), Worker(store)
    before = await producer.enqueue(QUEUE, "send")
    leased = await worker.claim(at=ref(before.partition))
    settings = QueueSettings(retry=RetryPolicy(max_retries=9), timeout_ms=1_000)
    edited = await configure(store, QUEUE, settings, {"uid": "u"})
    assert await store.read_topology(QUEUE) == edited
    assert (edited.settings, edited.owner) == (settings, {"uid": "u"})
    assert await store.ack(ref(before.partition), settled(leased)) == []
    after = await producer.enqueue(QUEUE, "send")
    assert await run_everything(store, edited) == [after.id]
    assert await configure(store, QUEUE, settings) == edited  # nothing to change: no new epoch


@pytest.mark.parametrize("pause", ["read_topology", "write_topology", "settle 1:0", "settle 2:0"])
async def test_V2_a_settings_edit_during_a_promotion_loses_neither(store: Store, pause: str) -> None:
    await created(store)
    gate = Gate(store)
    if pause.endswith("2:0"):
        await promote(store, QUEUE, 2, 1)
    settings = QueueSettings(timeout_ms=77)
    edit = configure(gate.store, QUEUE, settings)
    async with standing_before(gate, pause, lambda _: edit) as editing:
        await promote(store, QUEUE, 3, 2)
    await editing
    topology = await stored_topology(store)
    assert (topology.active, topology.settings) == (3, settings)
    placed = await Producer(store).enqueue(QUEUE, "send")
    assert placed.version == 3
    assert (await counts(store, ref(0, 1))).state == "draining"
    assert await run_everything(store, topology) == [placed.id]


async def test_V3_a_slow_promoter_and_a_stale_producer_cannot_revive_a_completed_version(
    store: Store, completed: Complete
) -> None:
    await created(store)
    slow = Gate(store)
    async with standing_before(slow, "install 2:0", promoting(2, 1)) as promoting_slowly:
        await promote(store, QUEUE, 2, 1)
        stale = Producer(store)
        cached = await stale.enqueue(QUEUE, "send")
        assert cached.version == 2
        third = await promote(store, QUEUE, 3, 1)
        assert await run_everything(store, third) == [cached.id]
        await completed(2)
    assert isinstance(promoting_slowly.exception(), Exception)
    assert (await counts(store, ref(0, 2))).state == "tombstone"
    placed = await stale.enqueue(QUEUE, "send")
    assert placed.version == 3
    assert await sizes(store, ref(0, 2)) == {}
    assert await run_everything(store, await stored_topology(store)) == [placed.id]


@pytest.mark.parametrize("given", [False, True])
async def test_V3_a_stale_producer_is_refused_also_between_the_steps_of_the_slow_promoter(
    store: Store, completed: Complete, given: bool
) -> None:
    """When it has gone through its INSTALL and does not know yet that it was overtaken."""
    await created(store)
    writing = Gate(store)
    slow = Gate(writing.store)
    writing.stop_before("write_topology")
    async with standing_before(slow, "install 2:0", promoting(2, 1)) as promoting_slowly:
        await promote(store, QUEUE, 2, 1)
        stale = Producer(store)
        cached = await stale.enqueue(QUEUE, "send")
        third = await promote(store, QUEUE, 3, 1)
        assert await run_everything(store, third) == [cached.id]
        await completed(2)
        slow.go_on()
        await writing.stopped()
        placed = await stale.enqueue(QUEUE, "send", id="given" if given else None)
        assert (cached.version, placed.version) == (2, 3)
        assert (await counts(store, ref(0, 2))).state == "tombstone"
        writing.go_on()
    assert isinstance(promoting_slowly.exception(), VersionNotHigher)
    assert await sizes(store, ref(0, 2)) == {}
    assert await run_everything(store, await stored_topology(store)) == [placed.id]


@pytest.mark.parametrize("first", ["stale", "fresh"])
async def test_V4_two_producers_of_one_id_between_topology_and_mark(store: Store, first: str) -> None:
    await created(store)
    stale, fresh = Producer(store), Producer(store)
    await stale.enqueue(QUEUE, "send", id="before")
    gate = Gate(store)
    async with standing_before(gate, "mark 1:0", promoting(2, 1)):
        order = [stale, fresh] if first == "stale" else [fresh, stale]
        one, two = [await producer.enqueue(QUEUE, "send", id="x") for producer in order]
    assert (one.version, one.existing) == ((1, False) if first == "stale" else (2, False))
    assert two == one._replace(existing=True)
    assert sorted(await run_everything(store, await stored_topology(store))) == ["before", "x"]


@pytest.mark.parametrize("pause", ["probe 1:0", "enqueue 2:0"])
async def test_V4_a_stale_producer_between_the_steps_of_a_fresh_one(store: Store, pause: str) -> None:
    await created(store)
    stale = Producer(store)
    await stale.enqueue(QUEUE, "send", id="before")
    promoter, between = Gate(store), Gate(store)
    async with standing_before(promoter, "mark 1:0", promoting(2, 1)):
        fresh = Producer(between.store)
        async with standing_before(between, pause, lambda _: fresh.enqueue(QUEUE, "send", id="x")) as freshly:
            one = await stale.enqueue(QUEUE, "send", id="x")
        two = await freshly
    assert not one.existing
    assert two == one._replace(existing=True)
    assert sorted(await run_everything(store, await stored_topology(store))) == ["before", "x"]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("ran", [False, True])
async def test_V5_a_lost_reply_and_a_promotion_make_no_second_job(store: Store, given: bool, ran: bool) -> None:
    await created(store)
    gate = Gate(store)
    producer = Producer(gate.store)
    await producer.enqueue(QUEUE, "other")
    gate.lose_reply("enqueue 1:0")
    sending = asyncio.ensure_future(producer.enqueue(QUEUE, "send", id="x" if given else None))
    await gate.lost.wait()
    gate.stop_before("enqueue 1:0")
    await gate.stopped()
    second = await promote(store, QUEUE, 2, 1)
    done = await run_everything(store, second) if ran else []
    gate.go_on()
    placed = await sending
    assert (placed.version, placed.existing) == (1, False)
    done += await run_everything(store, second)
    assert len(done) == 2
    assert placed.id in done
    assert await sizes(store, ref(0, 2)) == {}


async def test_V5_a_reply_lost_in_one_partition_repeats_nothing_in_the_others(store: Store) -> None:
    """After ``moved``, jobs of several steps meet in one partition of the new version; each is inserted once."""
    await created(store, 4)
    gate = Gate(store)
    producer = Producer(gate.store)
    specs = [JobSpec("send", n, id=id_of(n, 4)) for n in range(4)]
    await producer.enqueue(QUEUE, "warm")
    for partition in (1, 3):
        gate.lose_reply(f"enqueue 1:{partition}")
    gate.stop_before("enqueue 1:0")
    sending = asyncio.ensure_future(producer.enqueue_many(QUEUE, specs))
    await gate.stopped()
    async with asyncio.timeout(60):
        while not all([(await counts(store, ref(p))).ready for p in (1, 3)]):
            await asyncio.sleep(0.001)
    second = await promote(store, QUEUE, 2, 1)
    gate.go_on()
    placed = await sending
    assert [job.id for job in placed] == [spec.id for spec in specs]
    ran = await run_everything(store, second)
    assert len(ran) == len(set(ran)) == 5
    assert {spec.id for spec in specs} < set(ran)


async def test_V5_a_client_that_slept_too_long_does_not_guess(store: Store, completed: Complete) -> None:
    """Once the version may be gone, its nonces tell nothing any more: the client says so, and enqueues nothing."""
    now = 1_000.0
    await created(store)
    gate = Gate(store)
    producer = Producer(gate.store, clock=lambda: now)
    await producer.enqueue(QUEUE, "warm")
    gate.lose_reply("enqueue 1:0")
    sending = asyncio.ensure_future(producer.enqueue(QUEUE, "send"))
    await gate.lost.wait()
    gate.stop_before("enqueue 1:0")
    await gate.stopped()
    ran = await run_everything(store, await promote(store, QUEUE, 2, 1))
    await completed(1)
    now += 60
    gate.go_on()
    with pytest.raises(OutcomeUnknown):
        await sending
    assert len(ran) == 2
    assert await sizes(store, ref(0, 2)) == {}
    # That said nothing about other calls.
    assert (await producer.enqueue(QUEUE, "send")).version == 2


async def test_V5_a_client_that_slept_between_two_tries_does_not_send_again(store: Store) -> None:
    """The partition forgets a nonce after a while; a later resend would be a new job."""
    now = 1_000.0
    await created(store)
    gate = Gate(store)
    producer = Producer(gate.store, clock=lambda: now)
    await producer.enqueue(QUEUE, "warm")
    gate.lose_reply("enqueue 1:0")
    sending = asyncio.ensure_future(producer.enqueue(QUEUE, "send"))
    await gate.lost.wait()
    now += 60
    with pytest.raises(OutcomeUnknown):
        await sending
    assert gate.steps.count("enqueue 1:0") == 2


async def test_a_producer_that_slept_before_it_sent_anything_just_goes_on(store: Store) -> None:
    now = 1_000.0
    await created(store)
    gate = Gate(store)
    producer = Producer(gate.store, clock=lambda: now)
    await producer.enqueue(QUEUE, "warm")
    async with standing_before(gate, "enqueue 1:0", lambda _: producer.enqueue(QUEUE, "send")) as sending:
        await promote(store, QUEUE, 2, 1)
        now += 60
    assert (await sending).version == 2


async def test_J9_a_repeated_enqueue_reports_the_job_and_leaves_a_running_one_alone(store: Store) -> None:
    await created(store, 4)
    one = await Producer(store).enqueue(QUEUE, "send", {"n": 1}, id="order-7")
    claim = await Worker(store).claim(at=ref(one.partition))
    again = await Producer(store).enqueue(QUEUE, "send", {"n": 2}, id="order-7", delay=60)
    assert again == one._replace(existing=True)
    assert await store.renew(ref(one.partition), settled(claim), 0) == []
    retried = await Worker(store, "next").claim(at=ref(one.partition))
    assert opened(retried.jobs[0]).payload == {"n": 1}


async def test_J9_ids_that_repeat_in_one_call_are_one_job(store: Store) -> None:
    await created(store, 4)
    specs = [JobSpec("send", n, id="same") for n in range(3)] + [JobSpec("send", 9, id="other")]
    placed = await Producer(store).enqueue_many(QUEUE, specs)
    assert [job.existing for job in placed] == [False, True, True, False]
    assert sorted(await run_everything(store, await stored_topology(store))) == ["other", "same"]


async def test_V11_without_any_leader_the_leases_of_a_dead_worker_are_taken_over(
    store: Store, advance: Advance
) -> None:
    topology = await created(store, 4)
    producer = Producer(store)
    placed = [await producer.enqueue(QUEUE, "send") for _ in range(12)]
    dead = Worker(store, "dead")
    for at in topology.refs(1):
        await dead.claim(lease_ms=20, at=at)
    await advance(20)
    assert sorted(await run_everything(store, topology)) == sorted(job.id for job in placed)


async def test_V14_a_lost_claim_reply_delays_nothing_and_charges_nobody(store: Store, completed: Complete) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    gate = Gate(store)
    gate.lose_reply("claim 1:0")
    worker = Worker(gate.store)
    with pytest.raises(Exception, match="lost"):
        await worker.claim(1)
    await promote(store, QUEUE, 2, 1)
    resumed = await store.resume(ref(), worker.name, worker.seq, LONG_MS)
    assert ids(resumed) == ["a"]
    other = await Worker(store, "other").claim()
    assert ids(other) == ["b"]
    assert await store.ack(ref(), [*settled(resumed), *settled(other)]) == []
    assert set((await completed(1)).versions) == {2}
