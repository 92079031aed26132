"""How many workers: every rule of the policy by itself, and what holds for any input."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_operator.scaling import Decision, History, Inputs, Limit, Load, Pods, Rules, decide

NOW = 1_000_000_000
LONG_AGO = History(active_ms=0, watched_ms=0, looked_ms=NOW - 2_000)


def load(ready: int | None = 0, running: int | None = 0, **more: Any) -> Load:
    return Load(NOW, ready, running, **more)


def pods(replicas: int, slots: int | None = 1, **more: Any) -> Pods:
    return Pods(replicas, more.pop("ready", replicas), slots=slots, **more)


def decided(
    load: Load | None, pods: Pods, rules: Rules | None = None, history: History = LONG_AGO, **more: Any
) -> Decision:
    return decide(Inputs(rules or Rules(), load, pods, history, **more))


figures = st.one_of(st.none(), st.integers(-5, 100_000))
seconds = st.one_of(st.none(), st.floats(-10, 1e5), st.just(math.nan), st.just(math.inf))
loads = st.builds(
    Load,
    now_ms=st.just(NOW),
    ready=figures,
    in_flight=figures,
    due_in_cold_start=figures,
    due_in_warm=figures,
    oldest_ready=seconds,
    arrivals_per_second=seconds,
    arrived=st.booleans(),
    service=seconds,
    untried=st.integers(0, 5),
)
sound_loads = st.builds(
    Load,
    now_ms=st.just(NOW),
    ready=st.integers(0, 10_000),
    in_flight=st.integers(0, 10_000),
    due_in_cold_start=st.integers(0, 10_000),
    due_in_warm=st.integers(0, 10_000),
    oldest_ready=st.floats(0, 10_000),
    arrivals_per_second=st.floats(0, 10_000),
    arrived=st.booleans(),
    service=st.floats(0.001, 1_000),
    untried=st.integers(0, 5),
)
rules_of_any_mode = st.builds(
    lambda low, more, **rest: Rules(min_replicas=low, max_replicas=max(1, low + more), **rest),
    low=st.integers(0, 20),
    more=st.integers(0, 100),
    mode=st.sampled_from(["Backlog", "Backlog", "Backlog", "Manual", "Disabled"]),
    target_wait=st.floats(0.1, 600),
    idle=st.floats(0, 600),
    headroom=st.floats(0, 10),
    failure_threshold=st.integers(1, 10),
    fallback_replicas=st.integers(0, 200),
    held=st.booleans(),
    rate_per_second=st.one_of(st.none(), st.floats(0.01, 1000)),
    max_in_flight=st.one_of(st.none(), st.integers(1, 500)),
)
rules_of_backlog = rules_of_any_mode.map(lambda rules: replace(rules, mode="Backlog"))
any_pods = st.builds(
    Pods,
    replicas=st.integers(0, 150),
    ready=st.integers(0, 150),
    pending=st.integers(0, 150),
    slots=st.one_of(st.none(), st.integers(1, 64)),
    cold_start=st.floats(1, 300),
    rolling_out=st.booleans(),
)
histories = st.builds(
    History,
    wanted=st.lists(st.tuples(st.integers(NOW - 90_000, NOW), st.integers(0, 150)), max_size=4).map(tuple),
    active_ms=st.one_of(st.none(), st.integers(0, NOW)),
    stepped_down_ms=st.one_of(st.none(), st.integers(0, NOW)),
    watched_ms=st.one_of(st.none(), st.integers(0, NOW)),
    looked_ms=st.one_of(st.none(), st.integers(NOW - 60_000, NOW)),
)
failures = st.integers(0, 10)


# ---- what holds for any input ------------------------------------------------------------------------------------


@given(st.none() | loads, any_pods, rules_of_backlog, histories, failures)
def test_O30_any_input_gives_a_number_within_the_bounds_and_a_reason(
    load: Load | None, pods: Pods, rules: Rules, history: History, failures: int
) -> None:
    decision = decide(Inputs(rules, load, pods, history, failures))
    assert rules.min_replicas <= decision.replicas <= rules.max_replicas
    assert decision.reason
    assert decision.wanted is None or rules.min_replicas <= decision.wanted <= rules.max_replicas


@given(st.none() | loads, any_pods, rules_of_any_mode, histories, failures)
def test_a_mode_that_leaves_the_number_to_somebody_else_is_left_alone(
    load: Load | None, pods: Pods, rules: Rules, history: History, failures: int
) -> None:
    for mode in ("Manual", "Disabled"):
        decision = decide(Inputs(replace(rules, mode=mode), load, pods, history, failures=failures))
        assert (decision.replicas, decision.limited_by, decision.wanted) == (pods.replicas, mode, None)


@given(sound_loads, any_pods, rules_of_backlog, histories, st.integers(1, 10_000))
def test_a_larger_backlog_never_gives_fewer(load: Load, pods: Pods, rules: Rules, history: History, more: int) -> None:
    before = decide(Inputs(rules, load, pods, history))
    larger = replace(load, ready=(load.ready or 0) + more)
    assert decide(Inputs(rules, larger, pods, history)).replicas >= before.replicas


@given(sound_loads, any_pods, rules_of_backlog, histories, st.floats(0, 10_000))
def test_a_longer_wait_never_gives_fewer(load: Load, pods: Pods, rules: Rules, history: History, more: float) -> None:
    before = decide(Inputs(rules, load, pods, history))
    later = replace(load, oldest_ready=(load.oldest_ready or 0) + more)
    assert decide(Inputs(rules, later, pods, history)).replicas >= before.replicas


@given(sound_loads, any_pods, rules_of_backlog, histories)
def test_scaling_up_waits_for_nothing(load: Load, pods: Pods, rules: Rules, history: History) -> None:
    """What has been or a rollout may keep workers; neither withholds one that is wanted."""
    fresh = decide(Inputs(rules, load, pods, History()))
    calm = replace(pods, rolling_out=False)
    for other in (decide(Inputs(rules, load, pods, history)), decide(Inputs(rules, load, calm, History()))):
        if fresh.replicas > pods.replicas:
            assert other.replicas == fresh.replicas
    if fresh.wanted is not None and fresh.wanted > pods.replicas and not rules.held:
        assert fresh.replicas == fresh.wanted


@given(sound_loads, any_pods, rules_of_backlog, histories)
def test_a_step_down_is_half_at_most_and_leaves_what_runs_and_what_was_wanted(
    load: Load, pods: Pods, rules: Rules, history: History
) -> None:
    decision = decide(Inputs(rules, load, pods, history))
    if decision.replicas < pods.replicas <= rules.max_replicas:
        assert decision.replicas >= pods.replicas // 2
        assert decision.replicas >= history.peak(NOW)
        assert not pods.rolling_out
        assert history.watched(NOW) >= 60
        assert history.since_step_down(NOW) >= 30
        assert pods.slots is not None
        assert decision.replicas >= min(rules.max_replicas, math.ceil((load.in_flight or 0) / pods.slots))
        if decision.replicas == 0:
            assert pods.replicas == 1
            assert history.idle(NOW) >= rules.idle
            assert load.in_flight in (0, None)


@given(sound_loads, rules_of_backlog, st.integers(1, 64), st.integers(0, 150))
def test_E3_never_more_slots_than_there_are_jobs_and_one(load: Load, rules: Rules, slots: int, replicas: int) -> None:
    rules = replace(rules, min_replicas=0)
    work = (load.ready or 0) + (load.in_flight or 0) + (load.due_in_cold_start or 0)
    decision = decided(load, pods(replicas, slots), rules)
    assert decision.wanted is not None
    assert decision.wanted <= max(1, math.ceil((work + 1) / slots))


@settings(max_examples=40)
@given(sound_loads, any_pods, rules_of_backlog)
def test_no_flapping_under_a_load_that_stays(load: Load, pods: Pods, rules: Rules) -> None:
    """The same load, looked at every 2 s for ten minutes: the number turns at most once, from up to down."""
    history, numbers = LONG_AGO, [pods.replicas]
    for look in range(300):
        now = replace(load, now_ms=NOW + look * 2_000)
        current = replace(pods, replicas=numbers[-1])
        decision = decide(Inputs(rules, now, current, history))
        assert decision.wanted is not None or pods.slots is None
        history = history.noted(
            now.now_ms,
            wanted=decision.wanted or 0,
            active=load.active,
            stepped_down=decision.replicas < numbers[-1],
        )
        numbers.append(decision.replicas)
    directions = [after > before for before, after in pairwise(numbers) if after != before]
    assert all(directions) or not any(directions)
    assert len(set(numbers[-60:])) == 1


@given(st.lists(st.integers(0, 2_000), min_size=30, max_size=60), st.integers(1, 16))
def test_no_flapping_under_a_load_that_swings(backlogs: list[int], slots: int) -> None:
    """Whatever the backlog does, no worker that was given up is asked for again within the window's minute."""
    history, replicas, fell_at = History(), 0, -math.inf
    for look, ready in enumerate(backlogs):
        now = NOW + look * 10_000
        seen = Load(now, ready, 0)
        decision = decided(seen, pods(replicas, slots), Rules(max_replicas=100), history)
        if decision.replicas < replicas:
            # A minute's peak lies below the number that was kept before.
            assert all(decided(replace(seen, ready=r), pods(0, slots), Rules(max_replicas=100)).replicas
                       <= decision.replicas for r in backlogs[max(0, look - 5) : look + 1])  # fmt: skip
            assert now - fell_at >= 30_000
            fell_at = now
        history = history.noted(
            now, wanted=decision.wanted or 0, active=seen.active, stepped_down=decision.replicas < replicas
        )
        replicas = decision.replicas


