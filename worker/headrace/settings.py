"""Queue-wide settings: live defaults that every job without an explicit value of its own follows.

They lie in the topology value and are installed into each partition, so that changing them needs no restart.
Precedence: the job's explicit value > these > command line > environment > file > default in code.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field, model_validator

from headrace.job import MAX_TIMEOUT_MS
from headrace.retry import RetryPolicy
from headrace.setting_errors import SettingsModel

DEFAULT_CRASH_LIMIT = 3
MAX_DRAIN_MS = 366 * 24 * 3_600_000
DEFAULT_HISTORY_ENTRIES = 20
MAX_HISTORY_ENTRIES = 200


class Retention(SettingsModel):
    """What is kept of jobs that have ended, over all partitions; each keeps its part, at least one.

    Without it no finished job is kept, dead letters are kept until somebody deletes them, and a job's history has 20
    entries.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    done_seconds: int = Field(3600, ge=1, le=366 * 24 * 3600, description="How long finished jobs are kept.")
    done_count: int = Field(
        1000,
        ge=0,
        le=100_000_000,
        description="Newest finished jobs that are kept; 0: none is, and nothing is written.",
    )
    done_bytes: int = Field(64 << 20, ge=1024, le=1 << 40, description="Bytes that finished jobs may take.")
    dead_count: int = Field(
        10_000, ge=1, le=100_000_000, description="Dead letters that are kept; beyond it the oldest ones are dropped."
    )
    history_entries: int = Field(
        DEFAULT_HISTORY_ENTRIES,
        ge=0,
        le=MAX_HISTORY_ENTRIES,
        description="Newest events that are kept of a job: failures, lost leases, interruptions.",
    )


class DrainSettings(SettingsModel):
    """What becomes of the jobs of older versions. Nothing is ever dropped silently."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Literal["wait", "migrate"] = Field(
        "wait",
        description="wait: jobs run in their version. migrate: a leader moves waiting ones to the active version.",
    )
    order: Literal["relaxed", "strict"] = Field(
        "relaxed", description="strict: a version is consumed once all older ones are drained."
    )
    timeout_ms: int | None = Field(
        None, ge=1000, le=MAX_DRAIN_MS, description="How long a version may drain before on_timeout, milliseconds."
    )
    on_timeout: Literal["wait", "migrate", "dead_letter"] = Field(
        "wait", description="What happens then to the jobs that wait: nothing, they move, or they are dead letters."
    )

    @model_validator(mode="after")
    def _check(self) -> DrainSettings:
        if self.on_timeout != "wait" and self.timeout_ms is None:
            raise ValueError(f"on_timeout {self.on_timeout} needs timeout_ms")
        if self.order == "strict" and self.policy != "migrate" and self.on_timeout == "wait":
            raise ValueError("order strict needs policy migrate, or timeout_ms and an on_timeout other than wait")
        return self


class QueueSettings(SettingsModel):
    """Settings of one queue; ``None`` leaves the decision to the worker's own configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    retention: Retention | None = Field(
        None, description="What is kept of ended jobs; unset: no finished ones, all dead letters."
    )

    drain: DrainSettings = Field(DrainSettings.model_construct(), description="What becomes of older versions.")
    mode: Literal["shared", "leader_only"] = Field(
        "shared", description="leader_only: one worker process runs jobs, its leader; the others stand by."
    )

    def retry_or(self, default: RetryPolicy | None) -> RetryPolicy:
        """Return the queue's retry policy, else ``default``, else the policy in code (3 retries, exponential)."""
        return self.retry or default or RetryPolicy()

    @property
    def keeps_finished(self) -> bool:
        """Whether finished jobs are kept for a while."""
        return self.retention is not None and self.retention.done_count > 0


class Keep(NamedTuple):
    """Finished jobs that one partition keeps: the newest ``jobs`` of them, ``bytes`` at most, for ``ms``."""

    jobs: int
    bytes: int
    ms: int


class PartitionLimits(NamedTuple):
    """What one partition enforces by itself: no claims (``hold``), no new jobs (``shut``). None: no limit.

    ``dead``: dead letters; ``history``: events of a job; ``finished``: what is kept of finished jobs, None for nothing.
    """

    hold: bool
    shut: bool
    rate: float | None
    in_flight: int | None
    length: int | None
    crashes: int
    dead: int | None
    history: int
    finished: Keep | None
    leader_only: bool


def partition_limits(settings: QueueSettings, partitions: int, *, its_turn: bool = True) -> PartitionLimits:
    """Divide the queue's limits over ``partitions``, each at least 1 job (the rate: as small as it gets).

    ``its_turn``: whether the version may be consumed, else its claims are held.
    While two versions are consumed each of them has the full limit, so the queue as a whole may reach twice that.
    """
    retention = settings.retention
    in_flight, length, dead = (
        None if limit is None else math.ceil(limit / partitions)
        for limit in (settings.max_in_flight, settings.max_length, retention.dead_count if retention else None)
    )
    finished = None
    if retention is not None and settings.keeps_finished:
        jobs, size = (math.ceil(limit / partitions) for limit in (retention.done_count, retention.done_bytes))
        finished = Keep(jobs, size, retention.done_seconds * 1000)
    return PartitionLimits(
        settings.stop == "hold" or not its_turn,
        settings.stop == "hold_and_drain",
        None if settings.rate_per_second is None else settings.rate_per_second / partitions,
        in_flight,
        length,
        settings.crash_limit or DEFAULT_CRASH_LIMIT,
        dead,
        retention.history_entries if retention else DEFAULT_HISTORY_ENTRIES,
        finished,
        settings.mode == "leader_only",
    )
