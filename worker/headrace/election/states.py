"""Where an elector stands, as values for logs, metrics and those who show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.election.fence import Token


class State(StrEnum):
    """One of seven; their order is in docs/leader-election.md."""

    FOLLOWING = "following"
    ACQUIRING = "acquiring"
    CLAIMING = "claiming"
    STANDBY = "standby"
    LEADING = "leading"
    STEPPING_DOWN = "stepping_down"
    STOPPED = "stopped"


class Reason(StrEnum):
    """Why a term ended."""

    TERMINATED = "terminated"
    FENCED = "fenced"
    LOST = "lost"
    EXPIRED = "expired"
    REDIS_LOST = "redis_lost"
    DUTY_RAISED = "duty_raised"
    DUTY_RETURNED = "duty_returned"


@dataclass(frozen=True, slots=True)
class Seat:
    """The right to lead: a token of the fence, backed by a lock until ``valid_until`` on the elector's clock."""

    token: Token
    backend: str
    rank: int
    valid_until: float


def is_leading(seat: Seat | None, now: float) -> bool:
    """Return whether ``seat`` gives the right to lead at ``now``. It ends by itself, without anybody acting."""
    return seat is not None and now < seat.valid_until


@dataclass(frozen=True, slots=True)
class Status:
    """``leader``: identity of the holder of the lock in use, "" if unknown. ``valid_for``: seconds; 0: not leading."""

    state: State
    identity: str
    backend: str
    epoch: int
    valid_for: float
    leader: str
    wedged: bool
