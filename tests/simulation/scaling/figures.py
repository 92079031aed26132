"""Runs every scaler on every workload, and says what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.scaling.scalers import SCALERS, Scaler
from tests.simulation.scaling.workloads import WORKLOADS, Workload
from tests.simulation.scaling.world import World


@dataclass(frozen=True, slots=True)
class Figures:
    """Waiting times (from due to started) and the price, of one scaler on one workload."""

    workload: str
    scaler: str
    jobs: int
    p50: float
    p99: float
    longest: float
    pod_seconds: float
    most: int
    handed_back: int
    changes: int


def run(workload: Workload, scaler: Scaler, seed: int = 1) -> tuple[World, Figures]:
    """Run one and measure."""
    world = workload.world(seed)
    scaler.attach(world)
    world.run()
    waits = sorted((world.until if job.started is None else job.started) - job.due for job in world.jobs)
    spent = sum(pod.ended - pod.created for pod in world.gone) + sum(world.now - pod.created for pod in world.pods)
    changes = len(getattr(scaler, "changes", ()))
    figures = Figures(
        workload.name,
        scaler.name,
        len(waits),
        _quantile(waits, 0.5),
        _quantile(waits, 0.99),
        waits[-1],
        spent,
        world.most,
        world.handed_back,
        changes,
    )
    return world, figures


def all_figures() -> list[Figures]:
    """Return the figures of every pair, in the order of workloads, then scalers."""
    return [run(workload, make())[1] for workload in WORKLOADS for make in SCALERS]


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
