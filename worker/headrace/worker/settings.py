"""Settings of a worker process, validated together.

Nothing here names versions or partitions: these come from the store alone, so that no restart can contradict it.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource

from headrace.job import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS
from headrace.leadership.settings import LeaderSettings
from headrace.retry import RetryPolicy
from headrace.stores.base import MAX_CLAIM, ParkedLimits
from headrace.topology import check_queue_name
from headrace.worker.settings_file import FileSource

MAX_WEIGHT = 100
MAX_PARKED_SECONDS = 366 * 24 * 3600.0
UNCONFIRMED = 1000
"""Finished jobs whose acknowledgement may be on its way at the same time, unless max_in_flight says otherwise."""


class WorkerSettings(LeaderSettings):
    """All knobs of a worker: what is given here wins over ``HEADRACE_<NAME>``, that over the file ``config``.

    ``HEADRACE_QUEUES`` has commas. The file is TOML, its table ``[worker]`` has keys as the fields here. A job's own
    values and the queue's live settings win over ``retry``, ``timeout_ms`` and ``lease_ms``. Raises
    InvalidSettings, an InvalidInput, for values that are out of range, unknown or do not fit together, InvalidInput for
    the file.
    """

    config: Path | None = Field(None, description="TOML file with a table [worker].")
    queues: Annotated[tuple[str, ...], NoDecode] = Field(
        ("default",), description="Queues to work on, as NAME or NAME:WEIGHT (1 to 100) for their shares of the slots."
    )
    worker_id: str = Field(default_factory=socket.gethostname, description="Name of this worker in logs and history.")
    concurrency: int = Field(16, ge=1, le=4096, description="Handlers that run at the same time.")
    batch_size: int | None = Field(None, ge=1, le=MAX_CLAIM, description="Jobs per claim; unset: up to 256.")
    queue_buffer: int = Field(0, ge=0, le=10_000, description="Jobs leased beyond the free slots, waiting here.")
    max_in_flight: int | None = Field(None, ge=1, description="Leased jobs at most; unset: slots + buffer + 1000.")
    lease_ms: int = Field(30_000, ge=500, le=3_600_000, description="Lease of a claimed job, milliseconds.")
    heartbeat_ms: int | None = Field(None, ge=50, description="Time between renewals; unset: a third of the lease.")
    poll_ms: int = Field(20_000, ge=100, le=300_000, description="Longest wait for a wake-up before looking again.")
    timeout_ms: int = Field(DEFAULT_TIMEOUT_MS, ge=1, le=MAX_TIMEOUT_MS, description="Longest run, milliseconds.")
    timeout_grace_ms: int = Field(
        5_000, ge=100, le=3_600_000, description="Time after a time-out in which a handler should have ended."
    )
    grace_seconds: float = Field(
        25.0, ge=0, le=86_400, description="Time that running handlers get after SIGTERM; allow 5 s more before a kill."
    )
    retry: RetryPolicy | None = Field(None, description="Retry policy where neither job, queue nor handler has one.")
    parked_jobs: int | None = Field(
        None, ge=1, description="Jobs of one type unknown to all workers that may wait in a queue; unset: any number."
    )
    parked_seconds: float | None = Field(
        None, gt=0, le=MAX_PARKED_SECONDS, description="How long such a job may wait once it is due; unset: for ever."
    )
    health_host: str | None = Field(None, description="Address of the health server; unset: POD_IP or 127.0.0.1.")
    health_port: int = Field(0, ge=0, le=65535, description="Port of /healthz, /readyz and /metrics; 0: none.")
    memory_limit: float = Field(
        0.9, gt=0.1, le=2, description="Used share of Redis's maxmemory at which readiness turns red; above 1: never."
    )
    metrics: Literal["none", "prometheus", "otel"] = Field(
        "none", description="prometheus: /metrics on the health port; otel: the global MeterProvider."
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *found: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the strongest first."""
        return *super().settings_customise_sources(settings_cls, *found, **named), FileSource(settings_cls)

    @field_validator("queues", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("queues")
    @classmethod
    def _queue_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("no queue is given; name at least one")
        weights = dict(map(_weighted, value))
        return tuple(queue if weight == 1 else f"{queue}:{weight}" for queue, weight in weights.items())

    @field_validator("worker_id")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not re.fullmatch(r"[!-~]{1,200}", value):
            raise ValueError("is not a worker name; give 1 to 200 printable characters without spaces")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> WorkerSettings:
        if self.heartbeat_ms is not None and self.heartbeat_ms * 2 > self.lease_ms:
            raise ValueError(
                f"heartbeat_ms {self.heartbeat_ms} x 2 is above lease_ms {self.lease_ms}: one late renewal would lose "
                f"leases; set heartbeat_ms to at most {self.lease_ms // 2}"
            )
        if self.metrics == "prometheus" and not self.health_port:
            raise ValueError("metrics is prometheus and health_port is 0: nobody could read them; set health_port")
        slots = self.concurrency + self.queue_buffer
        if self.max_in_flight is not None and self.max_in_flight < slots:
            raise ValueError(
                f"max_in_flight {self.max_in_flight} is below concurrency {self.concurrency} + queue_buffer "
                f"{self.queue_buffer}; set it to at least {slots}, or lower these"
            )
        self.check_lease_names(self.queue_names)
        return self

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues without their weights."""
        return tuple(self.weights_of_queues)

    @property
    def weights_of_queues(self) -> dict[str, int]:
        """The weight of each queue."""
        return dict(map(_weighted, self.queues))

    @property
    def claim_limit(self) -> int:
        """Jobs that one claim may ask for."""
        return self.batch_size or MAX_CLAIM

    @property
    def in_flight_limit(self) -> int:
        """Jobs that may be leased by this worker, those whose acknowledgement is on its way included."""
        return self.max_in_flight or self.concurrency + self.queue_buffer + UNCONFIRMED

    @property
    def parked_limits(self) -> ParkedLimits:
        """What becomes a dead letter of jobs whose type no worker knows: by default nothing."""
        age = self.parked_seconds
        return ParkedLimits(self.parked_jobs, None if age is None else round(age * 1000))

    def heartbeat_for(self, lease_ms: int) -> int:
        """Return the time between renewals of a lease of ``lease_ms``: as set, if that is safe for this lease."""
        if self.heartbeat_ms is not None and self.heartbeat_ms * 2 <= lease_ms:
            return self.heartbeat_ms
        return lease_ms // 3

    @property
    def health_address(self) -> str:
        """Address that the health server listens on."""
        return self.health_host or os.environ.get("POD_IP") or "127.0.0.1"


def _weighted(given: str) -> tuple[str, int]:
    """Return name and weight of ``NAME`` or ``NAME:WEIGHT``."""
    name, colon, weight = given.partition(":")
    if colon and not (weight.isascii() and weight.isdigit() and 1 <= int(weight) <= MAX_WEIGHT):
        raise ValueError(
            f"weight {weight!r} of {name!r} is not a number from 1 to {MAX_WEIGHT}; give for example {name}:3"
        )
    return check_queue_name(name), int(weight or 1)
