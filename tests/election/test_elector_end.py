"""How a term ends. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from headrace.election.tenure import Term
from headrace.election.timings import STANDARD
from tests.election.stage import Stage, leading

L, D = STANDARD.lease_duration, STANDARD.renew_deadline


def test_LE10_the_lock_is_freed_only_after_the_work_has_ended(stage: Stage) -> None:
    ended: list[float] = []

    async def work(term: Term) -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(0.7)  # the slice that runs
            ended.append(stage.world.now)

    a = stage.candidate("a", start=False)
    a.work = work
    a.start()
    stage.until(lambda: a.leads)
    b = stage.candidate("b")
    stage.run(5)
    a.elector.stop()
    stage.run(0.6)
    record = stage.locks["lease"].record
    assert record is not None
    assert record.holder != ""
    stage.until(lambda: b.leads)
    assert b.when("started") > ended[0]


def test_LE16_L10_a_stop_frees_the_lock_in_under_a_second_and_hands_over(stage: Stage) -> None:
    a, b = leading(stage), stage.candidate("b")
    stage.run(5)
    a.elector.stop()
    assert stage.until(lambda: b.leads) <= 0.5
    assert stage.until(lambda: a.task is not None and a.task.done()) < 1
    assert a.said() == ["started", "stopped: terminated"]
    stage.run(30)
    assert a.said() == ["started", "stopped: terminated"]


def test_LE12_a_freed_record_lasts_one_second(stage: Stage) -> None:
    a = leading(stage)
    stage.run(3)
    a.elector.stop()
    stage.run(1)
    record = stage.locks["lease"].record
    assert record is not None
    assert (record.holder, record.duration, record.term) == ("", 1, 1)


def test_LE11_a_renewal_in_flight_does_not_keep_the_lock(stage: Stage) -> None:
    a = leading(stage)
    stage.run(3)
    line = a.lines["lease"]
    line.lose_reply, line.only = True, ("write",)
    count = len(line.calls)
    stage.until(lambda: len(line.calls) > count)
    a.elector.stop()
    stage.run(0.1)
    line.clear()
    stage.until(lambda: a.task is not None and a.task.done(), within=4)
    record = stage.locks["lease"].record
    assert record is not None
    assert record.holder == ""


def test_L10_a_stop_ends_within_a_bound_when_nothing_answers(stage: Stage) -> None:
    a = leading(stage)
    stage.run(3)
    a.lines["lease"].hang = a.lines["fence"].hang = True
    a.elector.stop()
    assert stage.until(lambda: a.task is not None and a.task.done()) <= 3.1
    assert a.said() == ["started", "stopped: terminated"]


def test_LE20_a_stop_before_ever_leading_calls_no_hook(stage: Stage) -> None:
    leading(stage)
    b = stage.candidate("b")
    stage.run(5)
    b.elector.stop()
    stage.run(2)
    assert b.task is not None
    assert b.task.done()
    assert b.said() == []


def test_a_stop_while_the_takeover_is_under_way_leaves_no_lock_behind(stage: Stage) -> None:
    a = stage.candidate("a", start=False)
    a.lines["lease"].latency = 0.6
    a.start()
    stage.until(lambda: "write" in a.lines["lease"].kinds())
    a.elector.stop()
    stage.until(lambda: a.task is not None and a.task.done(), within=4)
    record = stage.locks["lease"].record
    assert record is None or record.holder == ""
    assert a.said() == []


def test_LE38_L11_elect_and_resign_fifty_times(stage: Stage) -> None:
    a = stage.candidate("a", start=False)
    for _ in range(50):
        a.start()
        stage.until(lambda: a.leads, within=20)
        stage.run(0.05)
        a.elector.stop()
        stage.until(lambda: a.task is not None and a.task.done())
    assert a.said() == ["started", "stopped: terminated"] * 50


def test_LE9_a_loss_is_followed_by_another_campaign_in_the_same_process(stage: Stage) -> None:
    a = leading(stage)
    for _ in range(3):
        a.lines["lease"].hang = True
        stage.until(lambda: not a.leads)
        stage.run(5)
        a.lines["lease"].clear()
        stage.until(lambda: a.leads)
    stage.run(0.1)
    assert a.said() == ["started", "stopped: expired"] * 3 + ["started"]


def test_LE15_work_that_raises_resigns_and_another_leads(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(term: Term) -> None:
        raise ValueError("cannot work")

    a = stage.candidate("a", start=False)
    a.work = broken
    a.start()
    stage.until(lambda: len(a.events) == 2)
    b = stage.candidate("b")
    stage.until(lambda: b.leads)
    assert a.said()[:2] == ["started", "stopped: duty_raised"]


def test_LE15_work_that_resigns_ends_its_term_although_a_part_of_it_goes_on(stage: Stage) -> None:
    ended: list[float] = []

    async def stubborn(term: Term) -> None:
        term.resign()
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(0.4)
            ended.append(stage.world.now)

    a = stage.candidate("a", start=False)
    a.work = stubborn
    a.start()
    stage.until(lambda: len(a.events) == 2)
    b = stage.candidate("b")
    stage.until(lambda: b.leads)
    assert a.said()[:2] == ["started", "stopped: duty_raised"]
    assert b.when("started") > ended[0]


def test_LE15_work_that_returns_resigns_too(stage: Stage) -> None:
    async def short(term: Term) -> None:
        return

    a = stage.candidate("a", start=False)
    a.work = short
    a.start()
    stage.until(lambda: len(a.events) >= 2)
    assert a.said()[:2] == ["started", "stopped: duty_returned"]


def test_LE7_work_that_ignores_the_end_is_fenced_and_shown(stage: Stage) -> None:
    a, b = leading(stage), stage.candidate("b")
    release = asyncio.Event()

    async def stubborn(term: Term) -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue

    b.work = stubborn
    a.elector.stop()
    stage.until(lambda: b.leads)
    stage.run(2)
    token = b.elector.token()
    assert token is not None
    b.elector.fenced(token)
    stage.run(1.5)
    assert not b.leads
    assert not stage.fence.admits(token)  # its scripts are refused although nobody else leads
    assert b.elector.healthy()
    assert stage.locks["lease"].record is not None
    assert stage.locks["lease"].record.holder != ""  # and its lock runs out by itself
    stage.run(L - D)
    assert not b.elector.healthy()
    assert b.wedged == 1
    c = stage.candidate("c")
    stage.until(lambda: c.leads)
    release.set()
    stage.run(3)
    assert b.elector.healthy()
    assert b.said() == ["started", "stopped: fenced"]


def test_LE33_work_longer_than_the_term_goes_on_in_slices(stage: Stage) -> None:
    written: list[int] = []
    a = stage.candidate("a", start=False)

    async def slices(term: Term) -> None:
        for number in range(400):
            token = term.token()
            assert token is not None
            assert stage.fence.beat(token, round(STANDARD.fence_ttl * 1000))
            written.append(number)
            await asyncio.sleep(STANDARD.duty_slice)
        await asyncio.sleep(1e9)

    a.work = slices
    a.start()
    b = stage.candidate("b")
    stage.run(10 * L + 60)
    assert written == list(range(400))
    assert a.said() == ["started"]
    assert b.said() == []
