"""What leaves a process for those who watch it: metrics, traces, structured logs.

`counts` counts in arrays of its own; `prometheus` shows them; `otel` speaks to OpenTelemetry instead, and `tracing`
makes its spans; `logs` writes JSON lines. Only what is imported needs its extra.
"""

from __future__ import annotations

from typing import Literal

from headrace.errors import InvalidInput
from headrace.worker.metrics import Metrics


def open_metrics(kind: Literal["prometheus", "otel"]) -> Metrics:
    """Return the metrics of that name. Raises InvalidInput if its extra is not installed."""
    try:
        if kind == "prometheus":
            from headrace.telemetry.prometheus import PrometheusMetrics

            return PrometheusMetrics()
        from headrace.telemetry.otel import OpenTelemetryMetrics

        return OpenTelemetryMetrics()
    except ModuleNotFoundError as error:
        raise InvalidInput("metrics", f"{kind!r} needs {error.name}", f"install headrace[{kind}]") from None
