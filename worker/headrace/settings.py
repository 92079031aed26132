"""Queue-wide settings: live defaults that every job without an explicit value of its own follows.

They lie in the topology value and are installed into each partition, so that changing them needs no restart.
Precedence: the job's explicit value > these > command line > environment > file > default in code.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from headrace.job import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS
from headrace.retry import RetryPolicy


class QueueSettings(BaseModel):
    """Settings of one queue; ``None`` leaves the decision to the worker's own configuration."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    retry: RetryPolicy | None = Field(None, description="Retry policy of jobs that bring none.")
    timeout_ms: int | None = Field(None, ge=1, le=MAX_TIMEOUT_MS, description="Longest run of a job, milliseconds.")
    lease_ms: int | None = Field(None, ge=500, le=3_600_000, description="Lease of a claimed job, milliseconds.")

    def retry_or(self, default: RetryPolicy | None) -> RetryPolicy:
        """Return the queue's retry policy, else ``default``, else the policy in code (3 retries, exponential)."""
        return self.retry or default or RetryPolicy()

    def timeout_or(self, default: int | None) -> int:
        """Return the queue's time-out, else ``default``, else 30 s; milliseconds."""
        return self.timeout_ms or default or DEFAULT_TIMEOUT_MS
