"""What a scaling decision is made from, as values. Seconds unless a name says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from headrace_operator.scaling.history import History

Mode = Literal["Backlog", "Manual", "Disabled"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user wants. ``headroom``: spare slots, in square roots of the slots that arrivals keep busy.

    ``failure_threshold``: failed measurements in a row after which ``fallback_replicas`` are the least that run.
    ``held``: the queue takes jobs but runs none. ``rate_per_second``, ``max_in_flight``: limits over everything that
    jobs are taken from, None if there are none.
    """

    mode: Mode = "Backlog"
    min_replicas: int = 0
    max_replicas: int = 10
    target_wait: float = 10.0
    idle: float = 60.0
    headroom: float = 1.0
    failure_threshold: int = 3
    fallback_replicas: int = 1
    held: bool = False
    rate_per_second: float | None = None
    max_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What the queue holds, over its active and draining versions. None where a figure is not known.

    ``ready``: jobs that a worker could take now; parked ones are none of them. ``due_in_cold_start``, ``due_in_warm``:
    delayed jobs due within the time that a Pod needs to start, and within the time that one is to be kept for them.
    ``oldest_ready``: how long the oldest ready job has been due. ``arrivals_per_second``: jobs that become ready.
    ``arrived``: whether any did since the last look. ``service``: mean run of a job. ``untried``: jobs parked because
    no worker knew them, if workers of the present template were not asked yet. ``now_ms``: time of the server.
    """

    now_ms: int
    ready: int | None
    in_flight: int | None
    due_in_cold_start: int | None = 0
    due_in_warm: int | None = 0
    oldest_ready: float | None = None
    arrivals_per_second: float | None = None
    arrived: bool = False
    service: float | None = None
    untried: int = 0

    @property
    def known(self) -> bool:
        """Whether it says enough to decide: taking an unknown backlog for none would stop workers that are needed."""
        return all(_sound(figure) for figure in (self.ready, self.in_flight, self.due_in_cold_start))

    def held(self) -> Load:
        """Return the load of a queue that runs nothing new: only what runs counts."""
        return replace(
            self,
            ready=0,
            due_in_cold_start=0,
            due_in_warm=0,
            oldest_ready=None,
            arrivals_per_second=None,
            arrived=False,
            untried=0,
        )

    def cleaned(self) -> Load:
        """Return the same with every figure in place: what is absent or impossible counts as its usual value."""
        return replace(
            self,
            due_in_warm=self.due_in_warm if _sound(self.due_in_warm) else 0,
            oldest_ready=_or(self.oldest_ready, 0.0),
            arrivals_per_second=_or(self.arrivals_per_second, 0.0),
            service=max(SHORTEST_SERVICE, _or(self.service, SERVICE_PRIOR)),
        )

    @property
    def active(self) -> bool:
        """Whether there is anything that a worker is needed for, or was since the last look."""
        figures = (self.ready, self.in_flight, self.due_in_cold_start, self.due_in_warm, self.untried)
        return self.arrived or any(figures)


SHORTEST_SERVICE, SERVICE_PRIOR = 0.001, 1.0


@dataclass(frozen=True, slots=True)
class Pods:
    """The workers that take jobs.

    ``replicas``: as many as were asked for, without those that were told to take no more; ``ready``, ``pending``: how
    many of them have started, and have not. ``slots``: jobs that one Pod runs at a time, None if that is not known.
    ``cold_start``: from a Pod's creation to its readiness. ``rolling_out``: Pods are being replaced by those of a new
    template.
    """

    replicas: int
    ready: int
    pending: int = 0
    slots: int | None = 1
    cold_start: float = 10.0
    rolling_out: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that `headrace_operator.scaling.decide` looks at.

    ``load`` None: it could not be measured; ``failures`` measurements in a row could not, this one included.
    """

    rules: Rules
    load: Load | None
    pods: Pods
    history: History
    failures: int = 0


def _sound(figure: float | None) -> bool:
    return figure is not None and math.isfinite(figure) and figure >= 0


def _or(figure: float | None, usual: float) -> float:
    return figure if figure is not None and _sound(figure) else usual
