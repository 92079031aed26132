"""What users are told of the scaling of a queue."""

from __future__ import annotations

from dataclasses import dataclass
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

    ``writer``: who writes the number as well, again and again; "" if nobody does.
    """

    limit: Limit | None = None
    scaled_at: datetime | None = None
    writer: str = ""
