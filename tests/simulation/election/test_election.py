"""The real elector in a world of faults: properties over seeds, bounds in named scenarios, and mutants to be caught.

``python -m tests.simulation.election --seeds N`` runs more seeds; a failing one prints what it needs to be replayed.
"""

from __future__ import annotations

import dataclasses
import logging

import pytest

from headrace.election.timings import FAST, STANDARD, Timings
from tests.simulation.election.__main__ import report
from tests.simulation.election.faults import Fault, Plan, draw
from tests.simulation.election.mutants import MUTANTS
from tests.simulation.election.run import SLICE, simulate
from tests.simulation.election.scenarios import SCENARIOS

SEEDS = 60
MUTANT_SEEDS = 60


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    """Outages by the thousand, all of them meant."""
    caplog.set_level(logging.CRITICAL, "headrace.election")


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_L2_L4_L9_LE9_LE27_LE34_properties_hold_on_every_seed(first: int) -> None:
    epochs = 0
    for seed in range(first, first + 20):
        plan = draw(seed)
        result = simulate(plan)
        assert not result.violations, report(plan, STANDARD)
        epochs += result.claims
    assert epochs > 20  # the faults do move leadership


def test_LE34_properties_hold_with_the_fast_profile() -> None:
    for seed in range(1000, 1012):
        plan = draw(seed)
        assert not simulate(plan, timings=FAST).violations, report(plan, FAST)


@pytest.mark.parametrize("name", SCENARIOS)
def test_L6_LE30_somebody_leads_again_within_the_bound(name: str) -> None:
    scenario = SCENARIOS[name]
    for seed in range(3):
        result = simulate(scenario.plan(seed), timings=scenario.timings)
        assert not result.violations, result.trace
        assert result.gap <= scenario.timings.bound + 2 * SLICE, f"seed {seed}: {result.gap:.1f} s\n{result.trace}"


def test_LE30_work_goes_on_while_the_leader_changes_the_backend() -> None:
    ways = {
        "the API server is down": ("lease", "mongo", "lease"),
        "API server and MongoDB are down": ("lease", "redis", "mongo", "lease"),
        "the API server is down, then MongoDB too, fast": ("lease", "mongo", "redis", "mongo", "lease"),
    }
    for name, way in ways.items():
        scenario = SCENARIOS[name]
        for seed in range(4):
            # Two backends that hang in a row leave a second for the third: enough, unless its answers are slow.
            plan = dataclasses.replace(scenario.plan(seed), slow=0)
            result = simulate(plan, timings=scenario.timings)
            assert result.backends == way, result.trace
            assert result.reasons == (), result.trace  # no term ended


@pytest.mark.parametrize("timings", [STANDARD, FAST], ids=["standard", "fast"])
def test_a_flapping_api_server_causes_few_claims(timings: Timings) -> None:
    flaps = tuple(Fault("outage", 40 + 22 * n, store="lease", seconds=12) for n in range(11))
    for seed in range(3):
        result = simulate(Plan(seed, flaps, seconds=400, calm=100, loss=0, slow=0), timings=timings)
        assert not result.violations, result.trace
        # One at the start, and few moves between the backends instead of two per flap.
        assert result.claims <= 5, result.trace


def test_a_calm_day_has_one_leader_and_no_loss_of_it() -> None:
    result = simulate(Plan(5, (), seconds=900, calm=60))
    assert not result.violations, result.trace
    assert result.claims == 1
    assert result.reasons == ()


def test_L16_LE22_LE2_many_candidates_race_for_one_lock() -> None:
    plan = Plan(11, (Fault("crash", 30, pod=7, seconds=5),), pods=200, seconds=60, calm=25, slow=0.02)
    result = simulate(plan, chain=("lease",))
    assert not result.violations, result.trace
    assert 1 <= result.claims <= 2


@pytest.mark.parametrize("name", MUTANTS)
def test_a_removed_rule_is_noticed(name: str) -> None:
    mutant = MUTANTS[name]
    for seed in range(MUTANT_SEEDS):
        plan = mutant.plan(seed)
        broken = simulate(plan, elector_type=mutant.elector_type, fence_type=mutant.fence_type, chain=mutant.chain)
        if any(mutant.expected in violation for violation in broken.violations):
            whole = simulate(plan, chain=mutant.chain)
            assert not whole.violations, whole.trace
            return
    pytest.fail(f"{name}: no run of {MUTANT_SEEDS} shows a violation of {mutant.expected}")


def test_the_same_seed_gives_the_same_run() -> None:
    assert simulate(draw(3)).trace == simulate(draw(3)).trace


def test_a_run_with_another_seed_is_another_run() -> None:
    assert simulate(draw(3)).trace != simulate(draw(4)).trace
