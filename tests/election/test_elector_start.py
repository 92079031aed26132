"""How a candidate becomes leader, and when it must not. In virtual time."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.election.errors import Unavailable
from headrace.election.record import Record, holder_of
from headrace.election.states import State
from headrace.election.timings import FAST, STANDARD
from tests.election.stage import Stage, foreign, leading

L, D, P = STANDARD.lease_duration, STANDARD.renew_deadline, STANDARD.retry_period
SOON = 5.0


def test_a_lone_candidate_leads_at_once_and_is_told(stage: Stage) -> None:
    a = leading(stage)
    assert stage.world.now < 1
    stage.run(1)
    assert a.said() == ["started"]
    assert a.leaders == ["a"]
    status = a.elector.status()
    assert (status.state, status.backend, status.epoch, status.leader) == (State.LEADING, "lease", 1, "a")
    assert 0 < status.valid_for <= D


def test_L5_L17_a_leader_renews_for_as_long_as_it_lives(stage: Stage) -> None:
    a, b = leading(stage), stage.candidate("b")
    stage.run(20 * L)
    assert a.said() == ["started"]
    assert b.said() == []
    assert stage.most_leaders == 1


def test_L6_a_dead_leader_is_followed_within_lease_and_retry(stage: Stage) -> None:
    a = leading(stage)
    b = stage.candidate("b")
    stage.run(10)
    a.loop.crashed = True
    assert stage.until(lambda: b.leads) <= L + 1.2 * P + 1


@pytest.mark.parametrize("round_", range(20))
def test_L1_LE22_of_candidates_at_once_one_leads(stage: Stage, round_: int) -> None:
    made = [stage.candidate(f"host-{n}.{round_}") for n in range(5)]
    stage.run(20)
    assert len(stage.leaders()) == 1
    assert stage.most_leaders == 1
    assert sum(each.said() == ["started"] for each in made) == 1


def test_LE13_a_fresh_candidate_waits_one_full_duration_whatever_the_record_says(stage: Stage) -> None:
    stage.run(100_000)  # a day later the record's time is long past
    foreign(stage, seq=1)
    b = stage.candidate("b")
    waited = stage.until(lambda: b.leads)
    assert L <= waited <= L + 1.2 * P + 1


def test_LE14_the_records_duration_counts_and_not_the_candidates(stage: Stage) -> None:
    foreign(stage, duration=30)
    b = stage.candidate("b", FAST)
    stage.run(29)
    assert not b.leads
    assert stage.until(lambda: b.leads) <= 2


def test_L13_a_leader_with_a_new_duration_is_respected_at_once(stage: Stage) -> None:
    a = leading(stage, timings=FAST)
    b = stage.candidate("b")
    stage.run(5)
    a.elector.stop()
    longer = dataclasses.replace(STANDARD, lease_duration=40, failback_after=80, failback_after_others=90)
    stage.until(lambda: b.leads)
    c = stage.candidate("c", longer)
    b.elector.stop()
    stage.until(lambda: c.leads)
    d = stage.candidate("d", FAST)
    stage.run(5)
    c.loop.crashed = True
    assert 35 <= stage.until(lambda: d.leads) <= 42


def test_L4_LE27_a_wall_clock_that_is_wrong_decides_nothing(stage: Stage) -> None:
    a = leading(stage)
    b, c = stage.candidate("b", start=False), stage.candidate("c", start=False)
    b.wall_offset, c.wall_offset = 3600, -86_400
    b.start()
    c.start()
    stage.run(600)
    assert a.said() == ["started"]
    a.loop.crashed = True
    stage.until(lambda: b.leads or c.leads)
    assert stage.most_leaders == 1


def test_LE25_each_version_restarts_the_wait_even_if_its_time_is_unreadable(stage: Stage) -> None:
    foreign(stage, seq=None)
    b = stage.candidate("b")
    for _ in range(10):
        stage.run(L - 4)
        foreign(stage, seq=None)
    assert not b.leads
    stage.run(L + 4)
    assert b.leads


def test_LE23_a_holder_whose_name_begins_like_mine_is_not_mine(stage: Stage) -> None:
    lock = stage.locks["lease"]
    lock.record, lock.version = Record(holder_of("worker-10", "x"), 4, L, 5), 1
    b = stage.candidate("worker-1")
    stage.run(L - 2)
    assert not b.leads


def test_LE32_an_error_while_acquiring_leaves_a_follower(stage: Stage) -> None:
    b = stage.candidate("b", start=False)
    b.lines["lease"].error = RuntimeError("a bug")  # type: ignore[assignment]
    b.start()
    stage.run(30)
    assert b.said() == []
    b.lines["lease"].error = Unavailable("no reply", ambiguous=True)
    stage.run(30)
    assert b.said() == []
    b.lines["lease"].clear()
    assert stage.until(lambda: b.leads) < SOON


def test_a_pause_between_winning_and_claiming_gives_no_leader(stage: Stage) -> None:
    a = stage.candidate("a", start=False)
    a.lines["fence"].only, a.lines["fence"].latency = ("claim",), 2.0
    a.start()
    stage.until(lambda: stage.locks["lease"].record is not None)
    a.loop.paused_until = stage.world.now + 60
    b = stage.candidate("b")
    stage.until(lambda: b.leads)
    stage.run(60)
    assert stage.leaders() == ["b"]
    assert a.said() == []
