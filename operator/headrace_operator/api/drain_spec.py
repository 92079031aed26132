"""Queue.spec.drain: what becomes of the jobs of versions that were promoted over, and of a Queue that is deleted."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from headrace.settings import MAX_DRAIN_MS, DrainSettings
from headrace_operator.api.base import ApiModel, rules

STRICT = (
    "drain.order Strict would let one job due in a month stop the queue; set drain.policy to Migrate, or "
    "drain.timeoutSeconds and a drain.onTimeout other than Wait"
)
ON_TIMEOUT = "drain.onTimeout needs a time; set drain.timeoutSeconds, or drain.onTimeout to Wait"


class Drain(ApiModel):
    """What becomes of the jobs of what ends. Nothing is ever dropped silently."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.order != 'Strict' || self.policy == 'Migrate' || "
                "(self.timeoutSeconds > 0 && self.onTimeout != 'Wait')",
                STRICT,
            ),
            ("self.onTimeout == 'Wait' || self.timeoutSeconds > 0", ON_TIMEOUT),
        )
    )

    policy: Literal["Wait", "Migrate"] = Field(
        "Wait",
        description="Wait: jobs run in the version in which they are. Migrate: the leader of the workers moves those "
        "that wait to the active version.",
    )
    order: Literal["Relaxed", "Strict"] = Field(
        "Relaxed",
        description="Relaxed: all versions are consumed side by side. Strict: a version is consumed once the older "
        "ones are drained.",
    )
    timeout_seconds: int = Field(
        0, ge=0, le=MAX_DRAIN_MS // 1000, description="How long a version may drain before onTimeout; 0: no limit."
    )
    on_timeout: Literal["Wait", "Migrate", "DeadLetter"] = Field(
        "Wait",
        description="What happens then to the jobs that wait. Wait: nothing. Migrate: they move to the active version. "
        "DeadLetter: they become dead letters. Jobs that run are left alone.",
    )

    deletion_timeout_seconds: int = Field(
        3600,
        ge=1,
        le=30 * 24 * 3600,
        description="With deletionPolicy Drain: when jobs are left, or Redis has not answered, for so long after the "
        "Queue was deleted, they stay in Redis as with Retain, and an Event says so. With Delete: likewise when Redis "
        "does not answer.",
    )

    @model_validator(mode="after")
    def _ends(self) -> Drain:
        if self.on_timeout != "Wait" and not self.timeout_seconds:
            raise ValueError(ON_TIMEOUT)
        if self.order == "Strict" and self.policy != "Migrate" and self.on_timeout == "Wait":
            raise ValueError(STRICT)
        return self

    def settings(self) -> DrainSettings:
        """Return what goes into the topology."""
        return DrainSettings(
            policy="migrate" if self.policy == "Migrate" else "wait",
            order="strict" if self.order == "Strict" else "relaxed",
            timeout_ms=self.timeout_seconds * 1000 or None,
            on_timeout=_OUTCOMES[self.on_timeout],
        )


_OUTCOMES: dict[str, Literal["wait", "migrate", "dead_letter"]] = {
    "Wait": "wait",
    "Migrate": "migrate",
    "DeadLetter": "dead_letter",
}
