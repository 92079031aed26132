"""Queue.spec: what a user wants. Each field that is accepted is carried out; what is not is not in the schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from headrace.job import MAX_TIMEOUT_MS
from headrace.retry import MAX_RETRIES, RetryPolicy, Strategy
from headrace.settings import DEFAULT_CRASH_LIMIT, QueueSettings
from headrace.topology import MAX_PARTITIONS, MAX_VERSION
from headrace_operator.api.base import NAME_PATTERN, RULES, ApiModel, rules
from headrace_operator.api.drain_spec import Drain
from headrace_operator.api.leader_election_spec import LeaderElection
from headrace_operator.api.retention_spec import RetentionSpec
from headrace_operator.api.scaling_spec import Scaling
from headrace_operator.api.secret_ref import SecretRef
from headrace_operator.api.workers_spec import Workers

DAY_MS = 86_400_000
REDIS_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
"""Schemes of URLs that lead from any Pod to a Redis."""
URL_PATTERN = r"^(redis|rediss)([+](cluster|sentinel))?://.+$"


class Connection(ApiModel):
    """Where the queue lives."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("has(self.secretRef) != has(self.url)", "connection: set exactly one of secretRef and url")
        )
    )

    secret_ref: SecretRef | None = Field(
        None,
        description="Secret with the Redis URL. Workers get it as a mounted file. Takes URLs with credentials.",
    )
    strict: bool = Field(
        False,
        description="Refuse a Redis whose settings endanger jobs: an eviction policy, no persistence. Without it the "
        "condition UnsafeRedis only tells.",
    )
    url: Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=URL_PATTERN)] | None = Field(
        None,
        description="Redis URL without credentials, such as redis://redis.default.svc:6379/0; a Redis Cluster "
        "(redis+cluster://) or a primary behind Sentinels (redis+sentinel://) as well.",
        json_schema_extra=rules(
            (
                f"self.matches('{URL_PATTERN}')",
                f"connection.url must begin with {', '.join(f'{scheme}://' for scheme in REDIS_SCHEMES[:-1])} or "
                f"{REDIS_SCHEMES[-1]}://, which every Pod can reach",
            ),
            (
                "!self.contains('@')",
                "connection.url must not hold credentials; put the URL into a Secret and name it in "
                "connection.secretRef",
            ),
        ),
    )

    @model_validator(mode="after")
    def _one_source(self) -> Connection:
        if (self.secret_ref is None) == (self.url is None):
            raise ValueError("set exactly one of secretRef and url")
        if self.url is not None and "@" in self.url:
            raise ValueError("url must not hold credentials; use secretRef")
        return self


