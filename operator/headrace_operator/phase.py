"""The phase of a Queue: its conditions in one word, for people who read a list."""

from __future__ import annotations

from typing import Final

from headrace_operator.api.queue_status import QueuePhase, QueueStatus
from headrace_operator.reasons import Reason

_UNDER_WAY: Final = (Reason.WORKING, Reason.WAITING_FOR_DELETION, Reason.AWAITING_PROMOTION, Reason.TOO_MANY_DRAINING)
"""Reasons of a Queue that is not Ready because it is being brought there, or waits for that."""


def phase_of(status: QueueStatus, *, deleting: bool) -> QueuePhase:
    """Return the phase that the conditions of ``status`` come down to: the first that holds, gravest first."""
    if deleting:
        return "Deleting"
    if _holds(status, "Stalled"):
        return "Stalled"
    ready = status.condition("Ready")
    if status.active_version is None:
        return "Pending"
    if ready is None or ready.status != "True":
        return "Progressing" if ready is None or ready.reason in _UNDER_WAY else "Degraded"
    if _holds(status, "Paused"):
        return "Paused"
    return "Draining" if _holds(status, "Draining") else "Active"


def _holds(status: QueueStatus, kind: str) -> bool:
    condition = status.condition(kind)
    return condition is not None and condition.status == "True"
