"""Settings of the external scaler, from the environment (``HEADRACE_...``)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace.connection import ConnectionSettings


class KedaSettings(ConnectionSettings):
    """Where the queues are, and where KEDA reaches us."""

    keda_address: str = Field("0.0.0.0:9090", min_length=1, description="host:port that gRPC is served on.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Lowest level that is logged.")
