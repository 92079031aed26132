"""The real policy in simulated days: what it promises holds in each of them, and the page about it is up to date."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.simulation.scaling.figures import Figures, all_figures, run
from tests.simulation.scaling.page import pages
from tests.simulation.scaling.scalers import MAX_REPLICAS, Headrace
from tests.simulation.scaling.workloads import WORKLOADS, Workload

BY_NAME = {workload.name: workload for workload in WORKLOADS}


@pytest.fixture(scope="module")
def figures() -> dict[tuple[str, str], Figures]:
    return {(one.workload, one.scaler): one for one in all_figures()}


def test_table_and_plot_are_up_to_date(figures: dict[tuple[str, str], Figures]) -> None:
    """After a change of policy or simulation run ``python -m tests.simulation.scaling --write``."""
    for path, text in pages(list(figures.values())).items():
        assert path.read_text() == text, f"{path.name} is out of date"


@pytest.mark.parametrize("workload", BY_NAME)
def test_QG7_O14_every_job_runs_once_and_none_is_broken_off(
    figures: dict[tuple[str, str], Figures], workload: str
) -> None:
    for seed in (1, 2):
        world, ours = run(BY_NAME[workload], Headrace(), seed)
        assert all(job.started is not None for job in world.jobs)
        assert ours.handed_back == 0
        assert ours.most <= MAX_REPLICAS
        assert world.ended == len(world.jobs)


@pytest.mark.parametrize("workload", sorted(set(BY_NAME) - {"paused"}))
def test_jobs_wait_less_than_under_the_list_rule(figures: dict[tuple[str, str], Figures], workload: str) -> None:
    ours, theirs = figures[workload, "Headrace"], figures[workload, "KEDA list length"]
    assert ours.p99 < theirs.p99
    assert ours.longest < theirs.longest


def test_the_price_that_the_page_tells(figures: dict[tuple[str, str], Figures]) -> None:
    """The trade in words: dearer for bursts than the tuned rule and the HPA, cheaper for steady or limited work."""
    price = {key: one.pod_seconds for key, one in figures.items()}
    for other in ("KEDA, tuned", "HPA on CPU"):
        assert price["bursts", "Headrace"] > price["bursts", other]
    for workload in ("steady", "ramp", "limited", "paused"):
        assert price[workload, "Headrace"] < price[workload, "KEDA, tuned"]
    for rule in ("KEDA list length", "KEDA, tuned"):
        assert figures["slow jobs", rule].handed_back > 0
        assert figures["paused", rule].longest < figures["paused", "Headrace"].longest


def test_QC7_a_cliff_is_met_with_workers_that_have_started() -> None:
    world, ours = run(BY_NAME["cliff"], Headrace())
    due = world.jobs[0].due
    assert min(job.started or 0 for job in world.jobs) == due  # somebody was there
    best = sum(job.service for job in world.jobs) / (MAX_REPLICAS * world.slots)
    assert ours.longest < 1.2 * best


def test_O20_zero_wakes_for_one_job_without_a_poll() -> None:
    world, ours = run(BY_NAME["sparse"], Headrace())
    assert ours.longest < 12.0 + 2 * Headrace.wake  # the slowest start of a Pod
    idle = [after[0] - before[0] for before, after in pairwise(_changes(BY_NAME["sparse"])) if before[1] == 1]
    assert min(idle) >= 60.0
    assert world.most == 1


def test_E3_a_paused_or_limited_queue_gets_no_more_than_it_can_use(
    figures: dict[tuple[str, str], Figures],
) -> None:
    world, _ = run(BY_NAME["paused"], Headrace())
    assert all(pod.created >= 20 * 60 for pod in [*world.gone, *world.pods])
    assert figures["limited", "Headrace"].most == 1


def test_O12_O13_failing_metrics_change_nothing_by_themselves() -> None:
    steady, failing = BY_NAME["steady"], BY_NAME["metrics fail"]
    changes = _changes(failing)
    blind = [at for at, _ in changes if any(begin <= at < end for begin, end in failing.blind)]
    assert blind == []
    assert len(changes) <= len(_changes(steady))


def test_restarts_cost_what_they_last_and_forget_nothing(figures: dict[tuple[str, str], Figures]) -> None:
    steady = replace(BY_NAME["steady"], down=BY_NAME["restarts"].down)
    restarted, undisturbed = run(steady, Headrace())[1], figures["steady", "Headrace"]
    assert restarted.p99 <= undisturbed.p99 + 10
    assert restarted.pod_seconds < 1.3 * undisturbed.pod_seconds
    assert figures["restarts", "Headrace"].longest <= figures["bursts", "Headrace"].longest + 10


def test_no_flapping_under_steady_work() -> None:
    numbers = [replicas for at, replicas in _changes(BY_NAME["steady"]) if 120 < at < 1800]
    turns = sum((b > a) != (c > b) for a, b, c in zip(numbers, numbers[1:], numbers[2:], strict=False))
    assert turns <= 4
    assert max(numbers) - min(numbers) <= 2


def _changes(workload: Workload) -> list[tuple[float, int]]:
    scaler = Headrace()
    run(workload, scaler)
    return scaler.changes
