"""The rule for lost leases beside others: what each costs when a process dies, and when jobs kill processes."""

from __future__ import annotations

from functools import partial
from statistics import mean

from tests.simulation.loss.rules import Alone, EveryLoss, GroupsThenAlone, Halves, OneBesideOthers
from tests.simulation.loss.world import DURATION, Result, Rule, World

SEEDS = range(5)


def over_seeds(rule: type[Rule], *, jobs: int = 1500, poisoned: int, killed: bool = False) -> Result:
    """The mean of some runs; ``killed``: one process is killed in the middle of its first jobs, once."""
    results = []
    for seed in SEEDS:
        world = World(rule(), seed=seed, jobs=jobs, poisoned=poisoned)
        if killed:
            world.plan(DURATION / 4, partial(world.kill, world.processes[0]))
        results.append(world.run())
    return Result(*(mean(figures) for figures in zip(*results, strict=True)))


def test_V15_a_dead_process_costs_its_jobs_few_durations() -> None:
    """No poison at all: the commonest case. A hundred suspects are cleared several times as fast as one by one."""
    in_use, one = (over_seeds(rule, poisoned=0, killed=True) for rule in (GroupsThenAlone, OneBesideOthers))
    assert in_use.crashes == one.crashes == 1
    assert in_use.suspected == one.suspected == 100
    assert in_use.charged == in_use.innocent_dead == 0
    assert in_use.last < one.last / 4
    # Nobody stops claiming for them, so all is done as early as if each loss were simply repeated.
    assert in_use.took < 1.1 * over_seeds(EveryLoss, poisoned=0, killed=True).took


def test_V15_QH1_one_poisoned_job_costs_two_lives_more_than_the_limit() -> None:
    in_use, one, every = (over_seeds(rule, poisoned=1) for rule in (GroupsThenAlone, OneBesideOthers, EveryLoss))
    assert (in_use.crashes, one.crashes, every.crashes) == (5, 4, 3)
    assert in_use.poisoned_dead == 1
    assert in_use.charged == in_use.innocent_dead == 0
    assert every.innocent_dead > 50
    assert in_use.last < one.last / 2


def test_J7_V15_many_poisoned_jobs_at_once_never_charge_an_innocent_one() -> None:
    in_use, one = (over_seeds(rule, poisoned=15) for rule in (GroupsThenAlone, OneBesideOthers))
    assert in_use.poisoned_dead == one.poisoned_dead == 15
    assert in_use.charged == 0
    assert one.charged > 0  # a fresh poisoned job beside a suspect
    assert in_use.crashes < 1.4 * one.crashes
    assert in_use.took < one.took / 2


def test_the_rules_that_were_not_taken_cost_more() -> None:
    """Alone: as slow as one by one, and processes stand still for it. Halves: twice the lives for a poisoned job."""
    in_use = over_seeds(GroupsThenAlone, poisoned=0, killed=True)
    assert over_seeds(Alone, poisoned=0, killed=True).last > 4 * in_use.last
    assert over_seeds(Halves, poisoned=1).crashes > 1.5 * over_seeds(GroupsThenAlone, poisoned=1).crashes
