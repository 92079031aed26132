"""Why something is as it is: the reasons of conditions and events. Each that needs somebody has a runbook page."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """One word for one cause; ``docs/runbooks`` explains those in `ACTIONABLE`."""

    # as it should be
    READY = "Ready"
    SETTLED = "Settled"
    CONNECTED = "Connected"
    APPLIED = "Applied"
    AVAILABLE = "Available"
    SCALED_TO_ZERO = "ScaledToZero"
    NOT_DRAINING = "NotDraining"
    NO_DATA_LOSS = "NoDataLoss"
    NO_CONFLICT = "NoConflict"
    SAFE = "Safe"
    ACKNOWLEDGED = "Acknowledged"
    NOT_PAUSED = "NotPaused"
    LEADING = "Leading"
    # under way
    WORKING = "Working"
    WORKERS_STARTING = "WorkersStarting"
    ELECTING = "Electing"
    JOBS_REMAIN = "JobsRemain"
    CLIENTS_MAY_RETRY = "ClientsMayRetry"
    WAITING_FOR_DELETION = "WaitingForDeletion"
    DELETING = "Deleting"
    CONNECTION_NOT_READY = "ConnectionNotReady"
    # as somebody wants it for now
    SCALING = "Scaling"
    SCALING_DISABLED = "ScalingDisabled"
    WITHIN_BOUNDS = "WithinBounds"
    MAX_REPLICAS = "MaxReplicas"
    MIN_REPLICAS = "MinReplicas"
    MAX_IN_FLIGHT = "MaxInFlight"
    RATE_LIMIT = "RateLimit"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"
    # somebody must act or decide
    INVALID_SPEC = "InvalidSpec"
    SECRET_MISSING = "SecretMissing"  # noqa: S105  not a secret, the lack of one
    INVALID_URL = "InvalidURL"
    UNREACHABLE = "Unreachable"
    ACCESS_DENIED = "AccessDenied"
    UNSUPPORTED_SERVER = "UnsupportedServer"
    STORE_FULL = "StoreFull"
    UNSAFE_REDIS = "UnsafeRedis"
    BACKEND_CHANGED = "BackendChanged"
    DATA_DAMAGED = "DataDamaged"
    TOPOLOGY_UNREADABLE = "TopologyUnreadable"
    TOPOLOGY_LOST = "TopologyLost"
    TOPOLOGY_DRIFTED = "TopologyDrifted"
    TOPOLOGY_CONFLICT = "TopologyConflict"
    OWNED_BY_ANOTHER = "OwnedByAnother"
    QUEUE_VERSION_CONFLICT = "QueueVersionConflict"
    AWAITING_PROMOTION = "AwaitingPromotion"
    TOO_MANY_DRAINING = "TooManyDraining"
    NO_WORKERS = "NoWorkers"
    JOBS_PARKED = "JobsParked"
    NO_LEADER = "NoLeader"
    DRAIN_STUCK = "DrainStuck"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    WORKERS_CONFLICT = "WorkersConflict"
    INVALID_WORKERS = "InvalidWorkers"
    INVALID_POD_TEMPLATE = "InvalidPodTemplate"
    SCALE_TARGET_MISSING = "ScaleTargetMissing"
    SCALE_TARGET_TAKEN = "ScaleTargetTaken"
    CONFLICTING_AUTOSCALER = "ConflictingAutoscaler"
    CONFLICTING_WRITER = "ConflictingWriter"
    METRICS_UNKNOWN = "MetricsUnknown"
    GRACE_TOO_SHORT = "GraceTooShort"
    REPLICA_FAILURE = "ReplicaFailure"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    UNSCHEDULABLE = "Unschedulable"
    WORKERS_NOT_READY = "WorkersNotReady"
    STORE_REFUSED = "StoreRefused"
    API_REFUSED = "ApiRefused"
    DELETION_UNCONFIRMED = "DeletionUnconfirmed"
    RETAINED = "Retained"
    # events only
    PROMOTED = "Promoted"
    COMPLETED = "Completed"
    SUPERSEDED = "Superseded"
    SCALED = "Scaled"
    LEADER_CHANGED = "LeaderChanged"
    CLAIMED = "Claimed"
    RESUMED = "Resumed"
    REMOVED = "Removed"


ACTIONABLE = tuple(list(Reason)[list(Reason).index(Reason.INVALID_SPEC) : list(Reason).index(Reason.PROMOTED)])
"""Reasons that have a page ``docs/runbooks/<reason>.md``."""


CONFLICTS = (
    *(Reason.OWNED_BY_ANOTHER, Reason.BACKEND_CHANGED, Reason.TOPOLOGY_CONFLICT, Reason.QUEUE_VERSION_CONFLICT),
    *(Reason.WORKERS_CONFLICT, Reason.SCALE_TARGET_TAKEN, Reason.CONFLICTING_AUTOSCALER, Reason.CONFLICTING_WRITER),
)
"""Reasons that say that somebody else claims, or writes, what a Queue takes for its own."""


class Finding(NamedTuple):
    """A reason with the sentence that says what it is about and what to do.

    ``detail``: what follows the sentence in a condition, and in no Event, since it changes while the finding stays.
    """

    reason: Reason
    message: str
    detail: str = ""


class Event(NamedTuple):
    """What is told about a Queue once, as a Kubernetes Event."""

    type: str
    reason: Reason
    message: str


def normal(reason: Reason, message: str) -> Event:
    """Return an Event of type Normal."""
    return Event("Normal", reason, message)


def warning(reason: Reason, message: str) -> Event:
    """Return an Event of type Warning."""
    return Event("Warning", reason, message)
