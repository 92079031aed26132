"""What each step of a promotion, drain and completion does to a partition in each of its states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest

from headrace.settings import QueueSettings
from headrace.stores.base import Agreed, Moved, PartitionState, Store
from headrace.topology import Topology, Version
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    enqueue,
    failures,
    ids,
    new,
    ref,
    settled,
    sizes,
)

Holding = Callable[[Store], Awaitable[None]]

STATES = ["absent", "active", "draining", "closed", "tombstone"]
EPOCH = 5


def topology(epoch: int = EPOCH, *, active: int = 1, partitions: int = 4) -> Topology:
    """Versions up to ``active`` with ``partitions`` partitions each."""
    versions = {
        number: Version(partitions, "active" if number == active else "draining") for number in range(1, active + 1)
    }
    return Topology(QUEUE, epoch, active, active, versions, {}, QueueSettings())


async def bring(store: Store, state: str) -> None:
    """Bring v1:0 into ``state``, with epoch EPOCH as far as it is active, and 4 partitions."""
    if state == "absent":
        return
    assert (await store.install(ref(), topology(), 4)).state == "absent"
    if state == "active":
        return
    assert await store.mark(ref(), topology(EPOCH + 1, active=2)) == "draining"
    if state == "draining":
        return
    assert (await store.close_partition(ref())).state == "closed"
    if state == "tombstone":
        assert await store.remove(ref())


async def accepts(store: Store) -> int | str:
    """The partition count with which v1:0 takes jobs, or why it takes none."""
    for partitions in range(1, 20):
        answer = await enqueue(store, f"probe-{partitions}", partitions=partitions)
        if not isinstance(answer, Moved):
            claim = await Worker(store, f"p{partitions}").claim()
            await store.ack(ref(), settled(claim))
            return partitions
        if answer.state != "resized":
            return answer.state
    raise AssertionError("no partition count is accepted")


@pytest.mark.parametrize(
    ("state", "epoch", "afterwards"),
    [
        ("absent", 1, 8),
        ("active", EPOCH - 1, 4),
        ("active", EPOCH, 4),
        ("active", EPOCH + 1, 8),
        ("draining", EPOCH + 9, "draining"),
        ("closed", EPOCH + 9, "closed"),
        ("tombstone", EPOCH + 9, "tombstone"),
    ],
)
async def test_install(store: Store, state: str, epoch: int, afterwards: int | str) -> None:
    await bring(store, state)
    assert (await store.install(ref(), topology(epoch), 8)).state == state
    assert await accepts(store) == afterwards


@pytest.mark.parametrize(
    ("state", "epoch", "active", "afterwards"),
    [
        ("absent", 1, 1, 8),
        ("absent", 1, 2, "absent"),
        ("active", EPOCH - 1, 1, 4),
        ("active", EPOCH + 1, 1, 8),
        ("active", EPOCH + 1, 2, 8),
        ("draining", EPOCH + 9, 2, "draining"),
        ("closed", EPOCH + 9, 2, "closed"),
        ("tombstone", EPOCH + 9, 1, "tombstone"),
    ],
)
async def test_settle(store: Store, state: str, epoch: int, active: int, afterwards: int | str) -> None:
    await bring(store, state)
    assert (await store.settle(ref(), topology(epoch, active=active, partitions=8))).state == state
    assert await accepts(store) == afterwards


async def test_install_then_settle_of_two_promoters_ends_with_the_winners_count(store: Store) -> None:
    await store.install(ref(), topology(), 8)
    await store.install(ref(), topology(), 16)
    assert await accepts(store) == 8
    await store.settle(ref(), topology(EPOCH + 1, partitions=16))
    assert await accepts(store) == 16


HELD = QueueSettings.model_validate({"stop": "hold"})


@pytest.mark.parametrize("state", ["active", "draining"])
async def test_V12_a_partition_tells_topologies_of_one_epoch_apart(store: Store, state: str) -> None:
    """Only one of them can be stored after a failover. Whoever has read the other may come first or last."""
    await bring(store, state)
    forgotten, held = topology(active=2), replace(topology(active=2), settings=HELD)
    first = replace(held, epoch=EPOCH + 1)
    later = replace(forgotten, epoch=EPOCH + 1)
    assert await store.settle(ref(), first) == Agreed(cast(PartitionState, state))
    for install in (False, True):
        answer = await (store.install(ref(), later, 4) if install else store.settle(ref(), later))
        assert answer == (state, EPOCH + 1)
    assert await store.settle(ref(), replace(later, epoch=EPOCH)) == (state, EPOCH + 1)
    assert await store.settle(ref(), first) == await store.install(ref(), first, 4) == (state, 0)
    known = await counts(store)
    assert (known.epoch, known.of, known.ahead(first), known.ahead(later)) == (EPOCH + 1, first.stamp, 0, EPOCH + 1)
    assert known.ahead(replace(later, epoch=EPOCH + 2)) == 0
    # Whoever is told so goes above.
    assert await store.settle(ref(), replace(later, epoch=EPOCH + 2)) == (state, 0)
    assert (await counts(store)).of == replace(later, epoch=EPOCH + 2).stamp


async def test_install_creates_nothing_if_it_is_not_to(store: Store) -> None:
    assert await store.install(ref(), topology(), 4, create=False) == ("absent", 0)
    assert (await counts(store)).state == "absent"


@pytest.mark.parametrize("state", STATES)
async def test_mark_ends_an_active_or_absent_partition_only(store: Store, state: str) -> None:
    await bring(store, state)
    expected = "draining" if state in ("active", "absent") else state
    assert await store.mark(ref(), topology(EPOCH + 1, active=2)) == expected
    assert (await counts(store)).state == expected


async def test_a_promoter_that_slept_does_not_create_a_marked_partition(store: Store) -> None:
    assert await store.mark(ref(), topology(EPOCH + 1, active=2)) == "draining"
    assert (await store.settle(ref(), topology())).state == "draining"
    assert (await store.install(ref(), topology(), 4)).state == "draining"
    assert await accepts(store) == "draining"
    assert (await store.close_partition(ref())).state == "closed"


async def test_V12_settings_reach_a_partition_that_a_newer_topology_has_marked(store: Store) -> None:
    """Whoever pauses the queue may be overtaken by a promotion between writing the topology and settling."""
    await bring(store, "active")
    await enqueue(store, "a", partitions=4)
    paused = replace(topology(EPOCH + 1), settings=QueueSettings.model_validate({"stop": "hold"}))
    await store.mark(ref(), replace(topology(EPOCH + 2, active=2), settings=paused.settings))
    assert (await store.settle(ref(), paused)).state == "draining"
    assert ids(await Worker(store).claim()) == []


async def test_discard_spares_the_nonce_of_a_call(store: Store) -> None:
    """Else the same call, sent again to the partition created anew, would be applied twice."""
    await bring(store, "active")
    await enqueue(store, "a", partitions=4)
    await store.ack(ref(), settled(await Worker(store).claim()))
    assert await sizes(store) == {}
    assert not await store.discard(ref())


async def test_a_marked_partition_keeps_its_first_successor(store: Store) -> None:
    await bring(store, "active")
    second, third = topology(6, active=2), topology(7, active=3)
    await store.mark(ref(), second)
    await store.mark(ref(), third)
    assert await enqueue(store, "a", partitions=4) == Moved("draining", second)


async def test_the_successor_is_told_completely(store: Store) -> None:
    await bring(store, "active")
    successor = replace(
        topology(6, active=2), owner={"uid": "ü-1"}, settings=QueueSettings.model_validate({"timeout_ms": 7})
    )
    await store.mark(ref(), successor)
    assert await enqueue(store, "a", partitions=4) == Moved("draining", successor)


@pytest.mark.parametrize("state", STATES)
async def test_close_changes_only_an_empty_draining_partition(store: Store, state: str) -> None:
    await bring(store, state)
    expected = "closed" if state == "draining" else state
    assert (await store.close_partition(ref())).state == expected
    assert (await counts(store)).state == expected


async def _ready(store: Store) -> None:
    await enqueue(store, "a", partitions=4)


async def _scheduled(store: Store) -> None:
    await enqueue(store, new("a", when=-LONG_MS), partitions=4)


async def _leased(store: Store) -> None:
    await enqueue(store, "a", partitions=4)
    await Worker(store).claim()


async def _retry(store: Store) -> None:
    await enqueue(store, "a", partitions=4)
    await store.fail(ref(), failures(await Worker(store).claim(), LONG_MS))


HOLDINGS: dict[str, Holding] = {"ready": _ready, "scheduled": _scheduled, "leased": _leased, "retry": _retry}


@pytest.mark.parametrize("holding", HOLDINGS)
async def test_T1_T2_a_partition_that_holds_a_live_job_is_not_closed(store: Store, holding: str) -> None:
    await bring(store, "active")
    await HOLDINGS[holding](store)
    await store.mark(ref(), topology(6, active=2))
    found = await store.close_partition(ref())
    assert (found.state, found.nonempty()) == ("draining", {holding: 1})
    assert not await store.remove(ref())
    assert await sizes(store) == {holding: 1}


async def test_dead_letters_do_not_keep_a_partition_open(store: Store) -> None:
    await bring(store, "active")
    await enqueue(store, "a", partitions=4)
    await store.fail(ref(), failures(await Worker(store).claim(), None))
    await store.mark(ref(), topology(6, active=2))
    found = await store.close_partition(ref())
    assert (found.state, found.nonempty()) == ("closed", {"dead": 1})


@pytest.mark.parametrize(
    ("state", "removed"),
    [("absent", True), ("active", False), ("draining", False), ("closed", True), ("tombstone", True)],
)
async def test_remove(store: Store, state: str, removed: bool) -> None:
    await bring(store, state)
    assert await store.remove(ref()) is removed
    assert (await counts(store)).state == ("tombstone" if removed else state)


async def test_V3_nothing_brings_a_removed_partition_back(store: Store) -> None:
    await bring(store, "tombstone")
    later = topology(EPOCH + 9)
    assert (await store.install(ref(), later, 4)).state == "tombstone"
    assert (await store.settle(ref(), later)).state == "tombstone"
    assert await store.mark(ref(), topology(EPOCH + 10, active=2)) == "tombstone"
    assert not await store.discard(ref())
    assert await enqueue(store, "a", partitions=4) == Moved("tombstone", None)
    assert (await Worker(store).claim()).gone


@pytest.mark.parametrize("state", STATES)
async def test_discard_deletes_only_an_empty_active_partition(store: Store, state: str) -> None:
    await bring(store, state)
    assert await store.discard(ref()) is (state == "active")
    assert (await counts(store)).state == ("absent" if state == "active" else state)


async def _dead(store: Store) -> None:
    await enqueue(store, "a", partitions=4)
    await store.fail(ref(), failures(await Worker(store).claim(), None))


@pytest.mark.parametrize("hold", [*HOLDINGS.values(), _dead], ids=[*HOLDINGS, "dead"])
async def test_discard_spares_whatever_holds_anything(store: Store, hold: Holding) -> None:
    await bring(store, "active")
    await hold(store)
    before = await sizes(store)
    assert not await store.discard(ref())
    assert await sizes(store) == before


async def test_a_discarded_partition_may_be_created_again(store: Store) -> None:
    await bring(store, "active")
    await store.discard(ref())
    assert (await store.install(ref(), topology(), 8)).state == "absent"
    assert await accepts(store) == 8


async def test_partitions_queues_and_versions_are_apart(store: Store) -> None:
    await bring(store, "active")
    other_queue = ref()._replace(queue="emails-2")
    other_version = ref(version=2)
    other_partition = ref(1)
    for other in (other_queue, other_version, other_partition):
        assert (await counts(store, other)).state == "absent"
    await store.install(other_partition, topology(), 4)
    await enqueue(store, "a", partitions=4)
    assert await sizes(store, other_partition) == {}
    assert ids(await Worker(store).claim(at=other_partition)) == []
