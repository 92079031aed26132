"""Each reason for which a worker should be restarted, and each for which it should not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.worker.vitals import STALLED_SECONDS, Vitals, readiness, stuck_seconds

WELL = Vitals(
    claim_cycle=0.1,
    claim_unanswered=0.0,
    lease_cycle=0.1,
    loop_blocked=0.0,
    stuck=0.0,
    saturated=False,
    keeps_leases=True,
    store_down=False,
    election_healthy=True,
    longest_wait=20.0,
)
LONG = STALLED_SECONDS + 21


@pytest.mark.parametrize(
    ("changed", "alive"),
    [
        ({}, True),
        # The claim loop stands still although jobs could be claimed and the store answers.
        ({"claim_cycle": LONG}, False),
        ({"claim_cycle": STALLED_SECONDS + 19}, True),
        ({"claim_cycle": LONG, "saturated": True}, True),
        ({"claim_cycle": LONG, "store_down": True}, True),
        # A claim that is never answered looks like taken slots.
        ({"claim_unanswered": LONG, "saturated": True}, False),
        ({"claim_unanswered": LONG, "store_down": True}, True),
        # The lease keeper stands still: leases end although handlers run.
        ({"lease_cycle": LONG}, False),
        ({"lease_cycle": LONG, "saturated": True}, False),
        ({"lease_cycle": LONG, "store_down": True}, True),
        # A handler blocks the loop: worth waiting for as long as its lease is kept.
        ({"loop_blocked": LONG, "claim_cycle": LONG}, True),
        ({"loop_blocked": LONG, "claim_cycle": LONG, "keeps_leases": False}, False),
        ({"loop_blocked": LONG, "saturated": True, "keeps_leases": False}, False),
        ({"loop_blocked": STALLED_SECONDS - 1, "keeps_leases": False}, True),
        # Every slot is taken by code that does not end.
        ({"stuck": LONG, "saturated": True}, False),
        ({"stuck": STALLED_SECONDS - 1, "saturated": True}, True),
        ({"election_healthy": False}, False),
    ],
)
def test_QF3_a_worker_is_restarted_when_a_restart_helps(changed: dict[str, Any], alive: bool) -> None:
    health = replace(WELL, **changed).alive()
    assert health.ok is alive
    assert set(health.facts) == {
        "claim_cycle_age_seconds",
        "lease_cycle_age_seconds",
        "loop_blocked_seconds",
        "slots_stuck_seconds",
        "election_healthy",
    }


@pytest.mark.parametrize(
    ("deadlines", "slots", "stuck"),
    [([], 2, 0), ([90, 95], 2, 5), ([90, 101], 2, 0), ([90], 2, 0), ([50, 60, 99], 2, 1)],
)
def test_QF3_slots_are_stuck_when_all_hold_runs_past_their_timeout(
    deadlines: list[float], slots: int, stuck: float
) -> None:
    running: Any = dict.fromkeys(map(_Run, deadlines))
    assert stuck_seconds(running, slots, now=100) == stuck


class _Run:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


def test_QF3_a_worker_is_ready_when_it_takes_jobs() -> None:
    well = {"started": True, "store_reachable": True, "stopping": False, "memory_enough": True}
    assert readiness(**well, memory_ratio=None).ok
    for changed in ({"started": False}, {"store_reachable": False}, {"stopping": True}, {"memory_enough": False}):
        assert not readiness(**{**well, **changed}, memory_ratio=0.5).ok
