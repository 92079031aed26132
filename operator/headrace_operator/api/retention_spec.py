"""Queue.spec.retention: what is kept of jobs that have ended."""

from __future__ import annotations

from pydantic import Field

from headrace.settings import DEFAULT_HISTORY_ENTRIES, MAX_HISTORY_ENTRIES, Retention
from headrace_operator.api.base import ApiModel

YEAR_SECONDS = 366 * 24 * 3600


class RetentionSpec(ApiModel):
    """What is kept of jobs that have ended, over all partitions; each keeps its part."""

    done_seconds: int = Field(3600, ge=1, le=YEAR_SECONDS, description="How long finished jobs are kept.")
    done_count: int = Field(
        1000,
        ge=0,
        le=100_000_000,
        description="Newest finished jobs that are kept, with their results. 0: none, and nothing is written of them.",
    )
    done_bytes: int = Field(64 << 20, ge=1024, le=1 << 40, description="Bytes that finished jobs may take.")
    dead_count: int = Field(
        10_000,
        ge=1,
        le=100_000_000,
        description="Dead letters that are kept. Beyond it the oldest ones are dropped, and counted.",
    )
    history_entries: int = Field(
        DEFAULT_HISTORY_ENTRIES,
        ge=0,
        le=MAX_HISTORY_ENTRIES,
        description="Newest events that are kept of a job: failures, lost leases, interruptions.",
    )

    def settings(self) -> Retention:
        """Return it as it goes into the topology."""
        return Retention(**self.model_dump())
