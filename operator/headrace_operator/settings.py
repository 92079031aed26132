"""Settings of the operator, from the environment (``HEADRACE_...``)."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from headrace_operator.api.queue_spec import URL_PATTERN


class OperatorSettings(BaseSettings):
    """All settings; each is the variable ``HEADRACE_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", frozen=True)

    watch_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Namespaces whose Queues are cared for, with commas; empty: all."
    )
    default_redis_url: str = Field(
        "", description="Redis URL, without credentials, of Queues that name no connection and find no Secret."
    )
    leader_election: Literal["off", "standard", "fast"] = Field(
        "standard",
        description="standard: another replica takes over about 15 s after this one died; fast: about 4 s, with four "
        "times the calls; off: this is the only replica.",
    )
    lease_name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)] = Field(
        "headrace-operator", description="Name of the Lease that the replicas share."
    )
    lease_namespace: str = Field("", description="Its namespace; empty: that of this Pod.")
    health_port: int = Field(0, ge=0, le=65535, description="Port of /healthz, /readyz and /metrics; 0: none.")
    health_host: str = Field("127.0.0.1", description="Address that they are served on.")
    concurrency: int = Field(8, ge=1, le=64, description="Queues that are worked on at the same time.")
    list_seconds: float = Field(
        300.0, ge=1, le=3600, description="All Queues are listed again after this time, in case that an event was lost."
    )
    silent_seconds: float = Field(
        60.0, ge=1, le=3600, description="Time after a list in which the watch has to have delivered what it showed."
    )
    resync_seconds: float = Field(30.0, ge=1, le=30, description="A Queue is looked at again after this time.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Lowest level that is logged.")
    log_format: Literal["text", "json"] = Field("text", description="Form of log lines.")

    @field_validator("watch_namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(filter(None, (name.strip() for name in value.split(","))))
        return value

    @field_validator("default_redis_url")
    @classmethod
    def _without_credentials(cls, value: str) -> str:
        if value and ("@" in value or not re.match(URL_PATTERN, value)):
            raise ValueError(
                "must be a URL of a Redis (redis://, rediss://, redis+cluster://, redis+sentinel://) without "
                "credentials, because every worker Pod gets it in its environment; put a URL with credentials into a "
                "Secret headrace-redis in the namespaces of the Queues"
            )
        return value
