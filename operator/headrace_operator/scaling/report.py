"""What users are told of the scaling of a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from headrace_operator.scaling.policy import Limit

TOLD = frozenset(
    {
        Limit.FALLBACK,
        Limit.HOLD,
        Limit.MIN_REPLICAS,
        Limit.MAX_REPLICAS,
        Limit.MAX_IN_FLIGHT,
        Limit.RATE,
    }
)
"""Limits that are told: the others pass within a minute or so."""


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """``limit``: what holds the number back or raises it, None if nothing does. ``scaled_at``: when it was last set.

    ``writer``: who writes the number as well, again and again; "" if nobody does. What was measured changes all the
    time, so it makes no two reports differ: ``arrivals_per_second``; ``service``, seconds of a run; ``active_at``, when
    a worker was needed last. None: not known.
    """

    limit: Limit | None = None
    scaled_at: datetime | None = None
    writer: str = ""
    arrivals_per_second: float | None = field(default=None, compare=False)
    service: float | None = field(default=None, compare=False)
    active_at: datetime | None = field(default=None, compare=False)
