"""Jobs that nobody wants any more: cancelled by id, in whatever state; purged by state, type, age and version."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import get_args

import pytest

from headrace.dead_letters import server_now
from headrace.envelope import encode_body
from headrace.errors import InvalidInput, JobRunning, UnknownQueue, UnknownVersion
from headrace.ids import decode_id
from headrace.lifecycle import configure, promote
from headrace.migration import move_jobs
from headrace.producer import Producer
from headrace.purging import Purge, PurgeState, purge_queue
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import MAX_WITHDRAW, Fence, Index, NewJob, Sought, Store, Success, Unknown
from headrace.withdrawal import Cancellation, cancel_jobs, delete_job
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
    ref,
    releases,
    run_everything,
    settled,
    sizes,
    stored_topology,
)

NEVER = 1 << 50
EVERY_INDEX: tuple[Index, ...] = get_args(Index)
EVERYTHING: tuple[PurgeState, ...] = ("scheduled", "ready", "retry_wait", "parked", "dead", "succeeded")


def typed(job_id: str, kind: str, lane: bytes = b"1") -> NewJob:
    return NewJob(key(job_id, lane), 0, encode_body(kind, None))


async def in_every_state(store: Store) -> Worker:
    """One job in each state, named after it, in v1:0; ``leased`` is the worker's."""
    await created(store)
    worker = Worker(store)
    for job_id in ("retry", "parked", "leased"):
        await enqueue(store, job_id)
        claim = await worker.claim()
        if job_id == "retry":
            await store.fail(ref(), failures(claim, LONG_MS))
        if job_id == "parked":
            await store.park(ref(), [Unknown(*settled(claim)[0], "send")])
    await enqueue(store, "ready", "stays", new("scheduled", -LONG_MS))
    return worker


async def test_a_job_is_cancelled_wherever_it_waits_and_its_id_is_free(store: Store) -> None:
    await in_every_state(store)
    asked = ["scheduled", "ready", "retry", "parked", "nobody"]
    assert await cancel_jobs(store, QUEUE, asked) == [
        Cancellation("scheduled", "scheduled", True),
        Cancellation("ready", "ready", True),
        Cancellation("retry", "retry_wait", True),
        Cancellation("parked", "parked", True),
        Cancellation("nobody", "unknown", False),
    ]
    assert await sizes(store) == {"ready": 1, "leased": 1}
    assert await store.parked_partitions(QUEUE) == {}
    assert {each.cancelled for each in await cancel_jobs(store, QUEUE, asked)} == {False}
    await enqueue(store, *asked)
    assert await sizes(store) == {"ready": 6, "leased": 1}


async def test_J2_a_running_job_is_cancelled_with_its_lease_and_nothing_of_its_run_counts(store: Store) -> None:
    worker = await in_every_state(store)
    leased = (await store.resume(ref(), worker.name, worker.seq, LONG_MS)).jobs
    claim = await worker.claim(1)
    claim.jobs[:] = leased
    mine = settled(claim)
    mine = [each._replace(token=b"%s:%d" % (worker.name.encode(), worker.seq - 1)) for each in mine]
    assert await cancel_jobs(store, QUEUE, ["leased"], running=False) == [Cancellation("leased", "leased", False)]
    assert await store.renew(ref(), mine, LONG_MS) == []
    assert await cancel_jobs(store, QUEUE, ["leased"]) == [Cancellation("leased", "leased", True)]
    assert await store.renew(ref(), mine, LONG_MS) == [0]
    assert await store.ack(ref(), mine) == [0]
    claim.jobs.clear()
    await enqueue(store, "leased")  # another job of that id: the old run cannot end it
    assert await store.ack(ref(), mine) == [0]
    assert (await store.statuses(ref(), [key("leased")[1:]])).live[0] is not None


async def test_a_ready_job_is_found_far_from_both_ends_of_its_list(store: Store) -> None:
    """A step searches a list only so far: with many ids at once, not all of a list of a few thousand."""
    await created(store)
    for start in range(0, 3000, 500):
        await enqueue(store, *(f"{number}" for number in range(start, start + 500)))
    asked = [f"{number}" for number in range(0, 3000, 60)]
    assert {(each.state, each.cancelled) for each in await cancel_jobs(store, QUEUE, asked)} == {("ready", True)}
    assert await sizes(store) == {"ready": 2950}
    ran = await run_everything(store, await stored_topology(store))
    assert sorted(map(int, ran)) == [number for number in range(3000) if number % 60]


