"""Metrics for Prometheus: a collector that shows what `counts` has counted. Needs ``headrace[prometheus]``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.stores.protocols.statistics import DepthName
from headrace.telemetry.counts import BUCKETS, CountingMetrics, Histogram, copied
from headrace.worker.metrics import Leading, Readings

_LEADING: tuple[tuple[str, str, Callable[[Leading], float]], ...] = (
    ("headrace_is_leader", "Whether a worker here leads the queue.", lambda each: float(each.epoch > 0)),
    ("headrace_leader_epoch", "Epoch of a leader here, 0: none leads.", lambda each: each.epoch),
    ("headrace_leader_rank", "Rank of its lock: lease 3, mongo 2, redis and memory 1.", lambda each: each.rank),
    ("headrace_leader_valid_seconds", "Time until its right ends unless renewed.", lambda each: each.valid_seconds),
)
_STATES: tuple[DepthName, ...] = ("ready", "scheduled", "retry", "leased", "parked", "dead")
_BOUNDS = (*(repr(bound) for bound in BUCKETS), "+Inf")


class PrometheusMetrics(CountingMetrics, Collector):
    """Metrics of a worker, and a collector to register: ``REGISTRY.register(metrics)``.

    One may serve several workers of a process. The worker's health server shows it at ``/metrics``.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> tuple[str, bytes]:
        """Return content type and body of the text format; may be called in another thread."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing, so that nothing is collected when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, as prometheus_client asks for it."""
        finished = CounterMetricFamily(
            "headrace_jobs_finished", "Runs of jobs whose outcome is recorded.", labels=("queue", "type", "outcome")
        )
        for labels, jobs in self.finished().items():
            finished.add_metric(labels, jobs)
        yield finished
        yield _by_queue("headrace_claims", "Jobs claimed.", self.claims)
        yield _by_queue(
            "headrace_leases_expired", "Jobs taken back because their lease had ended, whoever held it.", self.expired
        )
        yield _by_queue("headrace_leases_lost", "Jobs whose lease a worker here has lost.", self.leases_gone)
        yield _by_queue("headrace_jobs_poisoned", "Jobs dead: their worker was lost once too often.", self.poison)
        yield _by_queue("headrace_acks_refused", "Jobs that finished after their lease was lost.", self.refused)
        yield CounterMetricFamily(
            "headrace_store_unanswered_calls", "Calls that the store did not answer.", value=self.unanswered
        )
        yield _histograms(
            "headrace_start_delay_seconds",
            "Time from when a job was due to the start of its first run.",
            ("queue",),
            (((queue,), each) for queue, each in copied(self.start_delays).items()),
        )
        yield _histograms(
            "headrace_process_duration_seconds",
            "Time that handlers ran.",
            ("queue", "type"),
            self.durations().items(),
        )
        yield _histograms(
            "headrace_redis_script_duration_seconds",
            "Time from sending a script to its answer, as a worker sees it.",
            ("script",),
            (((call,), each) for call, each in copied(self.calls).items()),
        )
        readings = self.readings()
        yield from self._election(readings)
        yield from self._gauges(readings)

    def _election(self, readings: list[Readings]) -> Iterator[Metric]:
        yield _labelled("headrace_leader_terms_ended", "Terms of workers here as leader.", "reason", self.terms)
        yield _labelled("headrace_leader_moves", "Changes of a leader to another lock.", "direction", self.moves)
        yield _by_queue("headrace_leader_fenced", "Tokens of leaders that their fence refused.", self.fenced)
        yield _histograms(
            "headrace_leader_renew_duration_seconds",
            "Time of a renewal of the lock that a worker leads with.",
            ("queue", "backend"),
            copied(self.renewals).items(),
        )
        yield _histograms(
            "headrace_leader_duty_duration_seconds",
            "Time of the runs of a leader's duties.",
            ("queue", "duty"),
            copied(self.duties).items(),
        )
        yield _labelled("headrace_leader_duty_failures", "Runs of duties that failed.", "duty", self.failed_duties)
        yield _by_queue("headrace_audited_partitions", "Partitions that a leader here looked through.", self.audits)
        yield _by_queue("headrace_invariant_violations", "What no step leaves behind, found there.", self.violations)
        fires = CounterMetricFamily(
            "headrace_schedule_times",
            "Times of schedules, by what became of them.",
            labels=("queue", "schedule", "outcome"),
        )
        for labels, times in copied(self.fires).items():
            fires.add_metric(labels, times)
        yield fires
        leading: dict[str, Leading] = {}
        for reading in readings:
            for queue, found in reading.leading.items():
                leading[queue] = max(found, leading.get(queue, found))
        for name, text, value in _LEADING:
            gauge = GaugeMetricFamily(name, text, labels=("queue",))
            for queue, each in leading.items():
                gauge.add_metric((queue,), value(each))
            yield gauge
        yield from self._queues({queue for queue, each in leading.items() if each.epoch > 0})

    def _queues(self, led: set[str]) -> Iterator[Metric]:
        """Yield what was measured of the queues that a worker here leads: nobody else shows it."""
        jobs = GaugeMetricFamily("headrace_jobs", "Jobs by state, over all versions.", labels=("queue", "state"))
        age = GaugeMetricFamily(
            "headrace_oldest_ready_age_seconds", "Since when the oldest ready job is due; 0: none.", labels=("queue",)
        )
        dropped = CounterMetricFamily(
            "headrace_dead_dropped", "Dead letters dropped beyond the queue's limit.", labels=("queue",)
        )
        for queue, (statistics, at) in copied(self.surveys).items():
            if queue in led:
                for state in _STATES:
                    jobs.add_metric((queue, state), statistics.total(state))
                oldest = statistics.oldest_ready_at
                since = 0.0 if oldest is None else (statistics.now - oldest) / 1000 + self.clock() - at
                age.add_metric((queue,), max(0.0, since))
                dropped.add_metric((queue,), statistics.counters["dead_dropped"])
        yield from (jobs, age, dropped)

    def _gauges(self, readings: list[Readings]) -> Iterator[Metric]:
        slots = GaugeMetricFamily("headrace_slots", "Places for handlers.", labels=("state",))
        busy = sum(each.busy for each in readings)
        slots.add_metric(("busy",), busy)
        slots.add_metric(("free",), max(0, sum(each.slots for each in readings) - busy))
        yield slots
        if readings:
            yield GaugeMetricFamily(
                "headrace_last_claim_cycle_timestamp_seconds",
                "When the claim loop last did what it should; of several workers the one that is furthest behind.",
                value=self.clock() - max(each.cycle_age for each in readings),
            )
        if ratios := [each.memory_ratio for each in readings if each.memory_ratio is not None]:
            yield GaugeMetricFamily(
                "headrace_redis_memory_used_ratio",
                "Used part of maxmemory, of the server that is fullest; absent without a limit.",
                value=max(ratios),
            )
        if ahead := [each.clock_ahead for each in readings if each.clock_ahead is not None]:
            yield GaugeMetricFamily(
                "headrace_clock_ahead_seconds",
                "By how much the clock here is ahead of the store's; jobs do not depend on it.",
                value=max(ahead, key=abs),
            )


def _by_queue(name: str, text: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("queue",))
    for queue, count in copied(counts).items():
        family.add_metric((queue,), count)
    return family


def _labelled(name: str, text: str, label: str, counts: dict[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("queue", label))
    for values, count in copied(counts).items():
        family.add_metric(values, count)
    return family


def _histograms(
    name: str, text: str, labels: tuple[str, ...], found: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in found:
        counts = map(float, accumulate(list(histogram.buckets)))
        family.add_metric(values, list(zip(_BOUNDS, counts, strict=True)), histogram.total)
    return family
