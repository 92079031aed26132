"""What the leader among real workers does for its queue, without an operator and without being asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace import App, Context, Producer, QueueSettings, Store
from headrace.errors import StoreUnavailable
from headrace.lifecycle import promote
from headrace.settings import DrainSettings
from headrace.stores.base import Fence
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef
from headrace.worker import wakeups
from tests.integration.worker.support import QUEUE, Faulty, empty, eventually, put, queue, working
from tests.services.redis import RedisServer

FAST = {"leader_profile": "fast"}
DUTIES = {"unfinished_changes", "lost_hints", "statistics"}


class Listening(Faulty):
    """Counts the calls of its clones too: duties go over the timer's."""

    def clone(self) -> Store:
        clone = Faulty(self._store.clone())
        clone.calls, clone.before = self.calls, self.before
        return cast(Store, clone)


def counting() -> tuple[App, list[Any]]:
    app, ran = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    return app, ran


async def test_an_idle_leader_sends_nothing_for_its_duties(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.01)
    app, ran = counting()
    producer = await queue(store, partitions=32)
    listening = Listening(store)

    async def counted() -> bool:
        found = await store.read_stats(QUEUE)
        return found is not None and found.counters["succeeded"] == 1

    async with working(app, cast(Store, listening), **FAST) as running:
        await put(producer, "job", [None])
        await eventually(counted)  # the last thing that it sends for its job
        assert ran
        await eventually(lambda: running.told.duties.keys() >= DUTIES)
        # A measurement that took long, on a busy machine, is followed by a rest of twenty times that.
        await eventually(lambda: running.worker._signs[QUEUE].watched, within=90)
        before, ran_before = listening.calls.copy(), running.told.duties.copy()
        await eventually(lambda: listening.calls["tick"] > before["tick"] + 30)
        sent = listening.calls - before
        assert set(sent) <= {"tick", "read_topology", "parked_partitions", "wait_hint"}
        assert running.told.duties == ran_before
        assert running.worker.is_leader()


async def test_T11_a_promotion_that_died_half_way_is_finished_and_its_jobs_run(store: Store) -> None:
    app, ran = counting()
    producer = await queue(store, partitions=2)
    await put(producer, "job", [1])
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    target = topology.promoted(2, 4)
    assert await store.write_topology(topology, target)  # and nothing else: no partition is there
    async with working(app, store, **FAST):
        await eventually(lambda: states(store) if ran else None)

        async def agreed() -> bool:
            return set(await states(store)) == {"draining", "active"}

        await eventually(agreed)
        await put(producer, "job", [2])
        await eventually(lambda: ran == [1, 2])


async def states(store: Store) -> list[str]:
    refs = [PartitionRef(QUEUE, 1, n) for n in range(2)] + [PartitionRef(QUEUE, 2, n) for n in range(4)]
    return [each.state for each in await store.counts(refs)]


class Slow(Listening):
    """Takes its time to settle a partition."""

    def clone(self) -> Store:
        clone = cast(Any, super().clone())
        settle = clone.settle

        async def slowly(*args: Any) -> Any:
            await asyncio.sleep(0.8)
            return await settle(*args)

        clone.settle = slowly
        return cast(Store, clone)


async def test_LE33_work_that_outlasts_the_lock_is_done_once_in_slices_while_the_lock_is_renewed(store: Store) -> None:
    app, ran = counting()
    producer = await queue(store, partitions=64)
    slow = Slow(store)
    async with working(app, cast(Store, slow), **FAST) as leader:
        await eventually(leader.worker.is_leader)
        async with working(App(), store, **FAST) as other:
            await put(producer, "job", [1])
            # Four slices of 0.8 s with as long a rest after each: more than the 4 s of the lock.
            await eventually(lambda: leader.told.duties["unfinished_changes"])
            assert slow.calls["settle"] == 64
            assert leader.told.terms == other.told.terms == []
            assert other.told.duties["unfinished_changes"] == 0
            await eventually(lambda: ran)


async def test_a_version_that_has_run_dry_is_removed_without_being_asked(store: Store) -> None:
    app, ran = counting()
    producer = await queue(store, partitions=4)
    await put(producer, "job", range(20))
    async with working(app, store, **FAST):
        await promote(store, QUEUE, 2, 2)

        async def alone() -> bool:
            topology = await store.read_topology(QUEUE)
            return topology is not None and set(topology.versions) == {2}

        await eventually(alone)
        await put(producer, "job", [20])
        await eventually(lambda: len(ran) == 21)
    assert sorted(ran) == list(range(21))


async def test_hints_that_a_server_lost_are_raised_again(redis_server: RedisServer, prefix: str) -> None:
    store = RedisStore(redis_server.url, prefix=prefix)
    app, ran = counting()
    producer = await queue(store, partitions=8)
    await put(producer, "job", range(8))
    await put(producer, "job", [8], delay=0.5)
    with redis_server.client() as client:
        assert client.delete(f"{{{prefix}:{QUEUE}}}:hot", f"{{{prefix}:{QUEUE}}}:due") == 2
    async with working(app, store, **FAST):
        await eventually(lambda: len(ran) == 9)
    await store.close()


async def test_V9_jobs_move_under_the_fence_also_when_it_was_lost_and_partitions_remember_a_higher_one(
    store: Store,
) -> None:
    """As after a failover that forgot: the queue's fence begins anew, and partitions obey an epoch far above it."""
    app, ran = counting()
    settings = QueueSettings(drain=DrainSettings(policy="migrate"))
    await promote(store, QUEUE, 1, 2, settings=settings)
    await put(Producer(store), "job", range(10), delay=3600)
    await promote(store, QUEUE, 2, 3)
    for number in range(2):
        await store.fence(PartitionRef(QUEUE, 1, number), Fence(40, "forgotten"))
    async with working(app, store, **FAST) as running:

        async def moved() -> bool:
            topology = await store.read_topology(QUEUE)
            assert topology is not None
            return sum(each.scheduled for each in await store.counts(topology.refs(2))) == 10

        await eventually(moved)
        assert running.told.terms == ["fenced"]
        place = running.worker._read()
        assert place is not None
        assert place.leading[QUEUE].epoch == 41
    assert ran == []


async def test_a_duty_that_fails_does_not_keep_the_others_or_the_jobs(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, ran = counting()
    producer = await queue(store, partitions=2)
    listening = Listening(store)
    listening.before["settle"] = [ValueError("broken"), StoreUnavailable("redis does not answer"), None, None]
    async with working(app, cast(Store, listening), **FAST) as running:
        await put(producer, "job", [1])
        await eventually(lambda: ran)
        await eventually(lambda: running.told.duties.keys() >= DUTIES)
        assert running.told.duties["unfinished_changes failed"] >= 1
        assert running.worker.is_leader()
    assert "the leader's duty unfinished_changes failed and is tried again" in caplog.text


async def test_statistics_follow_the_jobs(store: Store) -> None:
    app, may_end = App(), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        await may_end.wait()

    producer = await queue(store, partitions=2)
    async with working(app, store, concurrency=2, **FAST):
        await put(producer, "job", range(5))

        async def held(ready: int, leased: int) -> bool:
            found = await store.read_stats(QUEUE)
            return found is not None and (found.total("ready"), found.total("leased")) == (ready, leased)

        await eventually(lambda: held(3, 2))
        may_end.set()
        await eventually(lambda: empty(store))
        await eventually(lambda: held(0, 0))
