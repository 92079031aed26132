"""What the leader of a queue does for it: one file per duty, each a sequence of short steps that may stop anywhere.

Jobs wait for none of it. A duty says when it is due from what its worker knows anyway (`signs`), so that a leader with
nothing to do sends nothing; `housekeeping` runs what is due, each duty on its own, paced, and only as long as this
process leads (`turn`).
"""

from collections.abc import Sequence

from headrace.maintenance.audit_sample import AuditSample
from headrace.maintenance.drained_versions import DrainedVersions
from headrace.maintenance.due_schedules import DueSchedules
from headrace.maintenance.duty import Duty, DutyFindings, DutyMetrics, NoFindings
from headrace.maintenance.housekeeping import Housekeeping
from headrace.maintenance.lost_hints import LostHints
from headrace.maintenance.migration import Migration
from headrace.maintenance.parked_limits import LimitedParking
from headrace.maintenance.retention import BoundedRetention
from headrace.maintenance.signs import Signs
from headrace.maintenance.statistics import FreshStatistics
from headrace.maintenance.unfinished_changes import UnfinishedChanges
from headrace.schedules import Schedule
from headrace.stores.base import ParkedLimits

__all__ = ["Duty", "DutyMetrics", "Housekeeping", "Signs", "duties"]


def duties(
    metrics: DutyFindings | None = None, parked: ParkedLimits | None = None, schedules: Sequence[Schedule] = ()
) -> list[Duty]:
    """Return the duties of a leader, for one term.

    ``metrics`` are told what was found; ``parked`` limits jobs of types that no worker knows; ``schedules``: those of
    the queue.
    """
    told = metrics or NoFindings()
    return [
        UnfinishedChanges(),
        LostHints(),
        Migration(),
        DrainedVersions(),
        BoundedRetention(),
        LimitedParking(parked or ParkedLimits()),
        FreshStatistics(told.surveyed),
        DueSchedules(schedules, told.schedule_fired),
        AuditSample(told.audited),
    ]
