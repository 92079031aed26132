"""QueueVersion: one version of a queue. Made and ended by the operator only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from headrace.topology import MAX_PARTITIONS, MAX_VERSION
from headrace_operator.api.base import NAME_PATTERN, ApiModel, Name, StatusModel, rules
from headrace_operator.api.queue_status import INT64, Phase


class QueueVersionSpec(ApiModel):
    """Which version of which queue; never changes."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self == oldSelf", "QueueVersion.spec never changes; bump spec.version of the Queue instead")
        )
    )

    queue_ref: Name = Field(description="metadata.name of the Queue.")
    queue_name: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=NAME_PATTERN)] = Field(
        description="Name of the queue in Redis."
    )
    version: int = Field(ge=1, le=MAX_VERSION, description="Version number.")
    partitions: int = Field(ge=1, le=MAX_PARTITIONS, description="Its partitions.")


class QueueVersionStatus(StatusModel):
    """Where the version is in its life: Pending -> Provisioned -> Active -> Draining -> Drained -> Completed."""

    observed_generation: int | None = Field(
        None, description="Always 1: the spec never changes.", json_schema_extra=INT64
    )
    phase: Phase = Field(
        "Pending",
        description="Pending; Provisioned (its partitions exist in Redis); Active (new jobs go to it); Draining (its "
        "jobs run out); Drained (no jobs left); Completed (its keys are removed); Superseded (never promoted); Failed "
        "(lost with the data of its Redis).",
    )
    promoted_at: datetime | None = Field(None, description="When it became active.")
    drained_since: datetime | None = Field(None, description="When it was first seen without jobs.")
    completed_at: datetime | None = Field(None, description="When it ended.")
