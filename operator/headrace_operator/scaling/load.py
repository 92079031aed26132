"""From the statistics of a queue to what a decision is made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.settings import QueueSettings, partition_limits
from headrace.stores.base import HORIZONS, Depth, Statistics
from headrace.topology import Topology
from headrace_operator.scaling.estimates import cold_start
from headrace_operator.scaling.inputs import Load
from headrace_operator.scaling.record import Record


@dataclass(frozen=True, slots=True)
class Measured:
    """A load, and what is to be remembered of having measured it."""

    load: Load
    record: Record


def measured(stats: Statistics, record: Record, *, keep_warm: float, template: str) -> Measured:
    """Read ``stats`` into a load; versions that are being removed hold nothing that counts any more.

    ``keep_warm``: seconds ahead for which delayed jobs keep a worker. ``template``: names the Pods' present template.
    """
    now = stats.now
    versions = [depth for depth in stats.versions.values() if depth.state != "removing"]
    arrived = stats.counters["arrived"]
    later = replace(
        record,
        arrivals=record.arrivals.read(now, arrived),
        service=record.service.read(stats.counters["service_jobs"], stats.counters["service_ms"]),
    )
    start = cold_start(record.cold_starts)
    oldest = min((depth.oldest_ready_at for depth in versions if depth.oldest_ready_at is not None), default=None)
    parked = sum(depth.parked for depth in versions)
    load = Load(
        now,
        ready=sum(depth.ready for depth in versions),
        in_flight=sum(depth.leased for depth in versions),
        due_in_cold_start=sum(_due(depth, start, now) for depth in versions),
        due_in_warm=sum(_due(depth, keep_warm, now) for depth in versions),
        oldest_ready=None if oldest is None else max(0, now - oldest) / 1000,
        arrivals_per_second=later.arrivals.per_second,
        arrived=record.arrivals.at_ms is not None and arrived > record.arrivals.counter,
        service=later.service.mean,
        untried=parked if template != record.tried else 0,
    )
    return Measured(load, later)


def next_due_ms(stats: Statistics) -> int | None:
    """Return when the next delayed job is due, by the server's clock; None if none waits."""
    return min((depth.next_due_at for depth in stats.versions.values() if depth.next_due_at is not None), default=None)


def max_in_flight(settings: QueueSettings, topology: Topology) -> int | None:
    """Return how many jobs the limits let run at the same time, over all versions that jobs are taken from."""
    if settings.max_in_flight is None:
        return None
    shares = (
        (version.partitions, partition_limits(settings, version.partitions).in_flight or 0)
        for version in topology.versions.values()
        if version.state != "removing"
    )
    return sum(partitions * share for partitions, share in shares)


def _due(depth: Depth, seconds: float, now: int) -> int:
    """Return the delayed jobs due within ``seconds``: exact if none is, else those within the next larger horizon."""
    if depth.next_due_at is None or depth.next_due_at > now + seconds * 1000 or seconds <= 0:
        return 0
    counted = zip(HORIZONS, depth.due_within, strict=False)
    return max(1, next((jobs for horizon, jobs in counted if horizon >= seconds), depth.scheduled + depth.retry))