# ---- the rules one by one ----------------------------------------------------------------------------------------


def test_E3_one_job_that_is_stuck_does_not_raise_fifty_pods() -> None:
    stuck = load(1, oldest_ready=86_400.0, service=600.0, arrivals_per_second=0.0)
    for replicas in (1, 2, 10, 50):
        decision = decided(stuck, pods(replicas), Rules(max_replicas=50))
        assert decision.wanted is not None
        assert decision.wanted <= 2


def test_E3_a_paused_queue_with_a_backlog_adds_nothing_and_gives_its_workers_up() -> None:
    backlog = load(500, due_in_cold_start=100, oldest_ready=999.0, arrivals_per_second=50.0, arrived=True)
    held = Rules(held=True)
    for replicas in (0, 1, 3):
        assert decided(backlog, pods(replicas), held).replicas <= replicas
    assert decided(backlog, pods(1), held).replicas == 0
    assert decided(backlog, pods(0), replace(held, min_replicas=2)).replicas == 2
    assert decided(backlog, pods(0), Rules()).replicas == 10


def test_E4_what_is_due_next_week_adds_nothing() -> None:
    next_week = load(0, due_in_cold_start=0, due_in_warm=0, arrivals_per_second=0.0)
    assert decided(next_week, pods(0)).replicas == 0


