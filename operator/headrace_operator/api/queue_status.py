"""Queue.status: a report that can be rebuilt at any time from Redis, except for what only it remembers of a loss."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from headrace_operator.api.base import StatusModel, list_map

Phase = Literal["Pending", "Provisioned", "Active", "Draining", "Drained", "Completed", "Superseded", "Failed"]
QueuePhase = Literal["Pending", "Progressing", "Active", "Draining", "Paused", "Degraded", "Stalled", "Deleting"]
ConditionStatus = Literal["True", "False", "Unknown"]
INT64: JsonDict = {"format": "int64"}


class Condition(StatusModel):
    """One condition, as everywhere in Kubernetes."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)] = Field(description="What is told about.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    observed_generation: int = Field(ge=0, description="metadata.generation it was set for.", json_schema_extra=INT64)
    last_transition_time: datetime = Field(description="When status changed last.")
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_]*)$")] = (
        Field(description="Why, in one word; docs/runbooks has a page for each that needs action.")
    )
    message: Annotated[str, StringConstraints(max_length=32768)] = Field(description="Why, in a sentence.")


class VersionStatus(StatusModel):
    """One version that is not ended."""

    version: int = Field(description="Version number.")
    phase: Phase = Field(description="Where it is in its life; see QueueVersion.")
    partitions: int = Field(description="Its partitions.")
    promoted_at: datetime | None = Field(None, description="When it became active.")
    drained_since: datetime | None = Field(None, description="When it was first seen without jobs.")


class Depth(StatusModel):
    """Jobs by state, over all versions."""

    ready: int = Field(0, description="Waiting for a worker.")
    scheduled: int = Field(0, description="Waiting for their time.")
    retry: int = Field(0, description="Waiting for their next run after a failure.")
    in_flight: int = Field(0, description="Running.")
    parked: int = Field(0, description="Waiting for a worker that knows their type; none did so far.")
    dead: int = Field(0, description="Dead letters: failed for good, kept for a decision.")


class Backend(StatusModel):
    """The Redis that holds the queue."""

    endpoint: Annotated[str, StringConstraints(max_length=512)] = Field(
        description="host:port/database, without credentials."
    )
    marker: Annotated[str, StringConstraints(max_length=128)] = Field(
        description="Mark in Redis that tells this data set from another one."
    )


class Leader(StatusModel):
    """Who leads the workers."""

    holder: Annotated[str, StringConstraints(max_length=253)] = Field(
        description="The worker process, as `headrace leader show` names it; it begins with the name of its Pod."
    )
    backend: Annotated[str, StringConstraints(max_length=63)] = Field(
        description="Lock by which it leads: lease, mongo or redis."
    )
    epoch: int = Field(
        description="Number of its claim; each leader has a higher one than those before it.", json_schema_extra=INT64
    )


class Drift(StatusModel):
    """What somebody else changed, and the operator put right last."""

    at: datetime = Field(description="When it was put right.")
    what: Annotated[str, StringConstraints(max_length=1024)] = Field(description="What was put right, in a sentence.")


class QueueStatus(StatusModel):
    """What the operator found and did."""

    observed_generation: int | None = Field(
        None, description="metadata.generation of the spec that this status is about.", json_schema_extra=INT64
    )
    phase: QueuePhase | None = Field(
        None,
        description="The conditions in one word, for people: Pending (never active yet), Progressing, Active, Draining "
        "(active, and older versions are there), Paused, Degraded (active, and not Ready), Stalled (somebody must act) "
        "or Deleting. Programs go by the conditions.",
    )
    conditions: Annotated[list[Condition], Field(max_length=32)] = Field(
        default=[],
        description="Ready, Reconciling, Stalled, Conflict, ConnectionReady, UnsafeRedis, TopologyApplied, Paused, "
        "WorkersAvailable, ScalingActive, ScalingLimited, LeaderElected, Draining, DataLoss.",
        json_schema_extra=list_map("type"),
    )
    active_version: int | None = Field(None, description="Version that new jobs go to.")
    active_partitions: int | None = Field(None, description="Its partitions.")
    target_version: int | None = Field(None, description="spec.version that is being worked towards.")
    versions: Annotated[list[VersionStatus], Field(max_length=128)] = Field(
        default=[], description="Versions that are not ended.", json_schema_extra=list_map("version")
    )
    depth: Depth | None = Field(None, description="Jobs by state, over all versions; refreshed when it moves.")
    oldest_ready_at: datetime | None = Field(None, description="Since when the oldest ready job has been due.")
    arrival_per_second: float | None = Field(
        None, description="Jobs that become ready in a second; measured while the operator scales by load."
    )
    service_seconds: float | None = Field(None, description="How long a job runs on average; measured likewise.")
    last_active_time: datetime | None = Field(
        None, description="When a worker was needed last, to within five minutes; measured likewise."
    )
    replicas: int | None = Field(None, description="Worker Pods that exist.")
    desired_replicas: int | None = Field(None, description="Worker Pods that should exist.")
    last_scale_time: datetime | None = Field(None, description="When the number of Pods was last set by the load.")
    selector: str | None = Field(None, description="Label selector of the worker Pods.")
    scale_target: str | None = Field(
        None, description="Deployment of spec.workers.scaleTargetRef, while this Queue is the one that scales it."
    )
    topology_epoch: int | None = Field(
        None, description="Number of the topology in Redis; each change of it raises it.", json_schema_extra=INT64
    )
    leader: Leader | None = Field(
        None, description="Who leads the workers; absent while nobody does. Looked at every 10 to 30 s."
    )
    backend: Backend | None = Field(None, description="The Redis that holds the queue.")
    data_loss_epoch: int | None = Field(
        None,
        description="topologyEpoch of the last rebuild after Redis lost the queue. The value for the annotation "
        "headrace.dev/ack-data-loss.",
        json_schema_extra=INT64,
    )

    drift: Drift | None = Field(
        None,
        description="What others changed of the queue in Redis or of its workers' objects, as it was put right last.",
    )

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of type ``kind``, None if it is not set."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
