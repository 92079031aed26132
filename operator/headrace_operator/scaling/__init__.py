"""How many workers a queue gets: `decide`, a pure function, what it looks at, and what is remembered for it."""

from headrace_operator.scaling.estimates import Arrivals, Service, cold_start
from headrace_operator.scaling.history import History
from headrace_operator.scaling.inputs import Inputs, Load, Pods, Rules
from headrace_operator.scaling.policy import Decision, Limit, decide
from headrace_operator.scaling.record import Record
from headrace_operator.scaling.victims import Leaving, Worker, leaving

__all__ = [
    "Arrivals",
    "Decision",
    "History",
    "Inputs",
    "Leaving",
    "Limit",
    "Load",
    "Pods",
    "Record",
    "Rules",
    "Service",
    "Worker",
    "cold_start",
    "decide",
    "leaving",
]
