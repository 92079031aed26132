"""A failover has forgotten an edit, and the next write of the topology got its epoch: the two are told apart.

It is acted out by writing the topology of before again, as it comes with a replica that takes over.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.agreement import make_agree
from headrace.errors import TopologyConflict
from headrace.lifecycle import change_settings, complete, configure, finish_promote, promote, reassert
from headrace.pausing import pause_queue, resume_queue
from headrace.producer import Producer
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import Topology
from headrace.worker.recall import Recall
from tests.conformance.actors import Gate, killed_after, promoting, standing_before
from tests.conformance.steps import (
    QUEUE,
    counts,
    created,
    partition_counts_accepted,
    ref,
    run_everything,
    stored_topology,
)

FORGOTTEN, EDITED = QueueSettings(stop="hold"), QueueSettings(timeout_ms=1234)


async def forget(store: Store, older: Topology) -> None:
    assert await store.write_topology(await stored_topology(store), older)


async def go_by(store: Store, topology: Topology) -> None:
    """Fail unless each partition goes by this topology, which is stored."""
    assert await stored_topology(store) == topology
    for version in topology.versions:
        for found in await store.counts(topology.refs(version)):
            assert (found.epoch, found.of) == (topology.epoch, topology.stamp)


async def test_V12_a_promotion_that_began_before_the_failover_brings_no_settings_back(store: Store) -> None:
    first = await created(store, 2)
    forgotten = await configure(store, QUEUE, FORGOTTEN)
    async with standing_before(Gate(store), "write_topology", promoting(2, 3)) as promotion:
        await forget(store, first)
        edited = await configure(store, QUEUE, EDITED)
    second = await promotion
    # Partitions of v1 went by the forgotten pause of that epoch, those of v2 too.
    assert edited.epoch > forgotten.epoch
    assert second.settings == EDITED
    job = await Producer(store).enqueue(QUEUE, "send")
    assert await run_everything(store, await stored_topology(store)) == [job.id]


async def test_V12_a_new_version_begins_with_the_settings_that_count(store: Store) -> None:
    """Whoever installed it before went by the forgotten ones, and died; nobody has settled anything else."""
    first = await created(store)
    forgotten = first.configured(FORGOTTEN)
    assert await store.write_topology(first, forgotten)
    await killed_after(store, 4, promoting(2, 3))
    await forget(store, first)
    edited = first.configured(EDITED)
    assert edited.epoch == forgotten.epoch
    assert await store.write_topology(first, edited)
    assert (await counts(store, ref(0, 2))).ahead(edited) == edited.epoch
    stopped = Gate(store)
    async with standing_before(stopped, "settle 2:0", promoting(2, 3)):
        written = await stored_topology(store)
        assert (written.active, written.settings) == (2, EDITED)
        known = [each.of for each in await store.counts(written.refs(2))]
        assert known == [replace(edited, epoch=edited.epoch + 1).stamp] * 3
    await go_by_in_the_end(store)


async def go_by_in_the_end(store: Store) -> None:
    await go_by(store, await make_agree(store, await stored_topology(store)))


@pytest.mark.parametrize("late", ["last", "first"])
async def test_V12_who_still_tells_of_the_forgotten_edit_changes_nothing(store: Store, late: str) -> None:
    first = await created(store, 2)
    forgotten = first.configured(FORGOTTEN)
    assert await store.write_topology(first, forgotten)
    await forget(store, first)
    if late == "first":
        assert await finish_promote(store, forgotten) == forgotten
    edited = await configure(store, QUEUE, EDITED)
    assert edited.epoch == forgotten.epoch + (late == "first")
    if late == "last":
        assert await finish_promote(store, forgotten) == forgotten
        assert await make_agree(store, forgotten) == forgotten
    await go_by(store, edited)


async def test_V12_an_edit_that_others_have_built_upon_is_in_force(store: Store) -> None:
    await created(store, 2)
    async with standing_before(Gate(store), "settle 1:0", lambda through: pause_queue(through, QUEUE)) as pausing:
        change = lambda read: read.settings.model_copy(update={"timeout_ms": 1234})  # noqa: E731
        further = await change_settings(store, QUEUE, change)
        assert further.settings.stop == "hold"
    assert await pausing == further
    await go_by(store, further)


async def test_V12_an_edit_that_was_undone_before_all_partitions_had_it_is_told(store: Store) -> None:
    await created(store, 2)
    async with standing_before(Gate(store), "settle 1:0", lambda through: pause_queue(through, QUEUE)) as pausing:
        resumed = await resume_queue(store, QUEUE)
    with pytest.raises(TopologyConflict, match="before all partitions had them; edit again"):
        await pausing
    await go_by(store, resumed)


async def test_V12_an_edit_of_the_same_content_is_the_same(store: Store) -> None:
    first = await created(store, 2)
    forgotten = await configure(store, QUEUE, EDITED)
    await forget(store, first)
    assert await configure(store, QUEUE, EDITED) == forgotten
    await go_by(store, forgotten)


async def test_V12_a_completion_is_not_written_over_a_promotion_of_its_epoch(store: Store) -> None:
    await created(store)
    second = await promote(store, QUEUE, 2, 1)
    read = second.configured(FORGOTTEN)
    assert await store.write_topology(second, read)
    gate = Gate(store)
    completing = lambda through: complete(through, QUEUE, 1, client_retry_ms=0)  # noqa: E731
    async with standing_before(gate, "write_topology", completing) as completion:
        await forget(store, second)
        third = await promote(store, QUEUE, 3, 1)
        assert third.epoch == read.epoch
    topology = await completion
    assert topology.versions.keys() == {2, 3}
    assert topology.settings == QueueSettings()


async def test_V12_a_deletion_does_not_bury_another_topology_of_its_epoch(store: Store) -> None:
    first = await created(store)
    condemned = first.condemned()
    assert await store.write_topology(first, condemned)
    await forget(store, first)
    second = await promote(store, QUEUE, 2, 1)
    assert second.epoch == condemned.epoch
    assert not await store.bury_queue(condemned)
    assert await stored_topology(store) == second


async def test_V12_V13_a_version_that_is_brought_back_has_the_settings_of_an_edit_since(store: Store) -> None:
    """Also before whoever brings it back has settled it."""
    first = await created(store)
    forgotten = await promote(store, QUEUE, 2, 2)
    await forget(store, first)
    edited = first.configured(EDITED)
    assert edited.epoch == forgotten.epoch
    assert await store.write_topology(first, edited)
    gate = Gate(store)
    bringing_back = lambda through: reassert(through, forgotten, proven=True)  # noqa: E731
    async with standing_before(gate, "settle 2:0", bringing_back) as back:
        written = await stored_topology(store)
        assert (written.active, written.settings) == (2, EDITED)
        raised = replace(edited, epoch=edited.epoch + 1)
        assert [each.of for each in await store.counts(written.refs(2))] == [raised.stamp] * 2
    found = await back
    assert found is not None
    await go_by(store, found)


async def test_V13_a_producer_follows_to_a_forgotten_version_of_the_same_epoch(store: Store) -> None:
    first = await created(store)
    forgotten = await promote(store, QUEUE, 2, 3)
    await forget(store, first)
    edited = first.configured(EDITED)
    assert edited.epoch == forgotten.epoch
    assert await store.write_topology(first, edited)
    placed = await Producer(store).enqueue(QUEUE, "send")
    assert placed.version == 2
    topology = await stored_topology(store)
    assert topology.versions.keys() == {1, 2}
    assert topology.settings == EDITED
    assert await run_everything(store, topology) == [placed.id]


async def test_V13_a_worker_notices_settings_of_another_edit_of_the_same_epoch(store: Store) -> None:
    """It remembers the forgotten edit; the one that was made since counts."""
    first = await created(store)
    forgotten = await configure(store, QUEUE, FORGOTTEN)
    recall = Recall(store)
    await recall.look(forgotten)
    await forget(store, first)
    edited = first.configured(EDITED)
    assert await store.write_topology(first, edited)
    found = await recall.look(edited)
    # Partitions can go by something else than the topology in a Cluster only.
    assert found == (replace(edited, epoch=edited.epoch + 1) if store.hints_may_be_lost else edited)
    await go_by_in_the_end(store)


async def test_V12_partitions_of_a_release_without_stamps_agree_with_what_is_stored(store: Store) -> None:
    """They have an epoch only, or one that such a release has written beside a stamp of another one."""
    first = await created(store, 2)
    await _write_without_stamp(store, first.epoch, stamp="")
    await go_by(store, await make_agree(store, first))
    await _write_without_stamp(store, first.epoch + 1, stamp=first.stamp)
    edited = first.configured(EDITED)
    assert await store.write_topology(first, edited)
    assert await make_agree(store, edited) == edited
    await go_by(store, edited)
    assert await partition_counts_accepted(store, 1, 2) == {2}


async def _write_without_stamp(store: Store, epoch: int, stamp: str) -> None:
    for partition in range(2):
        if isinstance(store, RedisStore):
            meta = store._keys.partition(ref(partition), "meta")
            await store._client.command("HSET", meta, "e", epoch, "of", stamp)
            if not stamp:
                await store._client.command("HDEL", meta, "of")
        else:
            assert isinstance(store, MemoryStore)
            found = store._data.partitions[ref(partition)]
            found.epoch, found.of = epoch, stamp
