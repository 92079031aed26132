"""Which workers leave when there are too many."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.scaling import Leaving, Worker, leaving

workers = st.lists(
    st.builds(
        Worker,
        st.text("abcdef", min_size=1, max_size=4),
        ready=st.booleans(),
        in_flight=st.one_of(st.none(), st.integers(0, 5)),
        retired=st.booleans(),
        created=st.floats(0, 100),
    ),
    max_size=12,
    unique_by=lambda worker: worker.name,
)


@given(workers, st.integers(0, 12))
def test_QG6_O14_what_runs_a_job_is_never_stopped_and_enough_go_on(alive: list[Worker], taking: int) -> None:
    left = leaving(alive, taking)
    assert len(left.retired) == max(0, len(alive) - taking)
    assert set(left.stopped) <= set(left.retired)
    by_name = {worker.name: worker for worker in alive}
    assert all(not by_name[name].ready or not by_name[name].in_flight for name in left.stopped)


@given(workers, st.integers(0, 12), st.integers(0, 5))
def test_those_that_leave_are_chosen_once(alive: list[Worker], taking: int, running: int) -> None:
    """The same is asked for again: nobody else is chosen, whatever they and the others run by then."""
    chosen = set(leaving(alive, taking).retired)
    later = [replace(worker, retired=worker.name in chosen, in_flight=running) for worker in alive]
    assert set(leaving(later, taking).retired) == chosen


def test_QG6_two_of_four_are_idle_and_go_first() -> None:
    alive = [Worker("a", in_flight=3), Worker("b"), Worker("c", in_flight=1), Worker("d")]
    assert leaving(alive, 2) == Leaving(("b", "d"), ("b", "d"))
    assert leaving(alive, 1) == Leaving(("b", "d", "c"), ("b", "d"))


def test_O42_what_has_not_started_goes_before_what_works() -> None:
    alive = [Worker("old", created=1.0), Worker("new", ready=False, created=2.0), Worker("busy", in_flight=9)]
    assert leaving(alive, 2).stopped == ("new",)


def test_the_newest_of_the_idle_go_first() -> None:
    alive = [Worker("old", created=1.0), Worker("new", created=2.0), Worker("silent", in_flight=None, created=1.5)]
    assert leaving(alive, 2).stopped == ("new",)
    assert leaving(alive, 1).stopped == ("new", "silent")


def test_one_that_was_chosen_is_taken_back_when_more_are_needed() -> None:
    alive = [Worker("a", in_flight=5, retired=True), Worker("b", in_flight=1, retired=True), Worker("c", in_flight=2)]
    assert leaving(alive, 2).retired == ("b",)
    assert leaving(alive, 3) == Leaving()
