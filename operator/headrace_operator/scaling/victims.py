"""Which workers go when there are too many: first they stop taking jobs, and only what has become idle is stopped.

So a step down costs no job anything: none is interrupted, none is handed back, however long it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker Pod that is not stopping. ``started``: it may have taken jobs; one that has not can go at once.

    ``in_flight``: jobs that it holds, as far as is known. ``retired``: it was told to take no more. ``quiet``: it said,
    having learnt of that, that it holds none. ``created``: when, as any number that grows.
    """

    name: str
    started: bool = True
    in_flight: int = 0
    retired: bool = False
    quiet: bool = False
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Leaving:
    """``retired``: names of those that take no more jobs. ``stopped``: those of them that can be stopped now."""

    retired: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()


def leaving(workers: Iterable[Worker], taking: int) -> Leaving:
    """Choose who leaves so that ``taking`` workers go on taking jobs.

    First those that have not started, then those chosen before, then those that run least, then the newest.
    """
    alive = sorted(workers, key=_order)
    chosen = alive[: max(0, len(alive) - taking)]
    return Leaving(
        tuple(worker.name for worker in chosen),
        tuple(worker.name for worker in chosen if not worker.started or (worker.retired and worker.quiet)),
    )


def _order(worker: Worker) -> tuple[bool, bool, int, float, str]:
    return (worker.started, not worker.retired, worker.in_flight, -worker.created, worker.name)
