"""Queue-wide settings: live defaults that every job without an explicit value of its own follows.

They lie in the topology value and are installed into each partition, so that changing them needs no restart.
Precedence: the job's explicit value > these > command line > environment > file > default in code.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from headrace.job import MAX_TIMEOUT_MS
from headrace.retry import RetryPolicy

DEFAULT_CRASH_LIMIT = 3


class QueueSettings(BaseModel):
    """Settings of one queue; ``None`` leaves the decision to the worker's own configuration."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    retry: RetryPolicy | None = Field(None, description="Retry policy of jobs that bring none.")
    timeout_ms: int | None = Field(None, ge=1, le=MAX_TIMEOUT_MS, description="Longest run of a job, milliseconds.")
    lease_ms: int | None = Field(None, ge=500, le=3_600_000, description="Lease of a claimed job, milliseconds.")

    crash_limit: int | None = Field(
        None, ge=1, le=100, description="Times that a job may take its worker down before it is dead; unset: 3."
    )
    stop: Literal["none", "hold", "hold_and_drain"] = Field(
        "none", description="hold: jobs are taken but not run. hold_and_drain: jobs are run but not taken."
    )
    rate_per_second: float | None = Field(None, gt=0, le=1e9, description="Jobs started per second at most.")
    max_in_flight: int | None = Field(None, ge=1, description="Jobs leased at the same time at most.")
    max_length: int | None = Field(None, ge=1, description="Live jobs at most; enqueue is refused above it.")

    def retry_or(self, default: RetryPolicy | None) -> RetryPolicy:
        """Return the queue's retry policy, else ``default``, else the policy in code (3 retries, exponential)."""
        return self.retry or default or RetryPolicy()


class PartitionLimits(NamedTuple):
    """What one partition enforces by itself. None: no limit."""

    hold: Literal["", "claim", "enqueue"]
    rate: float | None
    in_flight: int | None
    length: int | None
    crashes: int


def partition_limits(settings: QueueSettings, partitions: int) -> PartitionLimits:
    """Divide the queue's limits over ``partitions``, each at least 1 job (the rate: as small as it gets).

    While two versions are consumed each of them has the full limit, so the queue as a whole may reach twice that.
    """
    hold: dict[str, Literal["", "claim", "enqueue"]] = {"none": "", "hold": "claim", "hold_and_drain": "enqueue"}
    in_flight, length = (
        None if limit is None else math.ceil(limit / partitions)
        for limit in (settings.max_in_flight, settings.max_length)
    )
    return PartitionLimits(
        hold[settings.stop],
        None if settings.rate_per_second is None else settings.rate_per_second / partitions,
        in_flight,
        length,
        settings.crash_limit or DEFAULT_CRASH_LIMIT,
    )
