"""Leader election over a chain of locks, and a fence that makes two leaders harmless. Knows no queue.

`elector` owns a campaign and the application's `tenure`; `campaign` makes the calls that are due and takes their
answers, `handover` frees what is held; `lane` is what is known of one lock, `chain` which lock is used. `record` and
`backends` are the locks; `fence`, `redis_fence` and `memory_fence` decide whose writes count. `thread` runs an elector
beside an application.
"""

from headrace.election.elector import Elector
from headrace.election.errors import Conflict, Forbidden, LockError, Unavailable
from headrace.election.fence import Fence, FenceView, Token
from headrace.election.metrics import Metrics, NoMetrics
from headrace.election.record import Lock, RankedLock, Record, make_identity
from headrace.election.states import Reason, State, Status
from headrace.election.tenure import Callbacks, Term
from headrace.election.timings import FAST, STANDARD, Timings

__all__ = [
    "FAST",
    "STANDARD",
    "Callbacks",
    "Conflict",
    "Elector",
    "Fence",
    "FenceView",
    "Forbidden",
    "Lock",
    "LockError",
    "Metrics",
    "NoMetrics",
    "RankedLock",
    "Reason",
    "Record",
    "State",
    "Status",
    "Term",
    "Timings",
    "Token",
    "Unavailable",
    "make_identity",
]
