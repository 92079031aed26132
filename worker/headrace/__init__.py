"""Headrace: declarative, versioned, partitioned delayed-job queues on Redis."""

from headrace.app import App, CallNext, Middleware, load_app
from headrace.context import BatchContext, Context, current_run
from headrace.control import Dead, Retry, Snooze
from headrace.errors import (
    AccessDenied,
    DependencyFailed,
    Fenced,
    HeadraceError,
    InvalidInput,
    InvalidPayload,
    NotDrained,
    OutcomeUnknown,
    PayloadTooLarge,
    ProcessDied,
    ProcessFailed,
    QueueFull,
    QueueHeld,
    RaisedInProcess,
    StoreFull,
    StoreUnavailable,
    TopologyConflict,
    TopologyUnreadable,
    UnknownQueue,
    UnknownVersion,
    UnsupportedServer,
    VersionActive,
    VersionNotHigher,
)
from headrace.job import HistoryEntry, Job
from headrace.leader_term import LeaderTerm
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.retry import RetryPolicy
from headrace.settings import QueueSettings
from headrace.stores import Store, open_store
from headrace.sync_producer import SyncProducer
from headrace.worker import Metrics, Worker, WorkerSettings

__all__ = [
    "AccessDenied",
    "App",
    "BatchContext",
    "CallNext",
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
    "JobSpec",
    "LeaderTerm",
    "Metrics",
    "Middleware",
    "NotDrained",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "ProcessDied",
    "ProcessFailed",
    "Producer",
    "QueueFull",
    "QueueHeld",
    "QueueSettings",
    "RaisedInProcess",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "Store",
    "StoreFull",
    "StoreUnavailable",
    "SyncProducer",
    "TopologyConflict",
    "TopologyUnreadable",
    "UnknownQueue",
    "UnknownVersion",
    "UnsupportedServer",
    "VersionActive",
    "VersionNotHigher",
    "Worker",
    "WorkerSettings",
    "current_run",
    "load_app",
    "open_store",
]
