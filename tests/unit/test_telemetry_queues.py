"""What a leader shows of its queue."""

from __future__ import annotations

from headrace.stores.base import COUNTERS, Depth, Statistics
from headrace.telemetry.prometheus import PrometheusMetrics
from headrace.worker.metrics import Leading, Readings

NOW = 1_700_000_000_000


def measured(ready: int = 0, dead: int = 0, leased: int = 0) -> Statistics:
    counters = dict.fromkeys(COUNTERS, 0) | {"dead_dropped": 7}
    old = Depth("draining", 1, ready=1, oldest_ready_at=NOW - 5_000)
    return Statistics(NOW, NOW, 3, {1: old, 2: Depth("active", 2, ready=ready, dead=dead, leased=leased)}, counters)


def shown(metrics: PrometheusMetrics) -> dict[str, float]:
    lines = metrics.render()[1].decode().splitlines()
    wanted = ("headrace_jobs{", "headrace_oldest", "headrace_dead_dropped_total")
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line.startswith(wanted))
    }


def test_QD5_a_leader_shows_what_its_queue_holds_and_what_was_dropped() -> None:
    now, leading = 100.0, Leading(epoch=4)
    metrics = PrometheusMetrics(lambda: now)
    metrics.started(lambda: Readings(1, 0, 0.0, {"emails": leading}))
    assert shown(metrics) == {}
    metrics.surveyed("emails", measured(ready=2, dead=9, leased=1))
    now += 2.5
    assert shown(metrics) == {
        'headrace_jobs{queue="emails",state="ready"}': 3,
        'headrace_jobs{queue="emails",state="scheduled"}': 0,
        'headrace_jobs{queue="emails",state="retry"}': 0,
        'headrace_jobs{queue="emails",state="leased"}': 1,
        'headrace_jobs{queue="emails",state="parked"}': 0,
        'headrace_jobs{queue="emails",state="dead"}': 9,
        'headrace_oldest_ready_age_seconds{queue="emails"}': 7.5,
        'headrace_dead_dropped_total{queue="emails"}': 7,
    }


def test_who_leads_no_longer_shows_nothing() -> None:
    leading = {"emails": Leading(epoch=4)}
    metrics = PrometheusMetrics()
    metrics.started(lambda: Readings(1, 0, 0.0, leading))
    metrics.surveyed("emails", measured())
    assert shown(metrics)
    leading["emails"] = Leading()
    assert shown(metrics) == {}