def test_QC7_what_is_due_soon_counts_before_it_is_ready() -> None:
    cliff = load(0, due_in_cold_start=10_000, service=1.0)
    assert decided(cliff, pods(1, slots=16), Rules(max_replicas=50)).replicas == 50
    assert decided(load(0, due_in_cold_start=1), pods(0)).replicas == 1


def test_E3_parked_jobs_raise_one_worker_when_there_is_a_template_that_was_not_tried() -> None:
    assert decided(load(0, untried=300), pods(0)).replicas == 1
    assert decided(load(0, untried=0), pods(0)).replicas == 0


def test_QC7_what_is_to_be_kept_warm_for_keeps_one() -> None:
    decision = decided(load(0, due_in_warm=1), pods(1))
    assert (decision.replicas, decision.wanted) == (1, 1)


def test_O14_QG7_nothing_waits_but_work_runs() -> None:
    assert decided(load(0, 1), pods(1)).replicas == 1
    decision = decided(load(0, 40), pods(8, slots=8))
    assert (decision.replicas, decision.limited_by) == (5, Limit.RUNNING)
    decision = decided(load(0, 64), pods(8, slots=8))
    assert (decision.replicas, decision.limited_by) == (8, Limit.RUNNING)


def test_O15_pods_that_are_pending_were_asked_for_and_count() -> None:
    backlog = load(100, oldest_ready=5.0, service=1.0)
    first = decided(backlog, pods(0))
    assert first.replicas == 10
    waiting = decided(backlog, Pods(first.replicas, ready=0, pending=10))
    assert waiting.replicas == first.replicas
    # What doubles when jobs wait too long are Pods that work, not those that were asked for.
    late = load(1000, oldest_ready=100.0, service=0.01, arrivals_per_second=1.0)
    assert decided(late, Pods(8, ready=2, pending=6), Rules(max_replicas=50)).wanted == 4


