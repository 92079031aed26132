"""What the operator shows of each Queue."""

from __future__ import annotations

from dataclasses import replace

from headrace_operator.api.names import QueueKey
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observed import Observed
from headrace_operator.planning import plan
from headrace_operator.queue_gauges import gauges_of
from headrace_operator.status import build_status
from tests.unit.operator.scene import backend, counts, filled, observed, queue, queue_version, topology
from tests.unit.operator.test_convergence import World
from tests.unit.operator.test_metrics import values

KEY = QueueKey("ns", "mail")
PREFIX = "headrace_operator_queue_"
V1 = topology({1: (1, "active")})


def shown(seen: Observed) -> dict[str, float]:
    metrics = OperatorMetrics()
    metrics.show(KEY, gauges_of("letters", build_status(seen, plan(seen))))
    return {name.removeprefix(PREFIX): value for name, value in values(metrics).items() if name.startswith(PREFIX)}


def test_jobs_by_state_and_since_when_the_oldest_is_due() -> None:
    held = filled(V1, v1=counts(ready=2, dead=3, oldest_ready_at=1_700_000_000_500))
    page = shown(observed(queue(1, 1), backend(V1, counts=held), queue_version(1, 1)))
    assert page["jobs{namespace=ns,queue=letters,state=ready}"] == 2
    assert page["jobs{namespace=ns,queue=letters,state=leased}"] == 0
    assert page["jobs{namespace=ns,queue=letters,state=dead}"] == 3
    assert page["oldest_ready_timestamp_seconds{namespace=ns,queue=letters}"] == 1_700_000_000
    assert page["condition{namespace=ns,queue=letters,type=Ready}"] == 1
    assert page["condition{namespace=ns,queue=letters,type=Paused}"] == 0


def test_what_a_queue_has_not_is_absent() -> None:
    page = shown(observed(queue(1, 1), backend(V1, counts=filled(V1)), queue_version(1, 1)))
    assert not [name for name in page if name.startswith(("oldest_ready", "workers"))]


def test_a_pause_is_shown() -> None:
    spec = queue(1, 1, paused=True).spec
    assert spec is not None
    held = replace(V1, settings=spec.settings())
    page = shown(observed(queue(1, 1, paused=True), backend(held, counts=filled(held)), queue_version(1, 1)))
    assert page["condition{namespace=ns,queue=letters,type=Paused}"] == 1


async def test_a_queue_is_shown_until_it_is_gone_or_another_operator_works() -> None:
    world = World()
    await world.create()
    await world.rest()
    page = values(world.metrics)
    assert page[f"{PREFIX}condition{{namespace=ns,queue=mail,type=Ready}}"] == 1
    assert page[f"{PREFIX}jobs{{namespace=ns,queue=mail,state=ready}}"] == 0
    world.metrics.hide(KEY)
    assert not [name for name in values(world.metrics) if "queue=mail" in name]
    seen = observed(queue(), backend(V1), queue_version(1, 1))
    world.metrics.show(KEY, gauges_of("mail", build_status(seen, plan(seen))))
    assert [name for name in values(world.metrics) if "queue=mail" in name]
    world.metrics.hide()
    assert not [name for name in values(world.metrics) if "queue=mail" in name]
