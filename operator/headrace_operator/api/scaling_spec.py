"""Queue.spec.scaling: how many worker Pods run."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from headrace_operator.api.base import ApiModel, rules


class Scaling(ApiModel):
    """How many worker Pods run."""

    model_config = ConfigDict(
        json_schema_extra=rules(
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
    )

    mode: Literal["Backlog", "Manual", "Disabled"] = Field(
        "Backlog",
        description="Backlog: minReplicas, at least one, whatever the backlog. Manual: replicas. Disabled: replicas of "
        "the Deployment are never written; it starts with 0.",
    )
    replicas: int = Field(
        0,
        ge=0,
        le=10000,
        description="Worker Pods with mode Manual, the only one that it may be set with; `kubectl scale` sets it.",
    )
    min_replicas: int = Field(0, ge=0, le=10000, description="Fewest worker Pods with mode Backlog.")

    def desired(self) -> int | None:
        """Return how many worker Pods should run; None if somebody else decides."""
        if self.mode == "Disabled":
            return None
        return self.replicas if self.mode == "Manual" else max(1, self.min_replicas)