def test_O16_five_partitions_of_one_job_each_never_get_a_sixth() -> None:
    rules = Rules(max_replicas=50, max_in_flight=5)
    decision = decided(load(10_000, service=10.0), pods(1), rules)
    assert (decision.replicas, decision.limited_by) == (5, Limit.MAX_IN_FLIGHT)
    assert decided(load(10_000), pods(1, slots=16), rules).replicas == 1


def test_O17_close_to_the_maximum_is_not_close_enough() -> None:
    decision = decided(load(95, service=1.0, oldest_ready=1.0), pods(9), Rules(max_replicas=10))
    assert decision.replicas == 10


def test_jobs_that_wait_too_long_double_the_workers_at_most() -> None:
    late = load(10_000, 4, oldest_ready=15.0, service=0.001)
    assert decided(late, pods(4), Rules(max_replicas=50)).replicas == 6
    assert decided(replace(late, oldest_ready=1e6), pods(4), Rules(max_replicas=50)).replicas == 8


def test_a_limited_rate_needs_only_so_many() -> None:
    decision = decided(load(10_000, service=2.0), pods(1), Rules(max_replicas=50, rate_per_second=5.0))
    assert (decision.replicas, decision.limited_by) == (12, Limit.RATE)


def test_what_arrives_is_served_with_headroom() -> None:
    steady = load(10, 100, arrivals_per_second=100.0, service=1.0, arrived=True)
    rules = Rules(max_replicas=1000, headroom=1.0)
    assert decided(steady, pods(100), rules).wanted == 111
    assert decided(steady, pods(100), replace(rules, headroom=0.0)).wanted == 101


@pytest.mark.parametrize(("at", "kept"), [(NOW - 59_000, 8), (NOW - 61_000, 4)])
def test_O18_steps_down_wait_a_minute_and_halve(at: int, kept: int) -> None:
    history = replace(LONG_AGO, wanted=((at, 8),))
    decision = decided(load(0), pods(8), history=history)
    assert decision.replicas == kept
    assert decision.limited_by is (Limit.WINDOW if kept == 8 else Limit.STEP)


def test_O18_zero_is_the_last_of_many_steps() -> None:
    history, numbers, now = LONG_AGO, [20], NOW
    while numbers[-1]:
        decision = decided(Load(now, 0, 0), pods(numbers[-1]), Rules(max_replicas=20), history)
        history = history.noted(now, wanted=0, active=False, stepped_down=decision.replicas < numbers[-1])
        if decision.replicas != numbers[-1]:
            numbers.append(decision.replicas)
        now += 2_000
    assert numbers == [20, 10, 5, 3, 2, 1, 0]
    assert now - NOW >= 5 * 30_000


def test_O18_a_step_down_waits_for_the_one_before() -> None:
    just = replace(LONG_AGO, stepped_down_ms=NOW - 29_000)
    assert decided(load(0), pods(8), history=just).limited_by is Limit.STEP
    assert decided(load(0), pods(8), history=replace(just, stepped_down_ms=NOW - 30_000)).replicas == 4


def test_O19_a_queue_that_was_never_looked_at_is_not_idle() -> None:
    assert decided(load(0), pods(1), history=History()).replicas == 1
    history, numbers = History(), {}
    for second in range(0, 100, 2):
        now = NOW + second * 1_000
        decision = decided(Load(now, 0, 0), pods(1), history=history)
        history = history.noted(now, wanted=0, active=False, stepped_down=False)
        numbers[second] = decision.replicas
    assert {second for second, number in numbers.items() if number} == set(range(0, 60, 2))
    recent = replace(LONG_AGO, active_ms=NOW - 59_000)
    assert decided(load(0), pods(1), history=recent).limited_by is Limit.IDLE
    assert decided(load(0), pods(1), replace(Rules(), idle=30.0), recent).replicas == 0


