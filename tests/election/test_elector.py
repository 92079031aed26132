"""The elector's rules, one scenario each, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterator

import pytest

from headrace.election.errors import Unavailable
from headrace.election.fence import Accepted, Claim, Token
from headrace.election.record import Record, holder_of
from headrace.election.states import Seat, State, is_leading
from headrace.election.tenure import Term
from headrace.election.timings import FAST, STANDARD
from tests.election.stage import FORBIDDEN, UNREACHABLE, Candidate, Stage

L, D, P, C = STANDARD.lease_duration, STANDARD.renew_deadline, STANDARD.retry_period, STANDARD.call_timeout
SOON = 5.0


@pytest.fixture
def stage(caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    caplog.set_level(logging.CRITICAL, "headrace.election")
    made = Stage()
    yield made
    for each in made.candidates:
        assert not each.loop.errors, each.loop.errors
    made.close()


def leading(stage: Stage, name: str = "a", **options: object) -> Candidate:
    """A candidate that has become leader."""
    made = stage.candidate(name, **options)  # type: ignore[arg-type]
    stage.until(lambda: made.leads)
    return made


def foreign(stage: Stage, *, duration: float = 15, seq: int | None = 77, term: int = 4) -> None:
    """The lock is held by a process that is not on the stage."""
    lock = stage.locks["lease"]
    lock.record = Record(holder_of("stranger", "n0"), term, duration, seq)
    lock.version += 1


# ---- becoming leader ----------------------------------------------------------------------------------------------


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


# ---- staying leader -----------------------------------------------------------------------------------------------


def test_LE4_L17_one_renewal_that_hangs_costs_nothing(stage: Stage) -> None:
    a = leading(stage)
    stage.run(1)
    line = a.lines["lease"]
    line.hang = True
    stage.until(lambda: len(line.calls) > 0 and line.calls[-1][1] == "write" and line.calls[-1][0] > 1)
    stage.run(0.1)
    line.hang = False
    stage.run(60)
    assert a.said() == ["started"]


def test_LE5_every_fifth_call_stalls_for_an_hour_without_an_abdication(stage: Stage) -> None:
    a = leading(stage)
    a.lines["lease"].hang, a.lines["lease"].every = True, 5
    stage.run(3600)
    assert a.said() == ["started"]


def test_LE3_an_API_that_stalls_takes_leadership_by_the_deadline(stage: Stage) -> None:
    a = leading(stage)
    stage.run(5)
    a.lines["lease"].hang = True
    assert stage.until(lambda: not a.leads) <= D + 0.1
    assert stage.until(lambda: a.said() == ["started", "stopped: expired"]) < 3


def test_LE6_the_last_tries_end_with_the_term(stage: Stage) -> None:
    a = leading(stage)
    stage.run(5)
    line = a.lines["lease"]
    last = stage.world.now
    line.hang = True
    stage.until(lambda: not a.leads)
    ended = stage.world.now
    tries = [(at, timeout) for at, _, timeout in line.calls if at > last]
    assert len(tries) >= 3
    assert all(at + timeout <= ended + 0.05 for at, timeout in tries)
    assert tries[-1][1] < C


def test_L12_errors_of_the_store_end_the_term_before_others_take_over(stage: Stage) -> None:
    a, b = leading(stage), stage.candidate("b")
    stage.run(5)
    a.lines["lease"].error = Unavailable("500", ambiguous=True)
    stage.until(lambda: b.leads)
    assert stage.most_leaders == 1
    assert a.said() == ["started", "stopped: expired"]
    a.lines["lease"].clear()
    b.loop.crashed = True
    stage.until(lambda: a.leads)  # it went on campaigning


def test_LE21_reads_work_and_writes_fail(stage: Stage) -> None:
    a = leading(stage)
    stage.run(5)
    a.lines["lease"].error, a.lines["lease"].only = UNREACHABLE, ("write",)
    stage.run(D + 2)
    assert a.said() == ["started", "stopped: expired"]


def test_LE21_a_lock_that_can_only_be_read_is_given_up_for_the_next(stage: Stage) -> None:
    chain = ("lease", "mongo")
    a, b = leading(stage, chain=chain), stage.candidate("b", chain=chain)
    stage.run(5)
    for each in (a, b):
        each.lines["lease"].error, each.lines["lease"].only = UNREACHABLE, ("write",)
    stage.run(20)
    assert a.elector.status().backend == "mongo"
    assert a.said() == ["started"]
    a.loop.crashed = True
    assert stage.until(lambda: b.leads) <= STANDARD.bound + STANDARD.fallback_after


def test_LE18_LE24_a_write_whose_reply_was_lost_counts_from_its_sending(stage: Stage) -> None:
    a = leading(stage)
    stage.run(5)
    line = a.lines["lease"]
    before = len(line.calls)
    line.lose_reply = True
    stage.until(lambda: len(line.calls) > before)
    sent = line.calls[-1][0]
    stage.run(0.1)
    line.lose_reply = False
    stage.until(lambda: line.calls[-1][1] == "read")
    writes = [kind for kind in line.kinds(sent) if kind == "write"]
    stage.run(0.005)  # the answer is there, and the next renewal, long due, on its way
    assert len(writes) == 1  # seen as ours, not repeated
    assert a.elector.status().valid_for <= D - (stage.world.now - sent) + 0.01
    stage.run(60)
    assert a.said() == ["started"]


def test_LE18_a_takeover_whose_reply_was_lost_is_recognised(stage: Stage) -> None:
    a = stage.candidate("a", start=False)
    a.lines["lease"].lose_reply, a.lines["lease"].only = True, ("write",)
    a.start()
    stage.until(lambda: stage.locks["lease"].record is not None)
    stage.run(0.1)
    a.lines["lease"].clear()
    assert stage.until(lambda: a.leads) < C + SOON
    assert stage.locks["lease"].record is not None
    assert stage.locks["lease"].record.term == 1


def test_LE1_L2_a_leader_that_lost_its_record_stops_and_changes_nothing(stage: Stage) -> None:
    a = leading(stage)
    stage.run(5)
    foreign(stage)
    theirs = stage.locks["lease"].record
    stage.run(P + 1)
    assert not a.leads
    assert a.said() == ["started", "stopped: lost"]
    assert stage.locks["lease"].record == theirs
    stage.run(L - 5)
    assert a.said() == ["started", "stopped: lost"]


def test_L14_LE29_the_record_vanishes_the_leader_stops_and_somebody_leads_again(stage: Stage) -> None:
    a, b = leading(stage), stage.candidate("b")
    stage.run(5)
    stage.locks["lease"].record = None
    stage.run(P + 1)
    assert a.said() == ["started", "stopped: lost"]
    assert not stage.leaders()
    stage.until(lambda: bool(stage.leaders()))
    stage.run(5)
    assert stage.most_leaders == 1
    assert b.elector.healthy()


def test_LE29_a_record_that_vanished_is_not_made_anew_while_its_holder_may_believe(stage: Stage) -> None:
    foreign(stage)
    b = stage.candidate("b")
    stage.run(10)
    stage.locks["lease"].record = None
    stage.run(L - 0.5)
    assert stage.locks["lease"].record is None
    assert not b.leads
    stage.run(1.2 * P + 2)
    assert b.leads


def test_a_record_that_others_annotate_stays_ours(stage: Stage) -> None:
    a = leading(stage)
    for _ in range(20):
        stage.locks["lease"].version += 1
        stage.run(3)
    assert a.said() == ["started"]


def test_LE35_after_a_sleep_the_leader_knows_at_once(stage: Stage) -> None:
    a = leading(stage)
    stage.run(3)
    a.loop.paused_until = stage.world.now + 600
    stage.run(600 - 1e-6)
    assert not a.leads  # asked by another thread, before the elector has run
    assert a.elector.token() is None
    stage.run(SOON + P)
    assert a.said() == ["started", "stopped: expired", "started"]


def test_the_right_to_lead_is_a_function_of_seat_and_time() -> None:
    seat = Seat(Token(1, "n"), "lease", 3, valid_until=10.0)
    assert is_leading(seat, 9.999)
    assert not is_leading(seat, 10.0)
    assert not is_leading(None, 0.0)


# ---- the fence ----------------------------------------------------------------------------------------------------


def test_LE31_L9_a_leader_that_the_fence_refuses_steps_down(stage: Stage) -> None:
    a = leading(stage)
    stage.run(1)
    stage.fence.claim(Claim("z", "zz", "other", 9, 1), 60_000)
    stage.run(STANDARD.fence_ttl / 3 + 1)
    assert a.said() == ["started", "stopped: fenced"]
    stage.run(10)
    assert a.elector.status().state is State.STANDBY  # it holds the lock again, and waits


def test_a_script_that_was_refused_ends_the_term_at_once(stage: Stage) -> None:
    a = leading(stage)
    stage.run(1)
    token = a.elector.token()
    assert token is not None
    a.elector.fenced(Token(token.epoch, "another"))
    stage.run(1)
    assert a.leads
    a.elector.fenced(token)
    stage.run(0.1)
    assert not a.leads


def test_a_nonce_leads_one_term_only(stage: Stage) -> None:
    a = leading(stage)
    nonces = set()
    for _ in range(6):
        token = a.elector.token()
        assert token is not None
        assert token.nonce not in nonces
        nonces.add(token.nonce)
        a.elector.fenced(token)
        stage.run(1)
        stage.until(lambda: a.leads)


def test_LE37_a_lock_from_an_old_backup_gets_a_term_above_the_highest(stage: Stage) -> None:
    assert stage.fence.claim(Claim("old", "n", "lease", 3, 9), 1) == Accepted(1)
    lock = stage.locks["lease"]
    lock.record, lock.version = Record("", 3, 1, 5), 8
    a = leading(stage)
    assert lock.record.term == 10
    assert a.elector.status().epoch == 2


def test_LE36_of_two_winners_of_one_term_one_leads(stage: Stage) -> None:
    torn = stage.locks["lease"]
    a, b = stage.candidate("a", start=False), stage.candidate("b", start=False)
    for each in (a, b):
        each.lines["lease"].latency = 1.0
        each.start()
    first = stage.until(lambda: torn.record is not None)
    assert first < SOON
    # The second write is let pass over the first, as a store that is not atomic would.
    torn.record, version = None, torn.version
    stage.run(0.6)
    torn.version = max(torn.version, version)
    stage.run(60)
    assert stage.most_leaders == 1
    assert len(stage.leaders()) == 1


def test_without_redis_nobody_takes_the_lock_and_a_holder_lets_go(stage: Stage) -> None:
    a, b = leading(stage), stage.candidate("b")
    stage.run(5)
    a.lines["fence"].hang = True
    stage.until(lambda: b.leads, within=STANDARD.bound)
    assert a.said() == ["started", "stopped: redis_lost"]
    c = stage.candidate("c", start=False)
    c.lines["fence"].error = UNREACHABLE
    c.start()
    b.elector.stop()
    stage.run(60)
    assert c.said() == []
    assert stage.locks["lease"].record is not None
    assert stage.locks["lease"].record.holder == ""


# ---- other backends -----------------------------------------------------------------------------------------------

CHAIN = ("lease", "mongo", "redis")


def test_LE8_rights_are_taken_the_leader_goes_on_through_the_next_backend(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "headrace.election")
    a = leading(stage, chain=CHAIN)
    stage.run(5)
    a.lines["lease"].error = FORBIDDEN
    stage.run(D)
    assert a.elector.status().backend == "mongo"
    assert a.said() == ["started"]
    logged = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert logged == ["update Lease x: 403 not allowed"]


def test_LE8_without_another_backend_the_term_ends_by_the_deadline(stage: Stage) -> None:
    a = leading(stage)
    stage.run(5)
    a.lines["lease"].error = FORBIDDEN
    stage.run(D + 1.5)
    assert a.said() == ["started", "stopped: expired"]


def test_LE30_a_leader_whose_second_backend_dies_uses_the_last(stage: Stage) -> None:
    a = stage.candidate("a", chain=CHAIN, start=False)
    a.lines["lease"].error = UNREACHABLE
    a.start()
    stage.until(lambda: a.elector.status().backend == "mongo" and a.leads)
    a.lines["mongo"].hang = True
    stage.run(D + 1)
    assert a.elector.status().backend == "redis"
    assert a.said() == ["started"]


def test_the_leader_comes_back_first_and_frees_what_it_held_below(stage: Stage) -> None:
    made = [stage.candidate(name, chain=CHAIN) for name in "abc"]
    stage.until(lambda: bool(stage.leaders()))
    stage.run(5)
    for each in made:
        each.lines["lease"].error = UNREACHABLE
    stage.run(60)
    (leader,) = stage.leaders()
    assert {each.elector.status().backend for each in made} == {"mongo"}
    for each in made:
        each.lines["lease"].clear()
    stage.run(STANDARD.failback_after + 8)
    assert stage.leaders() == [leader]
    status = next(each for each in made if each.name == leader).elector.status()
    assert status.backend == "lease"
    stage.run(STANDARD.failback_after_others)
    assert stage.leaders() == [leader]
    assert stage.locks["mongo"].record is not None
    assert stage.locks["mongo"].record.holder == ""
    assert [each.said() for each in made if each.name != leader] == [[], []]


def test_a_pod_that_alone_lost_the_api_is_preempted_by_one_that_has_it(stage: Stage) -> None:
    a, b = leading(stage, chain=CHAIN), stage.candidate("b", chain=CHAIN)
    stage.run(5)
    a.lines["lease"].error = UNREACHABLE
    stage.run(12)
    assert stage.leaders() == ["a"]
    stage.until(lambda: b.leads)
    stage.run(STANDARD.fence_ttl)
    assert stage.leaders() == ["b"]
    assert a.said() == ["started", "stopped: fenced"]
    assert a.elector.status().state is State.STANDBY
    b.loop.crashed = True
    assert stage.until(lambda: a.leads) <= STANDARD.bound


def test_the_wait_before_coming_back_doubles_with_each_outage(stage: Stage) -> None:
    a = leading(stage, chain=("lease", "mongo"))
    waits = []
    for _ in range(3):
        a.lines["lease"].error = UNREACHABLE
        stage.until(lambda: a.elector.status().backend == "mongo")
        stage.run(3)
        a.lines["lease"].clear()
        waits.append(stage.until(lambda: a.elector.status().backend == "lease", within=300))
    assert a.said() == ["started"]
    assert waits[0] >= STANDARD.failback_after
    assert waits[1] >= 2 * STANDARD.failback_after
    assert waits[2] >= 4 * STANDARD.failback_after


# ---- the end of a term --------------------------------------------------------------------------------------------


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
