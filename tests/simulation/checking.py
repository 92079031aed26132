"""Explore one scenario under some rules."""

from __future__ import annotations

from tests.simulation.explorer import Exploration, explore
from tests.simulation.properties import good, invariant
from tests.simulation.rules import PROTOCOL, Rules
from tests.simulation.world import Model, Setting, Step, World


def check(setting: Setting, rules: Rules = PROTOCOL, *, limit: int = 1_000_000) -> Exploration[World, Step]:
    """Visit what is reachable in ``setting``, at most ``limit`` states, and check R1 to R5."""
    model = Model(setting, rules)
    return explore(
        model.initial(),
        model.successors,
        lambda world: invariant(model, world),
        lambda world: good(model, world),
        limit=limit,
    )
