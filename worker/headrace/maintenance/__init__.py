"""What the leader of a queue does for it: one file per duty, each a sequence of short steps that may stop anywhere.

Jobs wait for none of it. A duty says when it is due from what its worker knows anyway (`signs`), so that a leader with
nothing to do sends nothing; `housekeeping` runs what is due, each duty on its own, paced, and only as long as this
process leads (`turn`).
"""

from collections.abc import Sequence

from headrace.maintenance.drained_versions import DrainedVersions
from headrace.maintenance.due_schedules import DueSchedules, Fired
from headrace.maintenance.duty import Duty, DutyMetrics
from headrace.maintenance.housekeeping import Housekeeping
from headrace.maintenance.lost_hints import LostHints
from headrace.maintenance.migration import Migration
from headrace.maintenance.parked_limits import LimitedParking
from headrace.maintenance.retention import BoundedRetention
from headrace.maintenance.signs import Signs
from headrace.maintenance.statistics import FreshStatistics, Surveyed
from headrace.maintenance.unfinished_changes import UnfinishedChanges
from headrace.schedules import Schedule
from headrace.stores.base import ParkedLimits

__all__ = ["Duty", "DutyMetrics", "Housekeeping", "Signs", "duties"]


def duties(
    surveyed: Surveyed | None = None,
    parked: ParkedLimits | None = None,
    schedules: Sequence[Schedule] = (),
    fired: Fired | None = None,
) -> list[Duty]:
    """Return the duties of a leader, for one term.

    ``surveyed(queue, statistics)`` is told what was measured; ``parked`` limits jobs of types that no worker knows.
    ``schedules``: those of the queue; ``fired`` is told what came of them.
    """
    return [
        UnfinishedChanges(),
        LostHints(),
        Migration(),
        DrainedVersions(),
        BoundedRetention(),
        LimitedParking(parked or ParkedLimits()),
        FreshStatistics(surveyed),
        DueSchedules(schedules, fired),
    ]
