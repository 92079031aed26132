"""A drain that is stuck names what it is stuck on, and is looked at seldom; one that runs is looked at often."""

from __future__ import annotations

import pytest

from headrace.stores.base import Beat, Counts
from headrace_operator.observed import HeldJob
from headrace_operator.planning import plan
from headrace_operator.planning.stuck import stuck_finding
from tests.unit.operator.scene import backend, counts, filled, known, observed, queue, queue_version, topology
from tests.unit.operator.test_convergence import World

HOUR_MS = 3_600_000
V2_OVER_V1 = topology({1: (4, "draining"), 2: (8, "active")})


async def drained_under(world: World) -> None:
    """A version that drains, with one job that a worker holds and renews for ever, and one that has lost its worker."""
    await world.create()
    await world.rest()
    stored = await world.store.read_topology("mail")
    assert stored is not None
    await world.enqueue(8)
    for ref in stored.refs(1):
        world.claims += 1
        await world.store.claim(ref, "mail-workers-7d5f-x2x9k-0a1b", world.claims, 256, 2 * HOUR_MS)
    await world.set_version(2, 4)
    await world.rest()


async def test_the_jobs_that_a_worker_holds_are_named_with_its_pod() -> None:
    world = World()
    await drained_under(world)
    world.now += HOUR_MS
    await world.store.tick("mail", "mail-workers-7d5f-x2x9k-0a1b", Beat(pod="mail-workers-7d5f-x2x9k", in_flight=8))
    await world.life()
    (told,) = (each for each in world.queue["status"]["conditions"] if each["type"] == "Draining")
    assert told["reason"] == "DrainStuck"
    assert "a worker still holds a job of it" in told["message"]
    assert "('count') is held by Pod mail-workers-7d5f-x2x9k, " in told["message"]
    assert told["message"].endswith(" and 5 more")


async def test_a_worker_that_is_gone_is_said_to_be() -> None:
    world = World()
    await drained_under(world)
    world.now += HOUR_MS
    await world.life()
    (told,) = (each for each in world.queue["status"]["conditions"] if each["type"] == "Draining")
    assert "is held by worker mail-workers-7d5f-x2x9k-0a1b, which is gone, until its lease ends" in told["message"]


def test_jobs_that_are_set_apart_count_as_ready_since_the_drain_began() -> None:
    apart = counts("draining", ready=1, marked_at=0, now=HOUR_MS)
    given = backend(V2_OVER_V1, counts=filled(V2_OVER_V1, v1=apart))
    seen = observed(queue(2, 8, status=known()), given, queue_version(1, phase="Draining"), queue_version(2, 8))
    draining = plan(seen).draining
    assert draining is not None
    assert "has held a ready job for more than 10 minutes" in draining.message


def test_the_job_that_takes_its_workers_down_comes_first() -> None:
    jobs = [
        HeldJob("a", "mail", "Pod p-1", due_at=1),
        HeldJob("poison", "pdf", "", due_at=9, expiries=2, poison=True),
    ]
    said = stuck_finding(3, "waiting", jobs)
    assert said.message.startswith("v3 has held a ready job for more than 10 minutes")
    assert said.detail == (
        ": job poison ('pdf') is ready, and has lost 2 leases: its workers died, or hung, "
        "job a ('mail') is held by Pod p-1"
    )
    assert stuck_finding(3, "held", ()).detail == ""


@pytest.mark.parametrize(
    ("left", "look_ms"),
    [
        pytest.param(counts("draining", leased=1, marked_at=0, now=300), 250, id="just-begun"),
        pytest.param(counts("draining", leased=1, marked_at=0, now=8_000), 800, id="for-seconds"),
        pytest.param(counts("draining", ready=1, oldest_ready_at=0, marked_at=0, now=60_000), 1_500, id="for-a-minute"),
        pytest.param(counts("draining", leased=1, marked_at=0, now=HOUR_MS), 10_000, id="stuck"),
        pytest.param(counts("draining", scheduled=1, next_due_at=9_000, marked_at=0, now=300), 8_700, id="not-due"),
        pytest.param(counts("closed", marked_at=0, now=1_000), 4_010, id="empty"),
    ],
)
def test_a_drain_is_looked_at_the_sooner_the_younger_it_is(left: Counts, look_ms: int) -> None:
    given = backend(V2_OVER_V1, counts=filled(V2_OVER_V1, v1=left))
    seen = observed(queue(2, 8, status=known()), given, queue_version(1, phase="Draining"), queue_version(2, 8))
    assert plan(seen).look_ms == look_ms
