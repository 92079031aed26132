"""Runs the machine: a short form in every test run, a long one by ``make twins``."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.twins.jobs import JobRules
from tests.conformance.twins.removals import RemovalRules
from tests.conformance.twins.surroundings import SurroundingRules
from tests.conformance.twins.versions import VersionRules
from tests.services.redis import RedisServer


class WholeStore(JobRules, VersionRules, RemovalRules, SurroundingRules):
    """Every rule."""


class OneVersion(JobRules, RemovalRules, SurroundingRules):
    """Jobs of one version: deeper into what happens to a job than the versions let it come."""

    create = VersionRules.create
    configure = VersionRules.configure


def run(
    machine: type[JobRules], server: RedisServer, *, examples: int, steps: int, derandomize: bool = True
) -> Counter[str]:
    """Run so many examples of so many commands; return how often each step of a store was compared.

    ``server``: one on which nothing else is; all of it is deleted.
    """
    taken = Counter[str]()
    placed = type(machine.__name__, (machine,), {"server": server, "steps": taken})
    # Without shrinking, which takes minutes: the same failure comes again with every run.
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=(Phase.generate,),
        derandomize=derandomize,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(placed, settings=chosen)
    return taken
