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
        started=st.booleans(),
        in_flight=st.integers(0, 5),
        retired=st.booleans(),
        quiet=st.booleans(),
        created=st.floats(0, 100),
    ),
    max_size=12,
    unique_by=lambda worker: worker.name,
)


@given(workers, st.integers(0, 12))
def test_QG6_O14_only_what_has_not_started_or_has_become_quiet_is_stopped(alive: list[Worker], taking: int) -> None:
    left = leaving(alive, taking)
    assert len(left.retired) == max(0, len(alive) - taking)
    assert set(left.stopped) <= set(left.retired)
    by_name = {worker.name: worker for worker in alive}
    stopped = [by_name[name] for name in left.stopped]
    assert all(not worker.started or (worker.retired and worker.quiet) for worker in stopped)


@given(workers, st.integers(0, 12), st.integers(0, 5))
def test_those_that_leave_are_chosen_once(alive: list[Worker], taking: int, running: int) -> None:
    """The same is asked for again: nobody else is chosen, whatever they and the others run by then."""
    chosen = set(leaving(alive, taking).retired)
    later = [replace(worker, retired=worker.name in chosen, in_flight=running) for worker in alive]
    assert set(leaving(later, taking).retired) == chosen


def test_QG6_two_of_four_are_idle_and_leave_first() -> None:
    alive = [Worker("a", in_flight=3), Worker("b"), Worker("c", in_flight=1), Worker("d")]
    assert leaving(alive, 2) == Leaving(("b", "d"))
    assert leaving(alive, 1) == Leaving(("b", "d", "c"))
    told = [replace(worker, retired=worker.name in "bd", quiet=worker.name == "d") for worker in alive]
    assert leaving(told, 2) == Leaving(("b", "d"), ("d",))


def test_O42_what_has_not_started_goes_at_once_and_before_what_works() -> None:
    alive = [Worker("old", created=1.0), Worker("new", started=False, created=2.0), Worker("busy", in_flight=9)]
    assert leaving(alive, 2) == Leaving(("new",), ("new",))


def test_the_newest_of_the_idle_go_first() -> None:
    alive = [Worker("old", created=1.0), Worker("new", created=2.0), Worker("middle", created=1.5)]
    assert leaving(alive, 2).retired == ("new",)
    assert leaving(alive, 1).retired == ("new", "middle")


def test_one_that_was_chosen_is_taken_back_when_more_are_needed() -> None:
    alive = [Worker("a", in_flight=5, retired=True), Worker("b", in_flight=1, retired=True), Worker("c", in_flight=2)]
    assert leaving(alive, 2).retired == ("b",)
    assert leaving(alive, 3) == Leaving()
