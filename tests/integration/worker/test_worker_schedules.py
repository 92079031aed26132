"""Schedules on real workers: whoever leads enqueues their jobs, once for each time, whoever else does."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from headrace import App, Context, QueueSettings, Store
from headrace.election.fence import Token
from headrace.lifecycle import configure
from headrace.maintenance.due_schedules import DueSchedules
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.schedules import CatchUp, ScheduleMark
from headrace.stores.base import Fence
from tests.integration.worker.support import QUEUE, empty, eventually, queue, working

FAST = {"leader_profile": "fast"}


def ticking(**options: Any) -> tuple[App, list[str]]:
    """An app with a job every second, and the ids of the jobs that have run."""
    app, ran = App(), list[str]()

    @app.handler("tick")
    async def tick(ctx: Context, payload: dict[str, int]) -> None:
        assert payload == {"n": 1}
        assert ctx.job.id == f"{ctx.job.headers['headrace-schedule']}@{ctx.job.headers['headrace-scheduled-for']}"
        ran.append(ctx.job.id)

    app.schedule("ticks", "tick", queue=QUEUE, every=1, payload={"n": 1}, **options)
    return app, ran


def seconds(ran: list[str]) -> list[datetime]:
    return [datetime.strptime(each.partition("@")[2], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for each in sorted(ran)]


async def test_QJ1_a_schedule_of_many_workers_gives_one_job_per_time_also_when_the_leader_changes(store: Store) -> None:
    app, ran = ticking(catch_up="all")
    await queue(store, partitions=4)
    async with working(app, store, **FAST) as first:
        await eventually(first.worker.is_leader)
        async with working(app, store, **FAST) as second, working(app, store, **FAST) as third:
            await eventually(lambda: len(ran) >= 2)
            await first.stop()
            await eventually(lambda: second.worker.is_leader() or third.worker.is_leader())
            before = len(ran)
            await eventually(lambda: len(ran) >= before + 2)
    assert len(set(ran)) == len(ran)
    assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(seconds(ran)))


async def test_QJ2_two_leaders_and_a_job_that_ends_at_once_give_one_run_per_time(store: Store) -> None:
    """Both believe that they lead, and look at the schedule again and again while its jobs come and go."""
    app, ran = ticking(catch_up="all")  # a look may come seconds late
    await queue(store, partitions=2)
    signs = Signs()
    signs.read(await store.read_topology(QUEUE))
    fired: Counter[str] = Counter()

    async def lead(token: Token) -> None:
        duty = DueSchedules(
            app.schedules_of(QUEUE), lambda queue, name, outcome, number: fired.update({outcome: number})
        )
        turn = Turn(QUEUE, store, lambda: token, lambda: None, time.monotonic)
        while not (len(ran) >= 4 and fired["enqueued"] >= 4):
            await duty.run(turn, signs)
            await asyncio.sleep(0.005)

    # With one epoch and nonce the fence lets both of them note: nothing but the time itself keeps them apart.
    async with working(app, store, leader_backends="none"):
        await asyncio.wait_for(asyncio.gather(*(lead(Token(1, "n")) for _ in range(2))), 60)
        await eventually(lambda: empty(store))
    assert len(set(ran)) == len(ran) == fired["enqueued"]
    assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(seconds(ran)))


async def test_QJ5_workers_that_were_off_for_three_days_make_up_for_what_each_policy_says(store: Store) -> None:
    app, ran = App(), Counter[str]()

    @app.handler("report")
    async def report(ctx: Context, payload: None) -> None:
        ran[ctx.job.headers["headrace-schedule"]] += 1

    now = datetime.now(UTC)
    cron = f"{(now.minute + 30) % 60} * * * *"  # was due half an hour ago
    policies: tuple[tuple[CatchUp, int], ...] = (("none", 0), ("one", 1), ("all", 72), ("all", 5))
    for number, (policy, most) in enumerate(policies):
        name = f"{policy}-{number}"
        app.schedule(name, "report", queue=QUEUE, cron=cron, catch_up=policy, max_catch_up=max(1, most))
    await queue(store, partitions=2)
    await eventually(lambda: empty(store))
    before = round((now - timedelta(days=3)).timestamp() * 1000)
    for schedule in app.schedules:
        mark = ScheduleMark(before, schedule.rule.text)
        assert await store.note_schedule(QUEUE, Fence(1, "before"), schedule.name, None, mark)
    async with working(app, store, **FAST, concurrency=16) as running:
        await eventually(lambda: running.told.duties["schedules"])
        await eventually(lambda: empty(store))
        marks = (await store.read_schedules(QUEUE)).marks
    assert ran == {"one-1": 1, "all-2": 72, "all-3": 5}
    assert len({mark.at for mark in marks.values()}) == 1  # all of them are dealt with up to the same time


async def test_QJ5_a_queue_that_takes_no_jobs_is_asked_again_and_nothing_is_noted(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, _ = ticking()
    await queue(store)
    await configure(store, QUEUE, QueueSettings(stop="hold_and_drain"))
    signs, token = Signs(), Token(1, "n")
    signs.read(await store.read_topology(QUEUE))
    duty = DueSchedules(app.schedules_of(QUEUE))
    turn = Turn(QUEUE, store, lambda: token, lambda: None, time.monotonic)
    now = (await store.read_schedules(QUEUE)).now
    mark = ScheduleMark(now - 5000, "every 1 s")
    assert await store.note_schedule(QUEUE, Fence(1, "n"), "ticks", None, mark)
    await duty.run(turn, signs)
    await duty.run(turn, signs)
    assert (await store.read_schedules(QUEUE)).marks == {"ticks": mark}
    assert len([each for each in caplog.messages if "schedule ticks" in each and "it waits" in each]) == 1
    assert (due := duty.due(signs, time.monotonic())) is not None
    assert 20 < due - time.monotonic() <= 30


async def test_a_worker_that_never_leads_says_what_becomes_of_schedules(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headrace")
    app, _ = ticking()
    app.schedule("elsewhere", "tick", queue="others", every=60)
    app.schedule("misspelt", "tock", queue=QUEUE, every=60)
    app.schedule("both", "tock", queue="others", every=60)
    await queue(store)
    async with working(app, store, leader_backends="none"):
        pass
    assert any("schedule ticks" in each and "never leads" in each for each in caplog.messages)
    assert any("schedule elsewhere is left to workers of queue others" in each for each in caplog.messages)
    assert [each.partition(":")[0] for each in caplog.messages if "no handler" in each] == ["schedule misspelt"]
