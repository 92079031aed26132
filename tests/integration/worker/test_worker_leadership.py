"""Workers of one queue elect a leader: one at a time, told exactly once, handed over in order."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from headrace import App, BatchContext, Context, InvalidInput, LeaderTerm, Store
from headrace.stores.redis import RedisStore
from headrace.worker.metrics import Readings
from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.integration.worker.support import QUEUE, Running, eventually, put, queue, working
from tests.services.redis import RedisServer, flavours

FAST = {"leader_profile": "fast"}


class Told:
    """An application that notes what its process is told of leadership."""

    def __init__(self) -> None:
        self.app = App()
        self.events: list[tuple[str, int]] = []
        self.terms: list[LeaderTerm] = []

        @self.app.on_elected
        async def elected(term: LeaderTerm) -> None:
            self.events.append(("elected", term.epoch))
            self.terms.append(term)

        @self.app.on_resigned
        async def resigned(term: LeaderTerm, reason: str) -> None:
            self.events.append((reason, term.epoch))


@asynccontextmanager
async def group(store: Store, size: int, **given: Any) -> AsyncIterator[list[tuple[Running, Told]]]:
    """So many workers, each with an application of its own."""
    made = []
    for _ in range(size):
        told = Told()
        made.append((Running(told.app, store, **FAST, **given), told))
    try:
        yield made
    finally:
        await asyncio.gather(*(running.stop(at_once=True) for running, _ in made))


async def leader(workers: list[tuple[Running, Told]]) -> tuple[Running, Told]:
    """The one that leads, as soon as it has been told."""

    found: list[tuple[Running, Told]] = []

    def one() -> bool:
        found[:] = [each for each in workers if each[0].worker.is_leader() and each[1].events]
        return len(found) == 1

    await eventually(one)
    return found[0]


async def test_L1_of_many_workers_one_leads_and_its_handlers_know(store: Store) -> None:
    producer = await queue(store)
    async with group(store, 5) as workers:
        first, told = await leader(workers)
        assert [running.worker.is_leader() for running, _ in workers].count(True) == 1
        assert told.events == [("elected", 1)]
        assert [each.events for _, each in workers if each is not told] == [[]] * 4
        assert told.terms[0].is_leader()
        assert (told.terms[0].queue, told.terms[0].leader_epoch()) == (QUEUE, 1)
        assert told.terms[0].backend == ("redis" if isinstance(store, RedisStore) else "memory")
        with pytest.raises(InvalidInput, match="name one of emails"):
            first.worker.is_leader("reports")

    app, seen = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        seen.append((ctx.is_leader(), ctx.leader_epoch()))

    @app.batch_handler("many")
    async def many(ctx: BatchContext, payloads: list[Any]) -> None:
        seen.append((ctx.is_leader(), ctx.leader_epoch()))

    async with working(app, store, **FAST) as running:
        await eventually(lambda: running.worker.is_leader(QUEUE))
        await put(producer, "job", [None])
        await eventually(lambda: seen)
        await put(producer, "many", [None])
        await eventually(lambda: len(seen) == 2)
    async with working(app, store, leader_backends="none"):
        await put(producer, "job", [None])
        await eventually(lambda: len(seen) == 3)
    assert seen == [(True, 2), (True, 2), (False, None)]


async def test_LE10_LE16_a_leader_that_stops_hands_over_before_its_handlers_have_ended(store: Store) -> None:
    producer = await queue(store)
    began, may_end = asyncio.Event(), asyncio.Event()
    app, order = App(), list[str]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        began.set()
        await may_end.wait()
        order.append("handler ended")

    @app.on_resigned
    def resigned(term: LeaderTerm, reason: str) -> None:
        order.append(f"resigned: {reason}")

    successor = Told()

    @successor.app.on_elected
    def elected(term: LeaderTerm) -> None:
        order.append("the next one is elected")

    async with working(app, store, grace_seconds=60, **FAST) as first:
        await eventually(first.worker.is_leader)
        async with working(successor.app, store, **FAST) as second:
            await put(producer, "job", [None])
            await began.wait()
            first.worker.request_stop()
            await eventually(second.worker.is_leader)
            assert not first.worker.is_leader()
            await eventually(lambda: len(order) == 2)
            may_end.set()
            assert (await first.task).clean
    assert order[:3] == ["resigned: terminated", "the next one is elected", "handler ended"]


async def test_L11_each_term_is_told_exactly_once_over_many_successions(store: Store) -> None:
    await queue(store)
    async with group(store, 6) as workers:
        left, epochs = list(workers), []
        while left:
            running, told = await leader(left)
            await running.stop()
            left.remove((running, told))
            assert [what for what, _ in told.events] == ["elected", "terminated"]
            epochs.append(told.events[0][1])
            assert not told.terms[0].is_leader()
        assert epochs == [1, 2, 3, 4, 5, 6]


async def test_LE20_a_worker_that_never_led_is_told_nothing(store: Store) -> None:
    await queue(store)
    async with group(store, 2) as workers:
        _, told = await leader(workers)
        (other, untold) = next(each for each in workers if each[1] is not told)
        await other.stop()
        assert untold.events == []


async def test_LE15_an_application_that_cannot_lead_resigns_and_another_one_leads(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await queue(store)
    broken, told = App(), Told()
    tries = []

    @broken.on_elected
    def fails(term: LeaderTerm) -> None:
        tries.append(term.epoch)
        raise ValueError("cannot lead")

    async with working(broken, store, **FAST):
        await eventually(lambda: tries)
        async with working(told.app, store, **FAST) as able:
            await eventually(lambda: able.worker.is_leader() and told.events)
            assert able.worker.is_leader()
    assert "cannot lead" in caplog.text


async def test_hooks_that_are_cancelled_or_fail_do_not_keep_the_leadership(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await queue(store)
    app, seen = App(), list[str]()

    @app.on_elected
    async def for_the_whole_term(term: LeaderTerm) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    @app.on_elected
    def looks(term: LeaderTerm) -> None:
        while term.is_leader():
            threading.Event().wait(0.01)
        seen.append("saw the end")

    @app.on_resigned
    def fails(term: LeaderTerm, reason: str) -> None:
        seen.append("fails")
        raise ValueError("cannot clean up")

    @app.on_resigned
    async def follows(term: LeaderTerm, reason: str) -> None:
        seen.append("follows")

    async with group(store, 1) as others, working(app, store, **FAST) as running:
        await others[0][0].stop()
        await eventually(running.worker.is_leader)
        assert (await running.stop()).clean
    assert sorted(seen[:2]) == ["cancelled", "saw the end"]
    assert seen[2:] == ["fails", "follows"]
    assert "cannot clean up" in caplog.text


async def test_LE7_work_that_outlives_its_term_turns_the_worker_unhealthy(store: Store) -> None:
    await queue(store)
    (port,) = free_ports(1)
    app, may_end = App(), threading.Event()

    def healthy() -> bool | None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                return bool(json.load(answer)["election_healthy"])
        except HTTPError as error:
            return bool(json.load(error)["election_healthy"])

    @app.on_elected
    def ignores_everything(term: LeaderTerm) -> None:
        may_end.wait()

    @app.on_elected
    async def gives_up(term: LeaderTerm) -> None:
        await asyncio.sleep(0.05)
        raise ValueError("resigns")

    async with working(app, store, health_port=port, **FAST):
        assert await asyncio.to_thread(healthy)
        try:
            # The other one leads although the first one's work goes on: its scripts are fenced.
            async with group(store, 1) as others:
                await leader(others)
            await eventually(lambda: asyncio.to_thread(lambda: healthy() is False))
        finally:
            may_end.set()
        await eventually(lambda: asyncio.to_thread(healthy))


async def test_nobody_leads_where_it_is_switched_off_or_the_store_has_no_place_for_it(store: Store) -> None:
    producer = await queue(store)
    app, seen = App(), list[bool]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        seen.append(ctx.is_leader())

    class Without:
        def __getattr__(self, name: str) -> Any:
            return None if name == "beside" else getattr(store, name)

    async with working(app, cast(Store, Without())) as running:
        await put(producer, "job", [None])
        await eventually(lambda: seen)
        assert not running.worker.is_leader()


async def test_leading_is_read_by_metrics(store: Store) -> None:
    await queue(store)
    told = Told()
    async with group(store, 1) as workers:
        running, _ = await leader(workers)
        reading = running.worker._read()
        assert isinstance(reading, Readings)
        place = reading.leading[QUEUE]
        assert (place.epoch, place.rank) == (1, 1)
        assert 0 < place.valid_seconds <= 2.6
        assert running.told.terms == []
    assert running.told.terms == ["terminated"]
    assert told.events == []


async def test_L10_a_worker_stops_in_time_when_redis_is_silent_and_leads_again_when_it_is_back(
    process_guard: Guard, prefix: str
) -> None:
    with RedisServer(flavours()[0], guard=process_guard) as server:
        store = RedisStore(server.url, prefix=prefix)
        await queue(store)
        async with group(store, 2) as workers:
            running, told = await leader(workers)
            server.pause()
            await eventually(lambda: len(told.events) == 2)
            assert told.events[1][0] in ("redis_lost", "expired")
            assert not running.worker.is_leader()
            server.resume()
            await leader([each for each in workers if each[0].worker.is_leader()] or workers)
            server.pause()
            try:
                await asyncio.wait_for(asyncio.gather(*(each.stop(at_once=True) for each, _ in workers)), 60)
            finally:
                server.resume()
        await store.close()
