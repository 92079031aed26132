"""What goes wrong in a run: a list of faults drawn from a seed, each of which can be left out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

Kind = Literal["pause", "crash", "terminate", "cut", "outage", "refuse", "delete", "restore", "forget", "blip"]
LOCKS = ("lease", "mongo")
STORES = (*LOCKS, "redis")


@dataclass(frozen=True)
class Fault:
    """``pod``: number; ``store``: name; ``seconds``: how long; ``steps``: scripts that a failover forgets."""

    kind: Kind
    at: float
    pod: int = 0
    store: str = ""
    seconds: float = 0.0
    steps: int = 0


@dataclass(frozen=True)
class Plan:
    """One run. ``drift``: clock rates are within 1 +- drift. ``calm``: seconds without faults at the end."""

    seed: int
    faults: tuple[Fault, ...]
    pods: int = 4
    drift: float = 0.05
    seconds: float = 240.0
    calm: float = 80.0
    loss: float = 0.005
    slow: float = 0.01
    torn: bool = False
    slowest: float = 6.0
    stubborn: float = 0.0  # seconds for which work ignores its cancellation
    extreme: bool = False  # clocks run at 1 - drift and 1 + drift in turn, not between

    @property
    def single(self) -> bool:
        """Whether one holder per backend can be expected (S4)."""
        kinds = {fault.kind for fault in self.faults}
        if "delete" in kinds and (self.loss or self.slow or kinds != {"delete"}):
            return False  # a creation on its way may arrive after the deletion of what it would have met
        return not (self.torn or kinds & {"restore", "forget"})

    def without(self, fault: Fault) -> Plan:
        return Plan(**{**vars(self), "faults": tuple(each for each in self.faults if each is not fault)})


def draw(seed: int, *, seconds: float = 240.0, calm: float = 80.0) -> Plan:
    """Draw a plan."""
    rng = random.Random(seed)
    kinds: list[Kind] = ["pause", "pause", "crash", "terminate", "cut", "cut", "outage", "refuse", "blip"]
    if seed % 3 == 0:
        kinds += ["delete", "forget", "restore"]
    faults = []
    for _ in range(rng.randint(2, 9)):
        kind = rng.choice(kinds)
        at = rng.uniform(5, seconds - calm - 45)
        longest = 40.0 if kind in ("pause", "cut", "outage", "refuse") else 10.0
        faults.append(
            Fault(
                kind,
                at,
                pod=rng.randrange(4),
                store=rng.choice(LOCKS if kind in ("delete", "restore") else STORES),
                seconds=min(rng.choice((0.3, 3, 8, 20, longest)) * rng.uniform(0.5, 1), longest),
                steps=rng.randint(1, 8),
            )
        )
    return Plan(
        seed,
        tuple(sorted(faults, key=lambda fault: fault.at)),
        drift=rng.choice((0.0, 0.02, 0.05, 0.19)),
        seconds=seconds,
        calm=calm,
        loss=rng.choice((0.0, 0.002, 0.01)),
        slow=rng.choice((0.0, 0.01, 0.03)),
        torn=seed % 7 == 0,
        stubborn=rng.choice((0.0, 0.0, 0.3, 0.9)),
    )
