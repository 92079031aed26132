"""Measures a queue: adds its partitions up and stores the sums where one small read finds them.

Called by the leader of a queue's workers now and then, and by whoever needs figures while there is no leader. Reading
goes in steps of 64 partitions, a few milliseconds of the server's time each.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.known_queue import topology_of
from headrace.stores.base import Depth, Growth, Statistics, Store, Survey
from headrace.topology import Topology

AT_ONCE = 64
"""Partitions that are read in one round trip."""


async def summarise(store: Store, queue: str) -> Statistics | None:
    """Measure every partition of a queue, store the sums and return them.

    Of two that measure at the same time one is stored, and both return it. None if the queue was deleted meanwhile.
    Raises UnknownQueue, and the errors of the store.
    """
    before = await store.read_stats(queue)
    topology = await topology_of(store, queue)
    depths, growth = {}, {}
    for number in sorted(topology.versions):
        surveys = await _surveyed(store, topology, number)
        depths[number] = depth_of(topology, number, surveys)
        growth[number] = sum_of_growth(surveys)
    await store.write_stats(queue, before.measured_at if before else 0, topology.epoch, depths, growth)
    return await store.read_stats(queue)


async def _surveyed(store: Store, topology: Topology, version: int) -> list[Survey]:
    refs = topology.refs(version)
    found: list[Survey] = []
    for start in range(0, len(refs), AT_ONCE):
        found += await store.survey(refs[start : start + AT_ONCE])
    return found


def depth_of(topology: Topology, version: int, surveys: Sequence[Survey]) -> Depth:
    """Add up what the partitions of a version hold."""
    counts = [survey.counts for survey in surveys]
    known = topology.versions[version]
    return Depth(
        known.state,
        known.partitions,
        ready=sum(each.ready for each in counts),
        scheduled=sum(each.scheduled for each in counts),
        retry=sum(each.retry for each in counts),
        leased=sum(each.leased for each in counts),
        parked=sum(each.parked for each in counts),
        moving=sum(each.moving for each in counts),
        dead=sum(each.dead for each in counts),
        oldest_ready_at=min(
            (each.oldest_ready_at for each in counts if each.oldest_ready_at is not None), default=None
        ),
        next_due_at=min((each.next_due_at for each in counts if each.next_due_at is not None), default=None),
        due_within=tuple(map(sum, zip(*(survey.due_within for survey in surveys), strict=True))),
    )


def sum_of_growth(surveys: Sequence[Survey]) -> Growth:
    """Add up the counters of partitions."""
    total = Growth()
    for survey in surveys:
        total = total.plus(survey.growth)
    return total
