"""Queue.spec.leaderElection: by which locks one of the workers becomes their leader, and how fast."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from headrace.election.timings import derived
from headrace.errors import InvalidInput
from headrace_operator.api.base import RULES, ApiModel, rules
from headrace_operator.api.secret_ref import SecretRef

LockName = Literal["lease", "mongo", "redis"]
RANKING: tuple[LockName, ...] = ("lease", "mongo", "redis")
LEASE_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_CHAINS = (
    "[['lease', 'mongo', 'redis'], ['lease', 'mongo'], ['lease', 'redis'], ['mongo', 'redis'], ['lease'], ['mongo'], "
    "['redis']]"
)
_TOGETHER = "leaderElection: set leaseDurationSeconds, renewDeadlineSeconds and retryPeriodSeconds together, or none"
_OR_PROFILE = "leaderElection: set either profile or the three durations; take one of them out"
_UNSET = "(!has(self.leaseDurationSeconds) || !has(self.renewDeadlineSeconds) || !has(self.retryPeriodSeconds))"
_LEASE = "leaderElection.leaseDurationSeconds must be at least 1.5 times renewDeadlineSeconds"
_RENEW = "leaderElection.renewDeadlineSeconds must be at least 2 times retryPeriodSeconds"


class MongoLock(ApiModel):
    """A MongoDB that stands in while the API server does not answer."""

    secret_ref: SecretRef = Field(
        description="Secret with the URL of MongoDB, mongodb:// or mongodb+srv://, and the database in it. Workers get "
        "it as a mounted file."
    )


class LeaderElection(ApiModel):
    """Which locks the workers campaign with, and how fast one of them replaces a leader that is gone."""

    model_config = ConfigDict(
        json_schema_extra={
            RULES: [
                *rules(
                    (
                        "has(self.leaseDurationSeconds) == has(self.renewDeadlineSeconds) && "
                        "has(self.renewDeadlineSeconds) == has(self.retryPeriodSeconds)",
                        _TOGETHER,
                    ),
                    ("!has(self.profile) || !has(self.leaseDurationSeconds)", _OR_PROFILE),
                    (
                        "!has(self.backends) || has(self.mongo) == self.backends.exists(lock, lock == 'mongo')",
                        "leaderElection.backends and mongo contradict each other; set mongo.secretRef if and only if "
                        "backends names mongo",
                    ),
                    (
                        "!has(self.leaseName) || !has(self.backends) || self.backends.exists(lock, lock == 'lease')",
                        "leaderElection.leaseName is set, but backends lacks lease; set backends to include it, or "
                        "take leaseName out",
                    ),
                    (
                        "has(self.leaseName) == has(oldSelf.leaseName) && "
                        "(!has(self.leaseName) || self.leaseName == oldSelf.leaseName)",
                        "leaderElection.leaseName cannot be changed, added or removed: workers with one Lease each "
                        "would take the lead from each other; create another Queue",
                    ),
                )[RULES],
                # With the numbers in it, since they may come from different files.
                {
                    "rule": f"{_UNSET} || double(self.leaseDurationSeconds) >= 1.5 * self.renewDeadlineSeconds",
                    "message": f"{_LEASE}; raise the one or lower the other",
                    "messageExpression": f"'{_LEASE}, and %d is below 1.5 x %s; raise the one or lower the other'"
                    ".format([self.leaseDurationSeconds, self.renewDeadlineSeconds])",
                },
                {
                    "rule": f"{_UNSET} || self.renewDeadlineSeconds >= 2.0 * self.retryPeriodSeconds",
                    "message": f"{_RENEW}; raise the one or lower the other",
                    "messageExpression": f"'{_RENEW}, and %s is below 2 x %s; raise the one or lower the other'"
                    ".format([self.renewDeadlineSeconds, self.retryPeriodSeconds])",
                },
            ]
        }
    )

    enabled: bool = Field(
        True,
        description="false: no worker ever leads, and what a leader does is left undone. Not with mode LeaderOnly.",
    )
    profile: Literal["relaxed", "standard", "fast"] | None = Field(
        None,
        description="Durations as one: relaxed (a leader that is gone is replaced within 45 s), standard (25 s), fast "
        "(7 s, usually 5, for an API server that is near). Unset: standard with mode LeaderOnly, else relaxed.",
    )
    lease_duration_seconds: int | None = Field(
        None,
        ge=1,
        le=300,
        description="Silence of a leader after which another worker may take over. At least 1.5 times "
        "renewDeadlineSeconds: so much may clocks differ in speed.",
    )
    renew_deadline_seconds: float | None = Field(
        None,
        gt=0,
        le=300,
        description="How long one renewal counts for the leader itself. At least 2 times retryPeriodSeconds.",
    )
    retry_period_seconds: float | None = Field(
        None, gt=0, le=300, description="Time between renewals, and between looks of those that stand by."
    )
    backends: (
        Annotated[
            list[LockName],
            Field(
                min_length=1,
                max_length=3,
                json_schema_extra={"x-kubernetes-list-type": "atomic"}
                | rules(
                    (
                        f"self in {_CHAINS}",
                        "leaderElection.backends must be in the order of rank, each once: lease, mongo, redis",
                    )
                ),
            ),
        ]
        | None
    ) = Field(
        None,
        description="Locks, highest first: the next one is used while the one above does not answer. Unset: lease, "
        "mongo if it is set, redis.",
    )
    mongo: MongoLock | None = Field(None, description="The lock in MongoDB, between Lease and Redis.")
    lease_name: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=LEASE_PATTERN)] | None = Field(
        None,
        description="Name of the Lease, made by the operator. Unset: <queue>-workers. Cannot be changed, added or "
        "removed later.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> LeaderElection:
        durations = (self.lease_duration_seconds, self.renew_deadline_seconds, self.retry_period_seconds)
        if None in durations and any(each is not None for each in durations):
            raise ValueError(_TOGETHER)
        if self.profile is not None and durations[0] is not None:
            raise ValueError(_OR_PROFILE)
        if self.backends is not None:
            if list(self.backends) != sorted(set(self.backends), key=RANKING.index):
                raise ValueError("backends must be in the order of rank, each once: lease, mongo, redis")
            if (self.mongo is not None) != ("mongo" in self.backends):
                raise ValueError("set mongo.secretRef if and only if backends names mongo")
            if self.lease_name is not None and "lease" not in self.backends:
                raise ValueError("leaseName is set, but backends lacks lease")
        self._check_durations()
        return self

    def _check_durations(self) -> None:
        lease, renew, retry = self.lease_duration_seconds, self.renew_deadline_seconds, self.retry_period_seconds
        if lease is None or renew is None or retry is None:
            return
        if renew < 2 * retry:
            raise ValueError(f"renewDeadlineSeconds {renew:g} is below 2 x retryPeriodSeconds {retry:g}")
        try:
            derived(lease, renew, retry)
        except InvalidInput as error:
            raise ValueError(str(error)) from None

    @property
    def chain(self) -> tuple[LockName, ...]:
        """The locks to campaign with, highest first; empty: nobody leads."""
        if not self.enabled:
            return ()
        if self.backends is not None:
            return tuple(self.backends)
        return tuple(lock for lock in RANKING if lock != "mongo" or self.mongo is not None)
