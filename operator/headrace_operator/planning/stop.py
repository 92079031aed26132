"""Is the queue stopped? Told from the settings that are in force in Redis, not from those that are wanted."""

from __future__ import annotations

from headrace.settings import QueueSettings
from headrace_operator.reasons import Event, Finding, Reason, normal

_FINDINGS = {
    "none": Finding(Reason.NOT_PAUSED, "jobs are taken and run"),
    "hold": Finding(Reason.HOLD, "jobs are taken and none is started, as spec.paused or spec.stopPolicy says"),
    "hold_and_drain": Finding(Reason.HOLD_AND_DRAIN, "jobs are run and new ones are refused, as spec.stopPolicy says"),
}


def stopped(settings: QueueSettings) -> tuple[bool, Finding]:
    """Return whether the queue is stopped in one way or the other, and which."""
    return settings.stop != "none", _FINDINGS[settings.stop]


def stop_event(before: QueueSettings, after: QueueSettings) -> Event | None:
    """Return what is told once ``after`` is in force instead of ``before``; None if both stop the queue alike."""
    if before.stop == after.stop:
        return None
    held, finding = stopped(after)
    return normal(finding.reason if held else Reason.RESUMED, finding.message)
