"""From statistics to what a decision is made from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.settings import QueueSettings
from headrace.stores.base import COUNTERS, Depth, Statistics
from headrace.topology import Topology, Version
from headrace_operator.scaling import Arrivals, Load, Record, Service
from headrace_operator.scaling.load import max_in_flight, measured, next_due_ms

NOW = 1_000_000


def stats(*versions: Depth, now: int = NOW, **counters: int) -> Statistics:
    numbered = dict(enumerate(versions, 1))
    return Statistics(now, now - 500, 7, numbered, {**dict.fromkeys(COUNTERS, 0), **counters})


def load(*versions: Depth, record: Record | None = None, template: str = "t", warm: float = 0, **counters: int) -> Load:
    return measured(stats(*versions, **counters), record or Record(), keep_warm=warm, template=template).load


def depth(**sizes: Any) -> Depth:
    return Depth(sizes.pop("state", "active"), 4, **sizes)


def test_O44_active_and_draining_versions_count_together() -> None:
    found = load(
        depth(state="draining", ready=3, leased=2, oldest_ready_at=NOW - 9_000, parked=1),
        depth(ready=10, leased=5, oldest_ready_at=NOW - 4_000, scheduled=100),
    )
    assert (found.ready, found.in_flight, found.oldest_ready) == (13, 7, 9.0)
    assert found.active


def test_O45_a_version_that_is_being_removed_holds_nothing_that_counts() -> None:
    gone = depth(state="removing", ready=50, leased=50, oldest_ready_at=0, next_due_at=NOW, due_within=(9,) * 6)
    found = load(gone, depth())
    assert (found.ready, found.in_flight, found.due_in_cold_start, found.oldest_ready) == (0, 0, 0, None)
    assert not found.active


def test_E4_QC7_only_what_is_due_before_a_pod_could_start_counts() -> None:
    soon = depth(scheduled=9, next_due_at=NOW + 8_000, due_within=(3, 5, 6, 7, 8, 9))
    later = depth(scheduled=100_000, next_due_at=NOW + 604_800_000, due_within=(0, 0, 0, 0, 0, 0))
    assert load(soon).due_in_cold_start == 3
    assert load(later).due_in_cold_start == 0
    assert not load(later).active
    slow = Record(cold_starts=(45.0,))
    assert load(soon, record=slow).due_in_cold_start == 6  # within the next larger horizon
    assert load(replace(soon, next_due_at=NOW + 46_000), record=slow).due_in_cold_start == 0


def test_QC7_keep_warm_has_a_horizon_of_its_own() -> None:
    hourly = depth(scheduled=2, next_due_at=NOW + 500_000, due_within=(0, 0, 0, 0, 1, 2))
    assert load(hourly).due_in_warm == 0
    assert load(hourly, warm=600.0).due_in_warm == 1
    assert load(hourly, warm=7_200.0).due_in_warm == 2
    assert load(hourly, warm=499.0).due_in_warm == 0


def test_what_is_overdue_counts_although_nobody_has_promoted_it() -> None:
    overdue = depth(scheduled=1, retry=1, next_due_at=NOW - 5_000, due_within=(2, 2, 2, 2, 2, 2))
    assert load(overdue).due_in_cold_start == 2
    unmeasured = depth(scheduled=1, next_due_at=NOW - 5_000)
    assert load(unmeasured).due_in_cold_start == 1


def test_rates_come_from_growing_counters() -> None:
    record = Record(arrivals=Arrivals(NOW - 2_000, 100), service=Service(10, 1_000.0, 10, 0.1))
    found = measured(stats(depth(), arrived=120, service_jobs=20, service_ms=4_000), record, keep_warm=0, template="t")
    assert found.load.arrived
    assert found.load.arrivals_per_second == pytest.approx(10 * (1 - 2.718281828 ** (-0.2)), rel=1e-6)
    assert found.load.service == pytest.approx(0.2)
    again = measured(
        stats(depth(), now=NOW + 2_000, arrived=120, service_jobs=20, service_ms=4_000),
        found.record,
        keep_warm=0,
        template="t",
    )
    assert not again.load.arrived
    assert (again.load.arrivals_per_second or 0) < (found.load.arrivals_per_second or 0)


def test_the_first_look_takes_no_counter_for_a_burst() -> None:
    found = load(depth(), arrived=1_000_000)
    assert not found.arrived
    assert found.arrivals_per_second == 0.0


def test_E3_parked_jobs_count_until_the_present_template_was_tried() -> None:
    parked = depth(parked=12)
    assert load(parked, record=Record(tried="old"), template="new").untried == 12
    assert load(parked, record=Record(tried="new"), template="new").untried == 0
    assert not load(parked, record=Record(tried="new"), template="new").active


def test_the_next_due_time_is_that_of_any_version() -> None:
    assert next_due_ms(stats(depth(next_due_at=9), depth(next_due_at=5), depth())) == 5
    assert next_due_ms(stats(depth())) is None


def test_O16_the_in_flight_limit_is_that_of_all_partitions_that_jobs_are_taken_from() -> None:
    limited = QueueSettings(max_in_flight=5)
    versions = {1: Version(5, "draining"), 2: Version(10, "active"), 3: Version(5, "removing")}
    topology = Topology("mail", 3, 2, 3, versions, {}, limited)
    assert max_in_flight(limited, topology) == 5 + 10  # a partition runs one at least
    assert max_in_flight(QueueSettings(), topology) is None
