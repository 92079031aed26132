"""The Store protocol: every atomic step of a queue, once for all backends.

Each method is one atomic transition on one partition (or on the topology, or on the wake-up hints of one queue) and
is safe to be interrupted before or after it. What the steps mean together is in ``docs/protocol.md``; the sequences
built from them (promote, drain, complete) are in `headrace.lifecycle`, so that they are the same on every backend.

Stored ids carry their priority lane: a *key* is one lane byte (``0``, ``1``, ``2``) plus the stored id of
`headrace.ids`. A *token* names one claim call, ``worker:seq``; a transition on a leased job is accepted only with the
token under which it is leased now, whatever the clock says. Times are milliseconds of the server's clock.

The steps and their values are in ``headrace/stores/protocols``, a file per concern; `Store` is all of them.
"""

from __future__ import annotations

from typing import Protocol

from headrace.stores.bounds import (
    GRAVE_TTL_MS,
    HORIZONS,
    MAX_ASIDE,
    MAX_ASKED,
    MAX_BATCH,
    MAX_CLAIM,
    MAX_ENQUEUE,
    MAX_FUSED,
    MAX_PROMOTE,
    MAX_RECOVER,
    MAX_RESULT_BYTES,
    MAX_RESULTS_BYTES,
    MAX_SETTLE,
    MAX_STEP_BYTES,
    MAX_UNPARK,
    NONCE_TTL_MS,
    RECHECK_MS,
    SUSPECT_RECHECK_MS,
    TOMBSTONE_TTL_MS,
    check_batch,
    check_limit,
    check_page,
)
from headrace.stores.protocols.auditing import AuditSteps, Leftover, LeftoverKind, PartitionAudit, Pause
from headrace.stores.protocols.dead_letters import DeadLetter, DeadLetterSteps, FoundDead
from headrace.stores.protocols.deletion import DeletionSteps
from headrace.stores.protocols.finished import (
    FinishedBatch,
    FinishedJob,
    FinishedSteps,
    FoundFinished,
    Success,
    Trimmed,
)
from headrace.stores.protocols.inquiry import INDEXES, Described, Entry, Index, InquirySteps, Live, LiveState, Statuses
from headrace.stores.protocols.moving import Aside, Fence, MovingSteps
from headrace.stores.protocols.parking import ParkedLimits, ParkingSteps, TrimmedParked, Unknown, no_worker_knows
from headrace.stores.protocols.producing import LANE, Accepted, Moved, NewJob, Once, ProducingSteps
from headrace.stores.protocols.registry import Beat, RegistrySteps, WorkerEntry
from headrace.stores.protocols.replication import Replicas, ReplicationSteps
from headrace.stores.protocols.schedules import Schedules, ScheduleSteps
from headrace.stores.protocols.server import ServerSteps
from headrace.stores.protocols.sleeping import Glance, Nap, SleepingSteps, Wakes
from headrace.stores.protocols.statistics import COUNTERS, WORK, Depth, Growth, Statistics, StatisticsSteps, Survey
from headrace.stores.protocols.topology import Agreed, Counts, PartitionState, TopologySteps
from headrace.stores.protocols.waking import Tick, WakingSteps
from headrace.stores.protocols.withdrawing import (
    MAX_WITHDRAW,
    Purged,
    Sought,
    Waiting,
    WithdrawingSteps,
    Withdrawn,
)
from headrace.stores.protocols.working import Claim, Claimed, Failure, Lost, Release, Report, Settled, WorkingSteps

__all__ = [
    "COUNTERS",
    "GRAVE_TTL_MS",
    "HORIZONS",
    "INDEXES",
    "LANE",
    "MAX_ASIDE",
    "MAX_ASKED",
    "MAX_BATCH",
    "MAX_CLAIM",
    "MAX_ENQUEUE",
    "MAX_FUSED",
    "MAX_PROMOTE",
    "MAX_RECOVER",
    "MAX_RESULTS_BYTES",
    "MAX_RESULT_BYTES",
    "MAX_SETTLE",
    "MAX_STEP_BYTES",
    "MAX_UNPARK",
    "MAX_WITHDRAW",
    "NONCE_TTL_MS",
    "RECHECK_MS",
    "SUSPECT_RECHECK_MS",
    "TOMBSTONE_TTL_MS",
    "WORK",
    "Accepted",
    "Agreed",
    "Aside",
    "Beat",
    "Claim",
    "Claimed",
    "Counts",
    "DeadLetter",
    "Depth",
    "Described",
    "Entry",
    "Failure",
    "Fence",
    "FinishedBatch",
    "FinishedJob",
    "FoundDead",
    "FoundFinished",
    "Glance",
    "Growth",
    "Index",
    "Leftover",
    "LeftoverKind",
    "Live",
    "LiveState",
    "Lost",
    "Moved",
    "Nap",
    "NewJob",
    "Once",
    "ParkedLimits",
    "PartitionAudit",
    "PartitionState",
    "Pause",
    "Purged",
    "Release",
    "Replicas",
    "Report",
    "Schedules",
    "Settled",
    "Sought",
    "Statistics",
    "Statuses",
    "Store",
    "Success",
    "Survey",
    "Tick",
    "Trimmed",
    "TrimmedParked",
    "Unknown",
    "Waiting",
    "Wakes",
    "Withdrawn",
    "WorkerEntry",
    "check_batch",
    "check_limit",
    "check_page",
    "no_worker_knows",
]


class Store(
    TopologySteps,
    DeletionSteps,
    AuditSteps,
    ProducingSteps,
    WorkingSteps,
    ParkingSteps,
    MovingSteps,
    DeadLetterSteps,
    FinishedSteps,
    InquirySteps,
    WithdrawingSteps,
    StatisticsSteps,
    WakingSteps,
    RegistrySteps,
    ScheduleSteps,
    SleepingSteps,
    ReplicationSteps,
    ServerSteps,
    Protocol,
):
    """A backend. Errors: StoreUnavailable (outcome unknown), StoreFull (nothing applied), as in `headrace.errors`."""

    def clone(self) -> Store:
        """Return a store on the same data with connections of its own, for use in another event loop."""
        ...
