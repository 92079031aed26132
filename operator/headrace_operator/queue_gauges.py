"""What the operator shows of each Queue: alerts must not depend on a worker that could tell.

Taken from the statuses that it builds, so it costs Redis and the API server nothing, and is as old as they are: about
30 s at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from headrace_operator.api.names import QueueKey
from headrace_operator.api.queue_status import QueueStatus

CONDITIONS: Final = ("Ready", "Stalled", "ConnectionReady", "Paused", "Draining", "DataLoss")
STATES: Final = ("ready", "scheduled", "retry", "leased", "parked", "dead")
"""Named as the workers' metric ``headrace_jobs`` names them."""


class QueueGauges(NamedTuple):
    """Of one Queue. ``queue``: its name in Redis. ``jobs``: by `STATES`. ``oldest_ready_at``: seconds since 1970.

    ``workers``: Pods that exist and that are wanted. ``true``: those of `CONDITIONS` that hold.
    """

    queue: str
    jobs: tuple[int, ...] | None
    oldest_ready_at: float | None
    workers: tuple[int, int] | None
    true: frozenset[str]


def gauges_of(queue: str, status: QueueStatus) -> QueueGauges:
    """Return what a status says."""
    depth, oldest = status.depth, status.oldest_ready_at
    jobs = None
    if depth is not None:
        jobs = (depth.ready, depth.scheduled, depth.retry, depth.in_flight, depth.parked, depth.dead)
    workers = None if status.replicas is None else (status.replicas, status.desired_replicas or 0)
    true = (condition.type for condition in status.conditions if condition.status == "True")
    return QueueGauges(
        queue, jobs, None if oldest is None else oldest.timestamp(), workers, frozenset(true) & frozenset(CONDITIONS)
    )


def families(shown: Mapping[QueueKey, QueueGauges]) -> Iterator[Metric]:
    """Yield the metrics of all Queues."""
    labels = ("namespace", "queue")
    jobs = _gauge("jobs", "Jobs by state, over all versions.", (*labels, "state"))
    oldest = _gauge("oldest_ready_timestamp_seconds", "When the oldest ready job was due; absent: none.", labels)
    workers = _gauge("workers", "Worker Pods that exist; absent: the Queue names no workers.", labels)
    wanted = _gauge("workers_desired", "Worker Pods that are wanted.", labels)
    condition = _gauge("condition", "1: the condition holds; 0: it does not, or is not known.", (*labels, "type"))
    for key, each in shown.items():
        names = (key.namespace, each.queue)
        for state, count in zip(STATES, each.jobs or (), strict=False):
            jobs.add_metric((*names, state), count)
        if each.oldest_ready_at is not None:
            oldest.add_metric(names, each.oldest_ready_at)
        if each.workers is not None:
            workers.add_metric(names, each.workers[0])
            wanted.add_metric(names, each.workers[1])
        for kind in CONDITIONS:
            condition.add_metric((*names, kind), float(kind in each.true))
    yield from (jobs, oldest, workers, wanted, condition)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headrace_operator_queue_{name}", text, labels=labels)
