"""When a worker makes room for a job that must run alone, and when it asks for it."""

from __future__ import annotations

import pytest

from headrace.stores.bounds import ROOM_MS
from headrace.topology import PartitionRef
from headrace.worker.seclusion import ASK_SECONDS, Seclusion, Step, group_size

FIRST, SECOND = PartitionRef("emails", 1, 0), PartitionRef("emails", 1, 1)


@pytest.mark.parametrize(("slots", "size"), [(1, 1), (2, 2), (4, 2), (5, 3), (16, 4), (100, 10), (4096, 64)])
def test_V15_a_group_of_suspects_is_the_root_of_the_slots(slots: int, size: int) -> None:
    assert group_size(slots) == size


def test_a_worker_that_was_never_asked_goes_on() -> None:
    seclusion = Seclusion()
    assert not seclusion
    seclusion.answered(FIRST, asked=False, taken=False)
    assert not seclusion


def test_a_worker_that_is_idle_asks_at_once_and_a_busy_one_says_that_it_still_makes_room() -> None:
    seclusion = Seclusion()
    seclusion.answered(FIRST, asked=True, taken=False)
    assert seclusion
    assert seclusion.next(idle=True, now=100) == Step(FIRST, 0, alone=True)
    assert seclusion.next(idle=False, now=100) == Step(FIRST, 0, alone=False)
    seclusion.stepped(100)
    seclusion.answered(FIRST, asked=True, taken=False)
    assert seclusion.next(idle=True, now=101).wait == 0
    assert seclusion.next(idle=False, now=101) == Step(FIRST, ASK_SECONDS - 1, alone=False)
    assert 2 * ASK_SECONDS < ROOM_MS / 1000


def test_a_worker_goes_on_when_another_one_has_taken_the_job() -> None:
    seclusion = Seclusion()
    seclusion.answered(FIRST, asked=True, taken=False)
    seclusion.answered(FIRST, asked=False, taken=False)
    assert not seclusion


def test_after_one_job_the_next_is_asked_for_at_once() -> None:
    seclusion = Seclusion()
    seclusion.answered(FIRST, asked=True, taken=False)
    seclusion.stepped(100)
    seclusion.answered(FIRST, asked=False, taken=True, alone=True)
    assert seclusion.next(idle=True, now=100.1) == Step(FIRST, 0, alone=True)


def test_an_idle_worker_that_gets_nothing_though_one_waits_pauses() -> None:
    """A limit of the queue holds it back."""
    seclusion = Seclusion()
    seclusion.answered(FIRST, asked=True, taken=False)
    seclusion.stepped(100)
    seclusion.answered(FIRST, asked=True, taken=False, alone=True)
    assert seclusion.next(idle=True, now=100) == Step(FIRST, ASK_SECONDS, alone=True)


def test_partitions_are_served_in_the_order_in_which_they_asked() -> None:
    seclusion = Seclusion()
    seclusion.answered(SECOND, asked=True, taken=False)
    seclusion.answered(FIRST, asked=True, taken=False)
    assert seclusion.next(idle=True, now=100).ref == SECOND
    seclusion.answered(SECOND, asked=False, taken=False)
    assert seclusion.next(idle=True, now=100).ref == FIRST
