"""Which queue and partition a worker claims from next, and how many jobs: in turn, and by weight."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.topology import PartitionRef
from headrace.worker.hints import GAP_SECONDS, MAX_HINTS, Rotation


def ref(partition: int, queue: str = "a", version: int = 1) -> PartitionRef:
    return PartitionRef(queue, version, partition)


class Slots:
    """Slots that claims fill: each queue has more jobs than there are slots, and each job takes ``rounds`` rounds."""

    def __init__(self, weights: dict[str, int], slots: int, rounds: dict[str, int]) -> None:
        self.now = 0.0
        self.rotation = Rotation(weights, lambda: self.now)
        self.slots = slots
        self.rounds = rounds
        self.here: list[tuple[str, int]] = []
        self.started: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()

    def used(self) -> Counter[str]:
        return Counter(queue for queue, _ in self.here)

    def round(self, backlogged: list[str]) -> None:
        """Fill what is free, one claim at a time; then let one round pass."""
        while (free := self.slots - len(self.here)) > 0 and backlogged:
            for queue in backlogged:
                self.rotation.queues[queue].add(ref(0, queue))
            turn = self.rotation.take(free, self.slots, self.used)
            assert turn is not None
            assert 1 <= turn.limit <= free
            queue = turn.ref.queue
            self.here += [(queue, self.rounds[queue])] * turn.limit
            self.started[queue] += turn.limit
        self.busy += self.used()
        self.now += 1
        self.here = [(queue, left - 1) for queue, left in self.here if left > 1]


def take(rotation: Rotation, here: dict[str, int] | None = None) -> PartitionRef | None:
    turn = rotation.take(4, 16, lambda: here or {})
    return None if turn is None else turn.ref


async def test_hints_are_taken_oldest_first_without_repetition() -> None:
    rotation = Rotation({"a": 1})
    hints = rotation.queues["a"]
    for partition in (3, 1, 3, 2):
        hints.add(ref(partition))
    assert [take(rotation) for _ in range(4)] == [ref(3), ref(1), ref(2), None]
    assert not rotation


async def test_J11_versions_and_partitions_take_turns_whatever_is_in_them() -> None:
    """Leftovers go to the end, so the last of n partitions is served by the n-th claim."""
    rotation = Rotation({"a": 1})
    hints = rotation.queues["a"]
    for version in (1, 2):
        for partition in range(4):
            hints.add(ref(partition, version=version))
    served = []
    for _ in range(16):
        turn = rotation.take(4, 16, dict)
        assert turn is not None
        served.append(turn.ref)
        hints.add(turn.ref)
    once = [ref(partition, version=version) for version in (1, 2) for partition in range(4)]
    assert served == once * 2


async def test_queues_of_one_weight_take_turns() -> None:
    rotation = Rotation({"a": 1, "b": 1, "c": 1})
    for partition in range(3):
        rotation.queues["a"].add(ref(partition))
    rotation.queues["c"].add(ref(0, "c"))
    assert [take(rotation) for _ in range(4)] == [ref(0), ref(0, "c"), ref(1), ref(2)]


@pytest.mark.parametrize("rounds", [{"a": 1, "b": 1}, {"a": 9, "b": 1}, {"a": 1, "b": 9}, {"a": 7, "b": 7}])
@pytest.mark.parametrize(("weights", "slots"), [({"a": 3, "b": 1}, 16), ({"a": 1, "b": 1}, 10), ({"a": 9, "b": 1}, 20)])
async def test_QK2_slots_are_shared_by_weight_however_long_the_jobs_of_a_queue_take(
    weights: dict[str, int], slots: int, rounds: dict[str, int]
) -> None:
    stage = Slots(weights, slots, rounds)
    for _ in range(90):
        stage.round(["a", "b"])
    share = slots * weights["a"] / sum(weights.values())
    assert abs(stage.busy["a"] / 90 - share) <= 1


async def test_QK2_a_queue_uses_what_the_others_leave_and_gives_it_back_as_its_jobs_end() -> None:
    stage = Slots({"a": 1, "b": 1}, 8, {"a": 3, "b": 3})
    for _ in range(6):
        stage.round(["a"])
    assert stage.used() == {"a": 8} or stage.used() == {}
    for _ in range(6):
        stage.round(["a", "b"])
    stage.busy.clear()
    for _ in range(30):
        stage.round(["a", "b"])
    assert abs(stage.busy["a"] - stage.busy["b"]) <= 30


async def test_a_queue_with_a_small_weight_is_served_in_turn_where_slots_are_few() -> None:
    stage = Slots({"a": 100, "b": 1}, 2, {"a": 1, "b": 1})
    for _ in range(10):
        stage.round(["a", "b"])
    assert stage.started["b"] >= 5


async def test_a_queue_with_its_share_waits_for_the_answer_that_another_one_awaits() -> None:
    now = 100.0
    rotation = Rotation({"a": 1, "b": 1}, lambda: now)
    a, b = rotation.queues.values()
    b.calls = 1
    a.add(ref(0))
    turn = rotation.take(10, 10, lambda: {"a": 2})
    assert turn is not None
    assert turn.limit == 3
    a.add(ref(0))
    assert rotation.take(5, 10, lambda: {"a": 5}) is None
    b.calls = 0
    now += GAP_SECONDS / 2
    turn = rotation.take(5, 10, lambda: {"a": 3})
    assert turn is not None
    assert turn.limit == 2
    now += GAP_SECONDS
    a.add(ref(0))
    turn = rotation.take(5, 10, lambda: {"a": 5})
    assert turn is not None
    assert turn.limit == 5


async def test_a_turn_says_whether_the_last_claim_from_there_brought_all_that_it_asked_for() -> None:
    rotation = Rotation({"a": 1})
    hints = rotation.queues["a"]
    hints.add(ref(0), plenty=True)
    hints.add(ref(1))
    hints.add(ref(2))
    hints.add(ref(2), plenty=True)
    hints.add(ref(0))
    turns = [rotation.take(4, 16, dict) for _ in range(3)]
    assert [(turn.ref, turn.plenty) for turn in turns if turn] == [(ref(0), True), (ref(1), False), (ref(2), True)]
    hints.add(ref(0))
    turn = rotation.take(4, 16, dict)
    assert turn is not None
    assert not turn.plenty


async def test_hints_are_bounded() -> None:
    rotation = Rotation({"a": 1})
    for partition in range(1000):
        rotation.queues["a"].add(ref(partition))
    assert len(rotation.queues["a"].refs) == MAX_HINTS


async def test_a_queue_is_dry_only_while_nothing_is_known_and_nothing_is_coming() -> None:
    rotation = Rotation({"a": 1})
    hints = rotation.queues["a"]
    assert hints.dry.is_set()
    hints.add(ref(0))
    assert not hints.dry.is_set()
    take(rotation)
    hints.calls += 1
    hints.settle()
    assert not hints.dry.is_set()
    hints.calls -= 1
    hints.settle()
    assert hints.dry.is_set()


async def test_a_paused_queue_gives_its_hints_back_and_takes_none() -> None:
    rotation = Rotation({"a": 1, "b": 1})
    hints = rotation.queues["a"]
    hints.add(ref(1))
    hints.add(ref(2))
    assert hints.pause("told to") == [ref(1), ref(2)]
    assert hints.pause("another reason") == []
    hints.add(ref(3))
    rotation.queues["b"].add(ref(0, "b"))
    assert not hints.dry.is_set()
    assert [take(rotation), take(rotation)] == [ref(0, "b"), None]
    hints.resume("told to")
    assert not hints.dry.is_set()
    hints.resume("another reason")
    assert hints.dry.is_set()
    hints.add(ref(3))
    assert take(rotation) == ref(3)