class Retry(ApiModel):
    """When a failed job runs again, unless the job says otherwise."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.baseMilliseconds <= self.capMilliseconds",
                "retry.baseMilliseconds must not exceed retry.capMilliseconds; lower the one or raise the other",
            )
        )
    )

    max_retries: int = Field(
        3, ge=0, le=MAX_RETRIES, description="Repetitions after the first run; 3 means up to 4 runs."
    )
    strategy: Strategy = Field(
        "exponential",
        description="exponential (base, doubled up to the cap), linear (always base) or backpressure (exponential "
        "with full jitter).",
    )
    base_milliseconds: int = Field(1000, ge=1, le=DAY_MS, description="Delay before the first repetition.")
    cap_milliseconds: int = Field(60_000, ge=1, le=DAY_MS, description="Longest delay before jitter.")
    crash_limit: int = Field(
        DEFAULT_CRASH_LIMIT,
        ge=1,
        le=100,
        description="Times that a job may take its worker down before it is a dead letter. Such runs are no retries.",
    )

    @model_validator(mode="after")
    def _base_within_cap(self) -> Retry:
        if self.base_milliseconds > self.cap_milliseconds:
            raise ValueError("baseMilliseconds must not exceed capMilliseconds")
        return self


class Limits(ApiModel):
    """What the queue takes and runs at most. Each partition enforces its part, at least one job."""

    rate_per_second: float | None = Field(
        None, gt=0, le=1e9, description="Jobs started per second at most, such as 50 or 0.5. Unset: no limit."
    )
    max_in_flight: int | None = Field(
        None, ge=1, le=10_000_000, description="Jobs that run at the same time at most, over all workers."
    )
    max_length: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="Jobs in the queue at most, dead letters not counted; enqueue is refused above it.",
    )


LEADER_ONLY_REPLICAS = (
    "spec.mode LeaderOnly has one Pod run jobs and the others stand by, however long jobs wait; set scaling.mode to "
    "Manual and scaling.replicas to the number of Pods, such as 2, or scaling.mode to Disabled"
)
LEADER_ONLY_ELECTION = "spec.mode LeaderOnly needs a leader; set leaderElection.enabled to true, or mode to Shared"


class QueueSpec(ApiModel):
    """What a user wants of a queue."""

    model_config = ConfigDict(
        json_schema_extra={
            RULES: [
                *rules(
                    (
                        # A rule about two fields of the spec is looked at whenever any of them changes. What an object
                        # had before the rule came must not keep it from being changed elsewhere.
                        "!self.paused || self.stopPolicy != 'HoldAndDrain' || (oldSelf.hasValue() && "
                        "oldSelf.value().paused && oldSelf.value().stopPolicy == 'HoldAndDrain')",
                        "spec.paused (take jobs, run none) contradicts spec.stopPolicy HoldAndDrain (run jobs, take "
                        "none); set stopPolicy to None to pause",
                    ),
                    optionalOldSelf=True,
                )[RULES],
                *rules(
                    (
                        "self.mode != 'LeaderOnly' || !has(self.workers) || self.scaling.mode != 'Backlog'",
                        LEADER_ONLY_REPLICAS,
                    ),
                    ("self.mode != 'LeaderOnly' || self.leaderElection.enabled", LEADER_ONLY_ELECTION),
                )[RULES],
            ]
        }
    )

    queue_name: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=NAME_PATTERN)] | None = Field(
        None,
        description="Name of the queue in Redis, as producers use it. Unset: metadata.name. Cannot be changed, added "
        "or removed later.",
        json_schema_extra=rules(
            (
                f"self.matches('{NAME_PATTERN}')",
                "queueName must be lower-case letters, digits, '-' and '.', beginning and ending with a letter or "
                "digit, such as mail.urgent",
            )
        ),
    )
    version: int = Field(
        ge=1,
        le=MAX_VERSION,
        description="Version of the queue. Raise it, together with partitions if wanted: new jobs go to the new "
        "version and the old one drains. It never goes back once it was promoted.",
    )
    partitions: int = Field(
        ge=1, le=MAX_PARTITIONS, description="Partitions of this version. Changes only together with version."
    )
    connection: Connection | None = Field(
        None,
        description="Redis of the queue. Unset: the Secret headrace-redis in this namespace, else the URL that the "
        "operator was installed with.",
    )
    promotion: Literal["Auto", "Manual"] = Field(
        "Auto",
        description="Auto: a new version is promoted as soon as it is provisioned. Manual: it waits for the annotation "
        'headrace.dev/promote: "<version>". The first version of a queue is promoted at once.',
    )
    drain: Drain = Field(
        default=Drain(), description="What becomes of the jobs of what ends. Live: a change needs no restart."
    )
    max_draining_versions: int = Field(
        4, ge=1, le=64, description="Promotion waits while it would leave more versions than this draining."
    )
    history_limit: int = Field(
        3, ge=0, le=100, description="Ended QueueVersions (Completed, Superseded, Failed) that are kept."
    )
    paused: bool = Field(
        False,
        description="true: jobs are taken but not run, the same as stopPolicy Hold. What runs already ends. Live: a "
        "change needs no restart.",
    )
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = Field(
        "None",
        description="Hold: jobs are taken but not run. HoldAndDrain: jobs are run but new ones are refused. Live: a "
        "change needs no restart.",
    )
    limits: Limits = Field(
        default=Limits(),
        description="What the queue takes and runs at most. Live: a change needs no restart.",
    )
    deletion_policy: Literal["Retain", "Drain", "Delete"] = Field(
        "Retain",
        description="What happens to the jobs when the Queue is deleted. Retain: they stay in Redis, and a Queue of "
        "the same name takes them over. Drain: no new ones are taken, the workers stay until the last one is done, "
        "then the queue is removed from Redis. Delete: the queue is removed from Redis at once; while it holds jobs "
        'only with the annotation headrace.dev/confirm-delete: "<uid of the Queue>".',
    )
    mode: Literal["Shared", "LeaderOnly"] = Field(
        "Shared",
        description="Shared: every worker runs jobs. LeaderOnly: one worker process does, the leader; the others stand "
        "by and take over. Live: a change needs no restart.",
    )
    leader_election: LeaderElection = Field(
        default=LeaderElection(),
        description="How the workers choose their leader, which does the housekeeping, and with mode LeaderOnly runs "
        "the jobs. Durations that follow the mode reach workers when they start.",
    )
    retry: Retry = Field(default=Retry(), description="When a failed job runs again. Live: a change needs no restart.")
    retention: RetentionSpec | None = Field(
        None,
        description="What is kept of jobs that have ended. Unset: no finished jobs, all dead letters, 20 events of a "
        "job. Live: a change needs no restart.",
    )
    timeout_seconds: int = Field(
        30,
        ge=1,
        le=MAX_TIMEOUT_MS // 1000,
        description="Longest run of a job that sets none. Live: a change needs no restart.",
    )
    lease_seconds: int = Field(
        30,
        ge=1,
        le=3600,
        description="Time after which a job of a worker that vanished is given to another one. Live: a change needs no "
        "restart.",
    )
    workers: Workers | None = Field(
        None, description="Worker Deployment run by the operator. Unset: workers are run elsewhere."
    )
    scaling: Scaling = Field(default=Scaling(), description="How many worker Pods run.")

    @model_validator(mode="after")
    def _one_way_to_stop(self) -> QueueSpec:
        if self.paused and self.stop_policy == "HoldAndDrain":
            raise ValueError("paused contradicts stopPolicy HoldAndDrain; set stopPolicy to None to pause")
        return self

    @model_validator(mode="after")
    def _somebody_leads(self) -> QueueSpec:
        if self.mode == "LeaderOnly":
            if not self.leader_election.enabled:
                raise ValueError(LEADER_ONLY_ELECTION)
            if self.workers is not None and self.scaling.mode == "Backlog":
                raise ValueError(LEADER_ONLY_REPLICAS)
        return self

    @property
    def made_workers(self) -> Workers | None:
        """The workers whose Deployment the operator makes; None if it makes none."""
        return self.workers if self.workers is not None and self.workers.image is not None else None

    @property
    def scale_target(self) -> str | None:
        """Name of the Deployment that the operator only scales; None if there is none."""
        reference = None if self.workers is None else self.workers.scale_target_ref
        return None if reference is None else reference.name

    def settings(self) -> QueueSettings:
        """Return the queue-wide settings that go into the topology."""
        return QueueSettings(
            retry=RetryPolicy(
                max_retries=self.retry.max_retries,
                strategy=self.retry.strategy,
                base_ms=self.retry.base_milliseconds,
                cap_ms=self.retry.cap_milliseconds,
            ),
            timeout_ms=self.timeout_seconds * 1000,
            lease_ms=self.lease_seconds * 1000,
            crash_limit=self.retry.crash_limit,
            drain=self.drain.settings(),
            stop="hold" if self.paused else _STOP[self.stop_policy],
            rate_per_second=self.limits.rate_per_second,
            max_in_flight=self.limits.max_in_flight,
            max_length=self.limits.max_length,
            retention=None if self.retention is None else self.retention.settings(),
            mode="leader_only" if self.mode == "LeaderOnly" else "shared",
        )


_STOP: dict[str, Literal["none", "hold", "hold_and_drain"]] = {
    "None": "none",
    "Hold": "hold",
    "HoldAndDrain": "hold_and_drain",
}
