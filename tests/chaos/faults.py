"""Faults drawn from a seed: three tracks, one for each kind of part, so that faults of different parts overlap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import Literal, NamedTuple

Step = Literal["begin", "mend"]
Kind = Literal["kill", "freeze", "end", "api", "mongo gone", "mongo frozen"]
TRACKS: tuple[tuple[Kind, ...], ...] = (("kill", "freeze", "end"), ("api",), ("mongo gone", "mongo frozen"))


class Fault(NamedTuple):
    """``at``: seconds after the begin; ``seconds``: until it is mended. ``leader``: whether it strikes the leader."""

    at: float
    kind: Kind
    seconds: float
    leader: bool


def drawn(seed: int, until: float) -> list[Fault]:
    """Return the faults of a run of so many seconds, in order; each is mended before its end."""
    found = [
        fault
        for number, kinds in enumerate(TRACKS)
        for fault in _track(random.Random(f"{seed} {number}"), kinds, until)
    ]
    return sorted(found)


def _track(dice: random.Random, kinds: tuple[Kind, ...], until: float) -> Iterator[Fault]:
    rare = 1 if "kill" in kinds else 4  # those that nobody notices unless they last
    at = dice.uniform(1, 4 * rare)
    for _ in count():
        seconds = dice.uniform(1, 9) if rare == 1 else dice.uniform(3, 15)
        if at + seconds >= until:
            return
        yield Fault(at, dice.choice(kinds), seconds, dice.random() < 0.75)
        at += seconds + dice.uniform(2, 6 * rare)


def timeline(faults: list[Fault]) -> list[tuple[float, Fault, Step]]:
    """Return when each fault begins and is mended, in order."""
    begins: list[tuple[float, Fault, Step]] = [(each.at, each, "begin") for each in faults]
    ends: list[tuple[float, Fault, Step]] = [(each.at + each.seconds, each, "mend") for each in faults]
    return sorted([*begins, *ends], key=lambda step: step[0])
