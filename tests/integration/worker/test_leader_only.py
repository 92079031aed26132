"""Queues of which only the leader runs jobs: the others stand by, accept what producers give, and take over."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from headrace import App, Context, Producer, QueueSettings, Store
from headrace.election.fence import Token
from headrace.lifecycle import configure, promote
from headrace.stores.base import Fence
from headrace.topology import PartitionRef
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, Running, all_counts, empty, eventually, put, sizes, working

FAST = {"leader_profile": "fast"}
LEADER_ONLY = QueueSettings(mode="leader_only")


class Member:
    """A worker with handlers that note where they ran."""

    def __init__(self, name: str, store: Store, ran: list[tuple[str, Any]], **given: Any) -> None:
        self.name = name
        self.app = App()
        self.may_end = asyncio.Event()
        self.interrupted = 0

        @self.app.handler("job")
        async def job(ctx: Context, payload: Any) -> None:
            ran.append((name, payload))

        @self.app.handler("long")
        async def long(ctx: Context, payload: Any) -> None:
            ran.append((name, payload))
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.interrupted += 1
                raise

        self.running = Running(self.app, store, worker_id=name, **{**FAST, **given})

    @property
    def leads(self) -> bool:
        return self.running.worker.is_leader()


async def members(store: Store, ran: list[tuple[str, Any]], number: int = 3, **given: Any) -> list[Member]:
    made = [Member(f"w{n}", store, ran, **given) for n in range(number)]
    for each in made:
        await each.running.worker.started.wait()
    return made


async def leader(group: list[Member]) -> Member:
    await eventually(lambda: sum(each.leads for each in group) == 1)
    return next(each for each in group if each.leads)


async def end(group: list[Member]) -> None:
    await asyncio.gather(*(each.running.stop(at_once=True) for each in group))


async def create(store: Store, partitions: int = 4, settings: QueueSettings = LEADER_ONLY) -> Producer:
    await promote(store, QUEUE, 1, partitions, settings=settings)
    return Producer(store)


async def test_L7_followers_run_nothing_and_accept_what_producers_give(store: Store) -> None:
    await create(store)
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran)
    first = await leader(group)
    # Each process enqueues, leader or not.
    for number, each in enumerate(group):
        producer = Producer(store)
        await put(producer, "job", range(number * 10, number * 10 + 10))
        assert each.running.told.claims == [] or each is first
    await eventually(lambda: len(ran) == 30)
    assert {name for name, _ in ran} == {first.name}
    assert sorted(payload for _, payload in ran) == list(range(30))
    assert [each.running.told.claims for each in group if each is not first] == [[], []]
    await end(group)


def _has_run(ran: list[tuple[str, Any]], count: int) -> bool:
    return len(ran) == count


async def test_L6_when_the_leader_stops_another_one_runs_the_rest(store: Store) -> None:
    producer = await create(store)
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran)
    left = list(group)
    for round_ in range(3):
        now = await leader(left)
        await put(producer, "job", range(round_ * 10, round_ * 10 + 10))
        await eventually(partial(_has_run, ran, 10 * (round_ + 1)))
        assert {name for name, payload in ran if payload >= round_ * 10} == {now.name}
        assert (await now.running.stop()).clean
        left.remove(now)
    await end(group)


async def test_LE10_the_leadership_is_handed_over_when_the_last_handler_has_ended(store: Store) -> None:
    producer = await create(store)
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran, 2, grace_seconds=60)
    first = await leader(group)
    (second,) = (each for each in group if each is not first)
    await put(producer, "long", ["a"])
    await eventually(lambda: ran)
    first.running.worker.request_stop()
    await put(producer, "job", ["b"])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(first.running.task), 1)
    assert first.leads  # nobody else runs jobs while this one does
    assert ran == [(first.name, "a")]
    first.may_end.set()
    assert (await first.running.task).clean
    await eventually(lambda: len(ran) == 2)
    assert ran == [(first.name, "a"), (second.name, "b")]
    await end(group)


async def test_a_leader_that_is_replaced_interrupts_its_handlers_and_hands_their_jobs_back(store: Store) -> None:
    producer = await create(store, partitions=1)
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran, 2)
    first = await leader(group)
    (second,) = (each for each in group if each is not first)
    await put(producer, "long", ["a"])
    await eventually(lambda: ran)
    candidacy = first.running.worker._candidacies.of(QUEUE)  # type: ignore[union-attr]
    assert candidacy is not None
    epoch = candidacy.leader_epoch()
    assert epoch is not None
    second.may_end.set()
    candidacy.fenced(epoch, epoch)
    await eventually(lambda: first.interrupted == 1)
    await eventually(lambda: len(ran) > 1)
    await eventually(lambda: empty(store))
    first.may_end.set()
    assert first.running.told.lost == 0
    await end(group)


async def test_LE36_a_partition_gives_nothing_to_a_former_leader(store: Store) -> None:
    producer = await create(store, partitions=1)
    ref = PartitionRef(QUEUE, 1, 0)
    await put(producer, "job", range(3))
    old, new = Fence(3, "old"), Fence(4, "new")
    assert (await store.claim(ref, "nobody", 1, 10, 1000)).fenced
    claim = await store.claim(ref, "old", 1, 1, 60_000, fence=old)
    assert len(claim.jobs) == 1
    await store.fence(ref, new)
    refused = await store.claim(ref, "old", 2, 10, 60_000, fence=old)
    assert (refused.fenced, refused.jobs) == (True, [])
    assert len((await store.claim(ref, "new", 1, 10, 60_000, fence=new)).jobs) == 2


async def test_the_mode_is_live_in_both_directions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.1)
    producer = await create(store, partitions=8, settings=QueueSettings())
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran, concurrency=1)
    first = await leader(group)

    await configure(store, QUEUE, LEADER_ONLY)

    async def only_the_leader(start: int) -> bool:
        before = len(ran)
        await put(producer, "job", range(start, start + 8))
        await eventually(lambda: len(ran) == before + 8)
        return {name for name, _ in ran[before:]} == {first.name}

    assert await only_the_leader(0)
    await configure(store, QUEUE, QueueSettings())
    others = [each for each in group if each is not first]
    for each in group:
        each.may_end.clear()
    await put(producer, "long", range(100, 103))  # one for each worker, which has one slot
    await eventually(lambda: len({name for name, payload in ran if payload >= 100}) == 3)
    assert {each.name for each in others} < {name for name, _ in ran}
    for each in group:
        each.may_end.set()
    await eventually(lambda: empty(store))
    await end(group)


async def test_new_partitions_are_the_leaders_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.1)
    producer = await create(store, partitions=2)
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran)
    first = await leader(group)
    await put(producer, "job", range(4), delay=1)
    await promote(store, QUEUE, 2, 6)
    await put(producer, "job", range(4, 24))
    await eventually(lambda: len(ran) == 24)
    assert {name for name, _ in ran} == {first.name}
    await end(group)


async def test_a_worker_that_never_leads_runs_nothing_there_and_says_so(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    producer = await create(store, partitions=1)
    ran: list[tuple[str, Any]] = []
    (never,) = await members(store, ran, 1, leader_backends="none")
    await put(producer, "job", [1])
    await eventually(lambda: "this worker never leads" in caplog.text)
    assert await sizes(store) == {"ready": 1}
    assert never.running.told.claims == []
    (able,) = await members(store, ran, 1)
    await eventually(lambda: ran == [(able.name, 1)])
    await end([never, able])


async def test_partitions_that_remember_a_younger_leader_are_won_back(store: Store) -> None:
    """As after a failover in which the queue's fence was lost and the copies in the partitions were not."""
    producer = await create(store, partitions=2)
    for number in range(2):
        await store.fence(PartitionRef(QUEUE, 1, number), Fence(50, "forgotten"))
    await put(producer, "job", range(4))
    ran: list[tuple[str, Any]] = []
    group = await members(store, ran, 1)
    await eventually(lambda: len(ran) == 4)
    token = group[0].running.worker._candidacies.of(QUEUE).token()  # type: ignore[union-attr]
    assert isinstance(token, Token)
    assert token.epoch == 51
    await end(group)


async def test_a_thread_that_goes_on_keeps_the_lock_from_being_freed(store: Store) -> None:
    """Its effects are seen by no fence; the next leader comes when the lock has run out, not before."""
    await create(store, partitions=1)
    app, may_end, began = App(), threading.Event(), threading.Event()

    @app.handler("deaf")
    def deaf(ctx: Context, payload: Any) -> None:
        began.set()
        may_end.wait()

    resign = asyncio.Event()

    @app.on_elected
    async def gives_up(term: Any) -> None:
        await resign.wait()
        raise ValueError("resigns")

    ran: list[tuple[str, Any]] = []
    try:
        async with working(app, store, **FAST) as first:
            await eventually(first.worker.is_leader)
            await put(Producer(store), "deaf", [None])
            await eventually(began.is_set)
            group = await members(store, ran, 1)
            resign.set()
            await eventually(lambda: not first.worker._candidacies.healthy())  # type: ignore[union-attr]
            await eventually(lambda: group[0].leads)
            assert (await all_counts(store))[0].leased == 1
            may_end.set()
            await eventually(first.worker._candidacies.healthy)  # type: ignore[union-attr]
            await end(group)
    finally:
        may_end.set()
