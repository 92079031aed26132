"""An explicit-state explorer: breadth first, so that the first violation found has a shortest trace.

Two kinds of properties are checked. An invariant must hold in every reachable state. And from every reachable state a
good one must stay reachable (AG EF good): with actors that go on, the system cannot get stuck.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

STUCK = "no good state can be reached"

S = TypeVar("S", bound=Hashable)
L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Exploration(Generic[S, L]):
    """What was found. ``violation`` names the broken property; ``trace`` leads from the initial state to ``state``.

    ``complete`` is False if the limit of states ended the search: then invariants hold as far as it went, and nothing
    is said about good states.
    """

    states: int
    complete: bool
    violation: str | None = None
    trace: tuple[L, ...] = ()
    state: S | None = None


class _Paths(Generic[S, L]):
    """The search tree: every state once, with the step that led to it first."""

    def __init__(self, initial: S) -> None:
        self.numbers: dict[S, int] = {initial: 0}
        self.states: list[S] = [initial]
        self._parents = array("q", [-1])
        self._labels: list[L | None] = [None]

    def add(self, state: S, parent: int, label: L) -> int:
        number = len(self.states)
        self.numbers[state] = number
        self.states.append(state)
        self._parents.append(parent)
        self._labels.append(label)
        return number

    def trace(self, number: int) -> tuple[L, ...]:
        labels: list[L] = []
        while (label := self._labels[number]) is not None:
            labels.append(label)
            number = self._parents[number]
        return tuple(reversed(labels))


def explore(
    initial: S,
    successors: Callable[[S], Iterable[tuple[L, S]]],
    invariant: Callable[[S], str | None],
    good: Callable[[S], bool],
    *,
    limit: int = 1_000_000,
) -> Exploration[S, L]:
    """Visit every state reachable from ``initial``, at most ``limit``; stop at the first violation."""
    paths: _Paths[S, L] = _Paths(initial)
    sources, targets, goods = array("q"), array("q"), array("q")
    if broken := invariant(initial):
        return Exploration(1, True, broken, (), initial)
    current = 0
    while current < len(paths.states):
        state = paths.states[current]
        if good(state):
            goods.append(current)
        for label, following in successors(state):
            number = paths.numbers.get(following)
            if number is None:
                if len(paths.states) == limit:
                    return Exploration(limit, False)
                number = paths.add(following, current, label)
                if broken := invariant(following):
                    return Exploration(len(paths.states), True, broken, paths.trace(number), following)
            sources.append(current)
            targets.append(number)
        current += 1
    stuck = _first_stuck(len(paths.states), sources, targets, goods)
    if stuck is not None:
        return Exploration(len(paths.states), True, STUCK, paths.trace(stuck), paths.states[stuck])
    return Exploration(len(paths.states), True)


def _first_stuck(states: int, sources: array[int], targets: array[int], goods: array[int]) -> int | None:
    """Return the first state from which no path leads to a good one: search backwards from the good ones."""
    heads = array("q", [0]) * (states + 1)
    for target in targets:
        heads[target + 1] += 1
    for number in range(states):
        heads[number + 1] += heads[number]
    fill = array("q", heads)
    reverse = array("q", [0]) * len(sources)
    for source, target in zip(sources, targets, strict=True):
        reverse[fill[target]] = source
        fill[target] += 1
    reaches = bytearray(states)
    stack = list(goods)
    for number in stack:
        reaches[number] = 1
    while stack:
        number = stack.pop()
        for edge in range(heads[number], heads[number + 1]):
            source = reverse[edge]
            if not reaches[source]:
                reaches[source] = 1
                stack.append(source)
    stuck = reaches.find(0)
    return None if stuck < 0 else stuck
