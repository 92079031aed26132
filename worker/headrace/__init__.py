"""Headrace: declarative, versioned, partitioned delayed-job queues on Redis."""

from headrace.app import App, CallNext, Middleware, load_app
from headrace.breaker import CircuitBreaker
from headrace.context import BatchContext, Context, current_run
from headrace.control import Dead, Retry, Snooze
from headrace.errors import (
    AccessDenied,
    DependencyFailed,
    Fenced,
    HeadraceError,
    InvalidInput,
    InvalidPayload,
    JobFailed,
    NotDrained,
    NotReplicated,
    OutcomeUnknown,
    PayloadTooLarge,
    ProcessDied,
    ProcessFailed,
    QueueFull,
    QueueHeld,
    RaisedInProcess,
    ResultNotKept,
    RetentionOff,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TopologyConflict,
    TopologyUnreadable,
    UnknownQueue,
    UnknownVersion,
    UnsupportedServer,
    VersionActive,
    VersionNotHigher,
    WaitTimeout,
)
from headrace.job import HistoryEntry, Job
from headrace.job_status import JobStatus
from headrace.leader_term import LeaderTerm
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.retry import RetryFunction, RetryPolicy
from headrace.settings import QueueSettings, Retention
from headrace.stores import Store, open_store
from headrace.sync_producer import SyncProducer
from headrace.withdrawal import Cancellation
from headrace.worker import Metrics, Worker, WorkerSettings

__all__ = [
    "AccessDenied",
    "App",
    "BatchContext",
    "CallNext",
    "Cancellation",
    "CircuitBreaker",
    "Context",
    "Dead",
    "DependencyFailed",
    "Enqueued",
    "Fenced",
    "HeadraceError",
    "HistoryEntry",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "JobFailed",
    "JobSpec",
    "JobStatus",
    "LeaderTerm",
    "Metrics",
    "Middleware",
    "NotDrained",
    "NotReplicated",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "ProcessDied",
    "ProcessFailed",
    "Producer",
    "QueueFull",
    "QueueHeld",
    "QueueSettings",
    "RaisedInProcess",
    "ResultNotKept",
    "Retention",
    "RetentionOff",
    "Retry",
    "RetryFunction",
    "RetryPolicy",
    "Snooze",
    "Store",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "SyncProducer",
    "TopologyConflict",
    "TopologyUnreadable",
    "UnknownQueue",
    "UnknownVersion",
    "UnsupportedServer",
    "VersionActive",
    "VersionNotHigher",
    "WaitTimeout",
    "Worker",
    "WorkerSettings",
    "current_run",
    "load_app",
    "open_store",
]
