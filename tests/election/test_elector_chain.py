"""What the fence decides, and moving between locks. In virtual time."""

from __future__ import annotations

import logging

import pytest

from headrace.election.fence import Accepted, Claim, Token
from headrace.election.record import Record
from headrace.election.states import State
from headrace.election.timings import STANDARD
from tests.election.stage import FORBIDDEN, UNREACHABLE, Stage, leading

D = STANDARD.renew_deadline
SOON = 5.0


def test_LE31_L9_a_leader_that_the_fence_refuses_steps_down(stage: Stage) -> None:
    a = leading(stage)
    stage.run(1)
    stage.fence.claim(Claim("z", "zz", "other", 9, 1), 60_000)
    stage.run(STANDARD.fence_ttl / 3 + 1)
    assert a.said() == ["started", "stopped: fenced"]
    stage.run(10)
    # It freed the lock, and waits: while a higher rank leads there is nothing to claim.
    assert a.elector.status().state is State.FOLLOWING
    assert stage.locks["lease"].record is not None
    assert stage.locks["lease"].record.holder == ""
    assert stage.until(lambda: a.leads) <= 60


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


def test_an_epoch_that_was_seen_elsewhere_is_exceeded_by_the_next_term(stage: Stage) -> None:
    """The fence was lost, or failed over to an older state, and those who copied it remember more."""
    a = leading(stage)
    token = a.elector.token()
    assert token is not None
    a.elector.fenced(token, 40)
    stage.run(0.1)
    assert not a.leads
    stage.until(lambda: a.leads)
    assert a.elector.status().epoch == 41


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
    assert a.elector.status().state is State.FOLLOWING
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
