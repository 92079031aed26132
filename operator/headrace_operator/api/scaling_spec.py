"""Queue.spec.scaling: how many worker Pods run."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from headrace_operator.api.base import RULES, ApiModel, rules

DAY_SECONDS = 86_400


class Fallback(ApiModel):
    """What is done while the load cannot be measured."""

    failure_threshold: int = Field(
        3, ge=1, le=1000, description="Measurements in a row, some seconds apart, that fail before replicas counts."
    )
    replicas: int = Field(
        1, ge=0, le=10000, description="Fewest worker Pods from then on. It never lowers the number that there is."
    )


REPLICAS_RULES = rules(
    (
        # Replicas that mode Manual or `kubectl scale` left behind may stay; nobody has to clean them up.
        "self.mode == 'Manual' || self.replicas == 0 || "
        "(oldSelf.hasValue() && self.replicas == oldSelf.value().replicas)",
        "scaling.replicas counts only with scaling.mode Manual: set scaling.minReplicas instead and leave "
        "replicas out, or set scaling.mode to Manual as well",
    ),
    (
        "!oldSelf.hasValue() || self.mode != 'Manual' || oldSelf.value().mode == 'Manual' || self.replicas > 0",
        "a switch to scaling.mode Manual must carry scaling.replicas above 0; scale to 0 afterwards",
    ),
    optionalOldSelf=True,
)
BOUNDS_RULES = rules(
    (
        "self.minReplicas <= self.maxReplicas",
        "scaling.minReplicas must not exceed scaling.maxReplicas; lower the one or raise the other",
    )
)


class Scaling(ApiModel):
    """How many worker Pods run."""

    model_config = ConfigDict(json_schema_extra={RULES: [*REPLICAS_RULES[RULES], *BOUNDS_RULES[RULES]]})

    mode: Literal["Backlog", "Manual", "Disabled"] = Field(
        "Backlog",
        description="Backlog: as many as the jobs need, between minReplicas and maxReplicas. Manual: replicas. "
        "Disabled: replicas of the Deployment are never written; it starts with 0.",
    )
    replicas: int = Field(
        0,
        ge=0,
        le=10000,
        description="Worker Pods with mode Manual, the only one that it may be set with; `kubectl scale` sets it.",
    )
    min_replicas: int = Field(
        0, ge=0, le=10000, description="Fewest worker Pods with mode Backlog. 0: none while there is nothing to do."
    )
    max_replicas: int = Field(10, ge=1, le=10000, description="Most worker Pods with mode Backlog.")
    target_wait_seconds: float = Field(
        10, gt=0, le=DAY_SECONDS, description="How long jobs should wait at most, mode Backlog."
    )
    idle_seconds: float = Field(
        60,
        ge=0,
        le=DAY_SECONDS,
        description="For how long there must be nothing to do before the last worker goes, mode Backlog.",
    )
    keep_warm_seconds: float = Field(
        0,
        ge=0,
        le=DAY_SECONDS,
        description="A delayed job that is due within this time keeps, or starts, one worker, mode Backlog.",
    )
    headroom: float = Field(
        1.0,
        ge=0,
        le=100,
        description="Spare capacity for swings of arrivals, mode Backlog: headroom times the square root of the slots "
        "that are busy on average.",
    )
    fallback: Fallback = Field(default=Fallback(), description="What is done while the load cannot be measured.")

    @model_validator(mode="after")
    def _bounds(self) -> Scaling:
        if self.min_replicas > self.max_replicas:
            raise ValueError("minReplicas must not exceed maxReplicas")
        return self

    def declared(self) -> int | None:
        """Return how many worker Pods should run whatever happens; None if the load or somebody else decides."""
        return self.replicas if self.mode == "Manual" else None
