"""What scaling estimates and remembers."""

from __future__ import annotations

import pytest

from headrace_operator.scaling import Arrivals, History, Record, Service, cold_start


def test_arrivals_follow_a_burst_at_once_and_a_lull_slowly() -> None:
    arrivals = Arrivals().read(0, 500)
    assert arrivals.per_second == 0.0  # a counter that is seen for the first time says nothing
    arrivals = arrivals.read(10_000, 1_500)
    assert 60 < arrivals.per_second < 70
    assert arrivals.fast > arrivals.slow
    for second in range(11, 41):
        arrivals = arrivals.read(second * 1_000, 1_500)
    assert arrivals.slow > arrivals.fast
    assert 5 < arrivals.per_second < 15


def test_O30_a_counter_that_goes_back_is_no_arrival() -> None:
    arrivals = Arrivals().read(0, 1_000).read(1_000, 10)
    assert arrivals.per_second == 0.0
    assert arrivals.read(2_000, 20).per_second == pytest.approx(10 * (1 - 2.718281828 ** (-1 / 10)), rel=1e-6)
    assert arrivals.read(3_000, -5).counter == 0


def test_arrivals_survive_a_clock_that_goes_back() -> None:
    arrivals = Arrivals().read(10_000, 0).read(11_000, 100)
    behind = arrivals.read(5_000, 200)
    assert (behind.at_ms, behind.per_second) == (5_000, arrivals.per_second)
    assert behind.read(6_000, 300).fast > arrivals.fast
    assert arrivals.read(11_000, 100) == arrivals


def test_service_is_the_mean_of_about_the_last_200_runs() -> None:
    service = Service().read(10, 1_000.0)
    assert service.mean == pytest.approx(0.1)
    service = service.read(20, 4_000.0)
    assert service.mean == pytest.approx(0.2)
    service = service.read(5_020, 4_000.0 + 5_000 * 50.0)
    assert service.mean == pytest.approx(0.05)
    assert service.read(5_020, 999_999.0).mean == service.mean
    assert service.read(5_030, 0.0).mean == service.mean  # counters that were begun anew
    assert Service().mean is None


def test_a_cold_start_is_taken_for_a_slow_one_of_the_last() -> None:
    assert cold_start([]) == 10.0
    assert cold_start([4.0]) == 4.0
    assert cold_start([2.0] * 16 + [30.0] * 4) == 2.0
    assert cold_start([2.0] * 15 + [30.0] * 5) == 30.0
    assert cold_start([600.0] * 20 + [2.0] * 20) == 2.0
    assert cold_start([0.2]) == 1.0
    assert cold_start([9_999.0]) == 300.0
    assert cold_start([-1.0, float("nan")]) == 10.0


def test_the_window_forgets_what_is_old_or_exceeded() -> None:
    history = History()
    for at, wanted in ((0, 5), (1_000, 9), (2_000, 3), (3_000, 4)):
        history = history.noted(at, wanted=wanted, active=True, stepped_down=False)
    assert history.wanted == ((1_000, 9), (3_000, 4))
    assert history.peak(60_999) == 9
    assert history.peak(61_000) == 4
    assert history.peak(63_000) == 0


def test_a_record_survives_and_what_is_none_is_forgotten() -> None:
    record = Record(History(((1, 2), (3, 1)), 5, None), Arrivals(1, 2, 0.5, 0.25), Service(1, 2.0, 3, 0.4), (1.0, 2.0))
    assert Record.from_json(record.to_json()) == record
    assert Record.from_json(record.to_json().encode()) == record
    for text in (None, "", "[]", "{", '{"history": 3}', b"\xff"):
        assert Record.from_json(text) == Record()