async def test_a_cancelled_job_frees_its_place_under_the_limit(store: Store) -> None:
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(max_in_flight=1))
    await enqueue(store, "first", "second")
    worker = Worker(store)
    assert ids(await worker.claim()) == ["first"]
    assert ids(await worker.claim()) == []
    while await store.wait_hint([QUEUE], 0.01):
        pass
    await cancel_jobs(store, QUEUE, ["first"])
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert ids(await worker.claim()) == ["second"]


async def test_suspects_and_other_lanes_are_found(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "suspect")
    worker = Worker(store)
    await worker.claim(lease_ms=1)
    await advance(2)
    while not await store.recover(ref()):
        await asyncio.sleep(0.001)
    await enqueue(store, new("high", lane=b"0"), new("low", lane=b"2"), new("later", -LONG_MS, lane=b"2"))
    gone = await cancel_jobs(store, QUEUE, ["suspect", "high", "low", "later"])
    assert [each.cancelled for each in gone] == [True] * 4
    assert await sizes(store) == {}


async def test_J9_a_resent_enqueue_does_not_bring_a_cancelled_job_back(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", nonce=b"call")
    await cancel_jobs(store, QUEUE, ["a"])
    await enqueue(store, "a", nonce=b"call")
    assert await sizes(store) == {}


async def test_a_job_of_an_older_version_is_cancelled_and_one_on_its_way_where_it_arrives(store: Store) -> None:
    await created(store)
    await enqueue(store, "old", "moves")
    await promote(store, QUEUE, 2, 1)
    assert await cancel_jobs(store, QUEUE, ["old"]) == [Cancellation("old", "ready", True)]
    leader = Fence(1, "leader")
    await store.fence(ref(), leader)
    await store.set_aside(ref(), leader, 2, 10)
    assert await store.withdraw(ref(), [key("moves")[1:]], running=True) == ["moving"]
    cancelling = asyncio.create_task(cancel_jobs(store, QUEUE, ["moves"]))
    await move_jobs(store, ref(), leader)
    assert await cancelling == [Cancellation("moves", "ready", True)]
    assert await run_everything(store, await stored_topology(store)) == []


async def test_a_job_is_deleted_with_its_dead_letters_but_not_while_it_runs(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    for _ in range(2):
        await enqueue(store, "a")
        await store.fail(ref(), failures(await worker.claim(), None))
    await enqueue(store, "a")
    claim = await worker.claim()
    with pytest.raises(JobRunning, match="headrace job cancel emails a"):
        await delete_job(store, QUEUE, "a")
    assert await sizes(store) == {"leased": 1, "dead": 2}
    await store.release(ref(), releases(claim))
    assert await delete_job(store, QUEUE, "a") == ["ready", "dead", "dead"]
    assert await delete_job(store, QUEUE, "a") == []
    assert await sizes(store) == {}
    with pytest.raises(UnknownQueue):
        await delete_job(store, "nobody", "a")


async def test_withdrawing_is_bounded(store: Store) -> None:
    await created(store)
    with pytest.raises(InvalidInput, match="at most 100"):
        await store.withdraw(ref(), [b"x"] * (MAX_WITHDRAW + 1), running=True)
    assert await store.withdraw(ref(7, 9), [b"x"], running=True) == [""]
    assert (await store.purge(ref(7, 9), "r1", Sought(NEVER), 0)).end


async def test_a_producer_cancels(store: Store) -> None:
    await created(store)
    producer = Producer(store)
    await producer.enqueue(QUEUE, "send", id="a", delay=3600)
    assert await producer.cancel(QUEUE, "a") == Cancellation("a", "scheduled", True)
    assert (await producer.status(QUEUE, "a")).state == "unknown"


async def test_a_step_of_a_purge_looks_at_256_KiB_of_records_or_at_one_larger_one(store: Store) -> None:
    await created(store)
    for start in range(0, 30, 2):
        await enqueue(store, *(new(f"{n}", -LONG_MS, payload="x" * (100 << 10)) for n in (start, start + 1)))
    await enqueue(store, new("large", -LONG_MS * 2, payload="x" * (900 << 10)))  # the last of its index
    sought = Sought(NEVER)
    assert await store.purge(ref(), "scheduled", sought, 0, remove=False) == (1, 1, False)
    assert await store.purge(ref(), "scheduled", sought, 1, remove=False) == (2, 2, False)
    assert await store.purge(ref(), "scheduled", sought, 31, remove=False) == (0, 0, True)
    assert await store.purge(ref(), "scheduled", sought, 0) == (1, 1, False)
    assert await store.purge(ref(), "scheduled", sought._replace(type="other"), 0) == (2, 0, False)
    assert await sizes(store) == {"scheduled": 30}
    assert await purge_queue(store, QUEUE, Purge(("scheduled",), NEVER), dry_run=True, load=1.0) == {"scheduled": 30}
    assert await purge_queue(store, QUEUE, Purge(("scheduled",), NEVER), load=1.0) == {"scheduled": 30}
    assert await sizes(store) == {}


# ---- purging ---------------------------------------------------------------------------------------------------------


async def test_a_purge_takes_the_states_asked_for_and_never_what_runs(store: Store) -> None:
    await in_every_state(store)
    await configure(store, QUEUE, QueueSettings(retention=Retention()))
    await enqueue(store, "done", "dies")
    worker = Worker(store, "other")
    claim = await worker.claim()
    by_id = dict(zip(ids(claim), settled(claim), strict=True))
    await store.ack(ref(), [by_id["done"]], [Success("send", 0)])
    await store.fail(ref(), [each for each in failures(claim, None) if each.key == by_id["dies"].key])
    await store.release(ref(), [each for each in releases(claim) if each.key in (key("ready"), key("stays"))])
    wanted = Purge(EVERYTHING, NEVER)
    held = {"scheduled": 1, "ready": 2, "retry_wait": 1, "parked": 1, "dead": 1, "succeeded": 1}
    before = await sizes(store)
    assert await purge_queue(store, QUEUE, wanted, dry_run=True) == held
    assert await sizes(store) == before
    assert await purge_queue(store, QUEUE, wanted._replace(states=("ready",))) == {"ready": 2}
    assert await purge_queue(store, QUEUE, wanted) == {name: held[name] for name in held if name != "ready"}
    assert await sizes(store) == {"leased": 1}
    assert await store.finished(ref()) == []
    assert await store.parked_partitions(QUEUE) == {}
    assert await purge_queue(store, QUEUE, wanted) == {}


async def test_a_purge_by_type_keeps_the_others_in_every_list(store: Store) -> None:
    """More than one step's worth, the wanted ones spread, so that the last entries fill the holes."""
    await created(store)
    jobs = [
        typed(f"{lane.decode()}-{n}", "spam" if n % 3 else "mail", lane) for lane in (b"0", b"1") for n in range(700)
    ]
    for start in range(0, len(jobs), 500):
        await enqueue(store, *jobs[start : start + 500])
    later = [NewJob(key(f"later-{n}"), -LONG_MS, encode_body("spam" if n % 2 else "mail", None)) for n in range(600)]
    await enqueue(store, *later[:300])
    await enqueue(store, *later[300:])
    wanted = Purge(("ready", "scheduled"), NEVER, type="spam")
    there = Counter({"ready": 2 * 466, "scheduled": 300})
    assert await purge_queue(store, QUEUE, wanted, dry_run=True, load=1.0) == there
    assert await purge_queue(store, QUEUE, wanted, load=1.0) == there
    assert await purge_queue(store, QUEUE, wanted, load=1.0) == {}
    assert await sizes(store) == {"ready": 2 * 234, "scheduled": 300}
    ran = await run_everything(store, await stored_topology(store))
    assert sorted(ran) == sorted(job.key[1:].decode() for job in jobs if int(job.key[3:]) % 3 == 0)


async def test_a_purge_leaves_what_came_after_it_began(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "old", new("old-later", -LONG_MS))
    worker = Worker(store)
    await advance(5)
    cutoff = await server_now(store, QUEUE)
    await enqueue(store, "new", new("new-later", -LONG_MS), "dies")
    await store.fail(ref(), failures(await worker.claim(), None)[2:])
    wanted = Purge(EVERYTHING, cutoff)
    assert await purge_queue(store, QUEUE, wanted) == {"scheduled": 1}
    assert (await store.statuses(ref(), [key("new-later")[1:], key("old-later")[1:]])).live[0] is not None
    assert await sizes(store) == {"scheduled": 1, "leased": 2, "dead": 1}


async def test_a_purge_of_one_version_leaves_the_others(store: Store) -> None:
    await created(store, 2)
    await enqueue(store, "a", at=ref(0), partitions=2)
    await enqueue(store, "b", at=ref(1), partitions=2)
    await promote(store, QUEUE, 2, 1)
    await enqueue(store, "c", at=ref(0, 2))
    assert await purge_queue(store, QUEUE, Purge(("ready",), NEVER, version=1)) == {"ready": 2}
    assert await sizes(store, ref(0, 2)) == {"ready": 1}
    with pytest.raises(UnknownVersion, match="no version 7"):
        await purge_queue(store, QUEUE, Purge(("ready",), NEVER, version=7))
    with pytest.raises(UnknownQueue):
        await purge_queue(store, "nobody", Purge(("ready",), NEVER))
    with pytest.raises(InvalidInput, match="'leased'"):
        await purge_queue(store, QUEUE, Purge(("leased",), NEVER))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="by age or version"):
        await purge_queue(store, QUEUE, Purge(("succeeded",), NEVER, type="send"))


async def test_a_purge_beside_workers_and_producers_loses_nothing_that_it_was_not_asked_for(store: Store) -> None:
    await created(store)
    spam = [typed(f"spam-{n}", "spam") for n in range(600)]
    mail = [typed(f"mail-{n}", "mail") for n in range(300)]
    for start in range(0, 300, 100):
        part = slice(start, start + 100)
        await enqueue(store, *(job for pair in zip(spam[part], mail[part], strict=True) for job in pair))
    ran: list[str] = []

    async def work() -> None:
        worker = Worker(store, "busy")
        while len([each for each in ran if each.startswith("mail")]) < 300:
            claim = await worker.claim(7)
            assert await store.ack(ref(), settled(claim)) == []
            ran.extend(ids(claim))

    async def produce() -> None:
        for start in range(300, 600, 50):
            await enqueue(store, *spam[start : start + 50])

    async with asyncio.timeout(60):
        purged, *_ = await asyncio.gather(
            purge_queue(store, QUEUE, Purge(("ready",), NEVER, type="spam"), load=1.0), work(), produce()
        )
    purged += await purge_queue(store, QUEUE, Purge(("ready",), NEVER, type="spam"), load=1.0)
    assert len(ran) + purged["ready"] == 900
    assert len(set(ran)) == len(ran)
    assert await sizes(store) == {}


async def test_live_jobs_are_looked_through_by_index(store: Store) -> None:
    worker = await in_every_state(store)
    leased = await worker.claim(1)
    names = {index: [decode_id(each.stored_id) for each in await store.browse(ref(), index)] for index in EVERY_INDEX}
    assert names["leased"] == ["leased", "ready"]
    assert (names["r1"], names["scheduled"], names["retry"], names["park"]) == (
        ["stays"], ["scheduled"], ["retry"], ["parked"],
    )  # fmt: skip
    assert sum(map(len, names.values())) == 6
    (_, ready) = await store.browse(ref(), "leased")
    assert (ready.worker, ready.record) == ("w", leased.jobs[0].record)
    assert ready.at is not None
    assert [each.at for each in await store.browse(ref(), "r1")] == [None]
    assert [each.at for each in await store.browse(ref(), "park")] == [None]
    await enqueue(store, *(f"{number}" for number in range(150)))
    assert [len(await store.browse(ref(), "r1", skip)) for skip in (0, 100, 151)] == [100, 51, 0]
    assert await store.browse(ref(7, 9), "r1") == []
    with pytest.raises(InvalidInput, match="cancel those that run"):
        await store.purge(ref(), "leased", Sought(NEVER), 0)


async def test_queues_are_listed_by_name(store: Store) -> None:
    assert await store.queues() == []
    for name in ("emails", "a.b-c"):
        await promote(store, name, 1, 1)
    assert await store.queues() == ["a.b-c", "emails"]
