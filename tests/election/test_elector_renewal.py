"""How a leader stays one, and when it stops to be. In virtual time."""

from __future__ import annotations

from headrace.election.errors import Unavailable
from headrace.election.fence import Token
from headrace.election.states import Seat, is_leading
from headrace.election.timings import STANDARD
from tests.election.stage import UNREACHABLE, Stage, foreign, leading

L, D, P, C = STANDARD.lease_duration, STANDARD.renew_deadline, STANDARD.retry_period, STANDARD.call_timeout
SOON = 5.0


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
