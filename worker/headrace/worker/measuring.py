"""Measures what only metrics need: a worker without metrics runs none of this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, cast

from headrace.stores.base import Store
from headrace.worker.batches import Group
from headrace.worker.execution import Executor
from headrace.worker.leases import Execution
from headrace.worker.metrics import Metrics, NoMetrics
from headrace.worker.settings import WorkerSettings

MEASURED_CALLS = ("claim", "ack", "fail", "release", "park")


class MeasuringExecutor(Executor):
    """Notes when each run ends."""

    def _free(self, execution: Execution) -> None:
        execution.ended_at = ended_at = monotonic()
        if type(execution) is Group:
            for member in execution.members:
                member.ended_at = ended_at
        Executor._free(self, execution)  # by name: super() costs as much as the rest


class _MeasuredStore:
    """Everything but the measured calls goes to the store itself."""

    def __init__(self, store: Store, told: Callable[[str, float], None]) -> None:
        self._store = store
        for name in MEASURED_CALLS:
            setattr(self, name, _measured(name, getattr(store, name), told))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def measured(store: Store, told: Callable[[str, float], None]) -> Store:
    """Return the store with ``told(call, seconds)`` called after each answered call of a worker's claims and results.

    Clones are not measured: they may be in use in another thread.
    """
    return cast(Store, _MeasuredStore(store, told))


def _measured(
    name: str, call: Callable[..., Awaitable[Any]], told: Callable[[str, float], None]
) -> Callable[..., Awaitable[Any]]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        began = monotonic()
        answer = await call(*args, **kwargs)
        told(name, monotonic() - began)
        return answer

    return timed


def metrics_for(settings: WorkerSettings) -> Metrics:
    """Return what takes a worker's counts, as its settings say."""
    if settings.metrics == "none":
        return NoMetrics()
    from headrace.telemetry import open_metrics

    return open_metrics(settings.metrics)
