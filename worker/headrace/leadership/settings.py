"""How a worker campaigns to lead its queues: ``HEADRACE_LEADER_...``, validated together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from headrace.connection import ConnectionSettings, read_url
from headrace.election.timings import FAST, RELAXED, STANDARD, Timings, derived
from headrace.errors import InvalidInput

Backend = Literal["lease", "mongo", "redis", "memory", "none"]
Profile = Literal["relaxed", "standard", "fast"]
PROFILES: dict[Profile, Timings] = {"relaxed": RELAXED, "standard": STANDARD, "fast": FAST}
CHAIN: tuple[Backend, ...] = ("lease", "mongo", "redis", "memory")
"""Backends in the order of their rank."""
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")
_TIMING = re.compile(r"\b(lease_duration|renew_deadline|retry_period|call_timeout)\b")


class LeaderSettings(ConnectionSettings):
    """Settings of the election. Unset, a worker campaigns with a lock beside the queue: in Redis, or in memory."""

    leader_backends: Annotated[tuple[Backend, ...] | None, NoDecode] = Field(
        None, description="Locks, highest first: lease, mongo, redis. none: never lead. Unset: the queue's own store."
    )
    leader_lease_name: str | None = Field(
        None, description="Name of the Lease, {queue} standing for the queue's; unset: made from prefix and queue."
    )
    leader_lease_namespace: str | None = Field(None, description="Namespace of the Lease; unset: that of this Pod.")
    leader_mongo_url_file: Path | None = Field(None, description="File that holds the URL of MongoDB.")
    leader_profile: Profile | None = Field(
        None,
        description="Timings: relaxed, standard or fast. Unset: relaxed, or standard for a LeaderOnly queue.",
    )
    leader_lease_duration: int | None = Field(None, ge=1, le=300, description="Seconds of silence before a takeover.")
    leader_renew_deadline: float | None = Field(None, gt=0, description="Seconds that one renewal counts.")
    leader_retry_period: float | None = Field(None, gt=0, description="Seconds between renewals.")
    leader_call_timeout: float | None = Field(None, gt=0, description="Seconds for one call to a lock.")
    leader_on_wedged: Literal["unhealthy", "exit"] = Field(
        "unhealthy",
        description="When a leader's work ignores its end: turn unhealthy, or end the process at once.",
    )

    @field_validator("leader_backends", mode="before")
    @classmethod
    def _split_backends(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("leader_backends")
    @classmethod
    def _in_order(cls, value: tuple[Backend, ...] | None) -> tuple[Backend, ...] | None:
        if value is None:
            return None
        if not value:
            raise ValueError("names no lock; give none to never lead, or leave it unset")
        if value == ("none",):
            return value
        if "none" in value:
            raise ValueError("names none beside others; give none alone")
        if list(value) != sorted(set(value), key=CHAIN.index):
            given, right = ", ".join(value), ",".join(sorted(set(value), key=CHAIN.index))
            raise ValueError(f"is {given!r}; the order of rank is lease, mongo, redis, each once: give {right}")
        if "memory" in value and len(value) > 1:
            raise ValueError("names memory beside others; memory is for a store in memory, alone")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> LeaderSettings:
        backends = self.leader_backends or ()
        for name, backend in _BELONGS.items():
            if getattr(self, name) is not None and backend not in backends:
                given = ",".join(backends) or "unset"
                raise ValueError(
                    f"{name} is set, but leader_backends ({given}) lacks {backend}; add it, as in {backend},redis"
                )
        if "mongo" in backends and self.leader_mongo_url_file is None:
            raise ValueError(
                "leader_backends names mongo, and leader_mongo_url_file is not set; name a file that holds it"
            )
        self.leader_timings(exclusive=False)
        return self

    def leader_timings(self, *, exclusive: bool) -> Timings:
        """Return the timings; ``exclusive``: only the leader executes. Raises ValueError with the numbers."""
        given = (self.leader_lease_duration, self.leader_renew_deadline, self.leader_retry_period)
        if all(value is None for value in (*given, self.leader_call_timeout)):
            return PROFILES[self.leader_profile or ("standard" if exclusive else "relaxed")]
        base = PROFILES[self.leader_profile or "standard"]
        try:
            return derived(
                self.leader_lease_duration or base.lease_duration,
                self.leader_renew_deadline or base.renew_deadline,
                self.leader_retry_period or base.retry_period,
                self.leader_call_timeout,
            )
        except InvalidInput as error:
            raise ValueError(_TIMING.sub(r"leader_\1", str(error).replace(": ", " ", 1))) from None

    def lease_name(self, queue: str, tag: str, server: str) -> str:
        """Return the name of the queue's Lease; ``tag`` and ``server``: where the queue lies."""
        if self.leader_lease_name is not None:
            return self.leader_lease_name.replace("{queue}", queue)
        prefix = re.sub(r"[^a-z0-9]+", "-", self.prefix.lower()).strip("-")[:12].strip("-") or "headrace"
        # Two queues of one name, in two databases, are two queues.
        unique = hashlib.sha256(f"{tag}\n{server}".encode()).hexdigest()[:8]
        return f"{prefix}-{queue[:40].strip('.-')}-{unique}"

    def mongo_url(self) -> str:
        """Return the URL of MongoDB, read now; it may hold a password. Raises InvalidInput."""
        return read_url("leader_mongo_url_file", self.leader_mongo_url_file)

    def check_lease_names(self, queues: Sequence[str]) -> None:
        """Raise ValueError if the queues of one worker would share a Lease, or if one has no valid name."""
        if self.leader_lease_name is None:
            return
        names = [self.leader_lease_name.replace("{queue}", queue) for queue in queues]
        if len(set(names)) < len(names):
            raise ValueError(
                f"leader_lease_name {self.leader_lease_name!r} is one Lease for {len(queues)} queues; "
                "put {queue} into it, as in {queue}-leader"
            )
        for name in names:
            if not _OBJECT_NAME.match(name):
                raise ValueError(
                    f"leader_lease_name {name!r} cannot be the name of a Lease; use lower-case letters, digits and '-'"
                )


_BELONGS: dict[str, Backend] = {
    "leader_lease_name": "lease",
    "leader_lease_namespace": "lease",
    "leader_mongo_url_file": "mongo",
}