def test_O19_nothing_is_given_up_before_the_queue_was_watched_for_a_minute() -> None:
    def decided_at(watched_ms: int | None, looked_ms: int | None) -> Decision:
        history = History(active_ms=0, watched_ms=watched_ms, looked_ms=looked_ms)
        return decided(load(0), pods(8), history=history)

    assert decided_at(None, None).limited_by is Limit.WATCHED_BRIEFLY
    assert decided_at(NOW - 59_000, NOW - 2_000).limited_by is Limit.WATCHED_BRIEFLY
    assert decided_at(NOW - 60_000, NOW - 2_000).replicas == 4
    # What was wanted while nobody looked is not known; a successor that begins at once goes on where the other ended.
    assert decided_at(0, NOW - 31_000).limited_by is Limit.WATCHED_BRIEFLY
    assert decided_at(0, NOW - 30_000).replicas == 4
    assert decided(load(100), pods(8), history=History()).replicas == 10


def test_no_worker_is_given_up_during_a_rollout() -> None:
    assert decided(load(0), pods(8, rolling_out=True)).limited_by is Limit.ROLLOUT
    assert decided(load(100), pods(8, rolling_out=True)).replicas == 10


def test_O12_O13_one_failed_reading_holds_and_several_fall_back_upward_only() -> None:
    rules = Rules(failure_threshold=3, fallback_replicas=4)
    for failures in (1, 2):
        for replicas in (0, 2, 8):
            assert decided(None, pods(replicas), rules, failures=failures).replicas == replicas
    for failures in (3, 100):
        for replicas, expected in ((0, 4), (2, 4), (8, 8)):
            decision = decided(None, pods(replicas), rules, failures=failures)
            assert (decision.replicas, decision.limited_by) == (expected, Limit.FALLBACK)
    assert decided(None, pods(0), replace(rules, max_replicas=2), failures=3).replicas == 2


@pytest.mark.parametrize(
    "broken", [load(None, 0), load(-1, 0), load(0, None), load(0, -3), load(0, 0, due_in_cold_start=None)]
)
def test_O30_an_unknown_backlog_is_not_taken_for_an_empty_one(broken: Load) -> None:
    assert decided(broken, pods(1), failures=1).replicas == 1
    assert decided(broken, pods(1), failures=1).limited_by is Limit.METRICS_UNKNOWN


@pytest.mark.parametrize("figure", [None, -1.0, math.nan, math.inf])
def test_O30_estimates_that_are_absent_or_absurd_count_as_usual(figure: float | None) -> None:
    usual = decided(load(50), pods(0))
    strange = load(50, oldest_ready=figure, arrivals_per_second=figure, service=figure)
    assert decided(strange, pods(0)).replicas == usual.replicas


def test_without_knowing_what_a_pod_can_do_one_is_started_and_none_given_up() -> None:
    for replicas, ready, expected in ((0, 5, 1), (0, 0, 0), (3, 0, 3), (3, 500, 3)):
        decision = decided(load(ready), pods(replicas, slots=None))
        assert (decision.replicas, decision.limited_by) == (expected, Limit.SLOTS_UNKNOWN)


def test_a_lowered_maximum_holds_at_once() -> None:
    busy = load(100, 20)
    history = History(((NOW, 20),), active_ms=NOW, stepped_down_ms=NOW)
    decision = decided(busy, pods(20, rolling_out=True), Rules(max_replicas=5), history)
    assert (decision.replicas, decision.limited_by) == (5, Limit.MAX_REPLICAS)


def test_O50_what_was_wanted_for_an_old_generation_is_forgotten_with_the_window() -> None:
    history = replace(LONG_AGO, wanted=((NOW - 70_000, 40), (NOW - 30_000, 3)))
    assert decided(load(0), pods(10), history=history).replicas == 5
    assert history.noted(NOW, wanted=2, active=True, stepped_down=False).wanted == ((NOW - 30_000, 3), (NOW, 2))
