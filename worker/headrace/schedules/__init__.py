"""Jobs that come again and again: when each is due, and what is made up for after a time without workers.

Everything here is a function of values. What enqueues the jobs is a duty of the queue's leader,
`headrace.maintenance.due_schedules`.
"""

from headrace.schedules.firing import ON_TIME_MS, Decision, Fate, decide, next_time
from headrace.schedules.mark import ScheduleMark
from headrace.schedules.rules import Cron, Interval, Rule
from headrace.schedules.schedule import CatchUp, Schedule

__all__ = [
    "ON_TIME_MS",
    "CatchUp",
    "Cron",
    "Decision",
    "Fate",
    "Interval",
    "Rule",
    "Schedule",
    "ScheduleMark",
    "decide",
    "next_time",
]
