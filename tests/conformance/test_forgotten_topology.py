"""A failover has forgotten the newest topology, while partitions or clients remember it: nothing stays out of sight.

It is acted out by writing the topology of before again, as it comes with a replica that takes over.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.agreement import make_agree
from headrace.errors import NotDrained, TopologyConflict
from headrace.lifecycle import complete, configure, finish_promote, promote, reassert
from headrace.producer import Producer
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Topology, VersionState
from headrace.worker.recall import Recall
from tests.conformance.conftest import Complete
from tests.conformance.steps import (
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    fresh_nonce,
    new,
    ref,
    run_everything,
    states,
    stored_topology,
)


async def forget(store: Store, older: Topology) -> None:
    assert await store.write_topology(await stored_topology(store), older)


async def promoted_and_forgotten(store: Store) -> tuple[Topology, Topology]:
    """Promote v1 and v2; the store forgets v2. Returns both topologies."""
    first = await created(store, 2)
    second = await promote(store, QUEUE, 2, 3)
    await forget(store, first)
    return first, second


async def test_V13_a_fresh_producer_brings_the_version_back(store: Store) -> None:
    _, second = await promoted_and_forgotten(store)
    placed = await Producer(store).enqueue(QUEUE, "send")
    assert placed.version == 2
    assert await store.read_topology(QUEUE) == second
    assert await run_everything(store, second) == [placed.id]


async def test_V13_jobs_that_were_enqueued_meanwhile_are_reached(store: Store) -> None:
    first = await created(store, 2)
    knowing = Producer(store)
    second = await promote(store, QUEUE, 2, 3)
    before = await knowing.enqueue(QUEUE, "send")
    await forget(store, first)
    after = await knowing.enqueue(QUEUE, "send")
    assert {before.version, after.version} == {2}
    third = await Producer(store).enqueue(QUEUE, "send")
    topology = await stored_topology(store)
    assert topology == second
    assert sorted(await run_everything(store, topology)) == sorted([before.id, after.id, third.id])


async def test_V13_a_worker_that_knew_it_brings_it_back(store: Store) -> None:
    first = await created(store, 2)
    recall = Recall(store)
    second = await promote(store, QUEUE, 2, 3)
    assert await recall.look(second) == second
    await forget(store, first)
    assert await recall.look(first) == second
    assert await store.read_topology(QUEUE) == second


async def test_V13_a_worker_that_comes_later_learns_it_from_a_partition(store: Store) -> None:
    first, second = await promoted_and_forgotten(store)
    found = await Recall(store).look(first)
    # Partitions can remember more than the topology in a Cluster only.
    assert found == (second if store.hints_may_be_lost else first)


async def test_V13_the_next_promotion_does_not_overlook_it(store: Store) -> None:
    first, second = await promoted_and_forgotten(store)
    job = await Producer(store).enqueue(QUEUE, "send")
    await forget(store, first)
    third = await promote(store, QUEUE, 3, 1)
    assert {number: version.state for number, version in third.versions.items()} == {
        1: "draining",
        2: "draining",
        3: "active",
    }
    assert third.epoch > second.epoch
    assert await states(store, 2, 3) == ["draining"] * 3
    assert await run_everything(store, third) == [job.id]


async def test_V13_its_number_is_not_promoted_again_with_other_partitions(store: Store) -> None:
    """Or jobs in partitions beyond the new count would be out of sight."""
    await promoted_and_forgotten(store)
    with pytest.raises(TopologyConflict, match="already active with 3 partitions"):
        await promote(store, QUEUE, 2, 2)
    assert (await stored_topology(store)).partitions == 3


async def test_V13_the_same_promotion_again_finishes_it(store: Store) -> None:
    _, second = await promoted_and_forgotten(store)
    assert await promote(store, QUEUE, 2, 3) == second


async def test_V13_the_partitions_that_know_are_asked_before_they_are_removed(
    store: Store, completed: Complete
) -> None:
    """v2 was forgotten, and v3 promoted before a partition of v1 could have said so."""
    first, _ = await promoted_and_forgotten(store)
    await overtake(store, first)
    job = new("send")
    await store.enqueue(ref(0, 2), 3, fresh_nonce(), [job])
    topology = await completed(1)
    assert {number: version.state for number, version in topology.versions.items()} == {2: "draining", 3: "active"}
    assert await states(store, 2, 3) == ["draining"] * 3
    assert await run_everything(store, topology) == ["send"]
    assert set((await completed(2)).versions) == {3}


async def test_V13_a_worker_brings_back_what_was_overtaken(store: Store) -> None:
    first = await created(store, 2)
    recall, second = Recall(store), await promote(store, QUEUE, 2, 3)
    await recall.look(second)
    await forget(store, first)
    topology = await recall.look(await overtake(store, first))
    assert set(topology.versions) == {1, 2, 3}
    assert (topology.active, topology.versions[2].state) == (3, "draining")
    assert await states(store, 2, 3) == ["draining"] * 3


async def overtake(store: Store, first: Topology) -> Topology:
    """Promote v3 by somebody who asks no partition."""
    third = first.promoted(3, 1)
    assert await store.write_topology(first, third)
    await finish_promote(store, third)
    return third


@pytest.mark.parametrize("memory", ["worker", "producer"])
async def test_V13_nobodys_memory_revives_what_is_gone_with_a_data_set(store: Store, memory: str) -> None:
    """An old copy of the data is restored, or the queue is made anew: what was known of later versions is void."""
    first = await created(store, 2)
    gone = first.promoted(2, 3)
    if memory == "worker":
        recall = Recall(store)
        await recall.look(gone)
        assert await recall.look(first) == first
    else:
        assert await reassert(store, gone) == first
    assert await store.read_topology(QUEUE) == first
    assert await states(store, 2, 3) == ["absent"] * 3


async def test_V13_a_version_that_was_completed_does_not_come_back(store: Store, completed: Complete) -> None:
    await created(store, 2)
    recall, second = Recall(store), await promote(store, QUEUE, 2, 3)
    await recall.look(second)
    third = await completed(1)
    assert await recall.look(third) == third
    assert await reassert(store, second, proven=True) == third


async def test_V13_a_queue_without_topology_stays_without(store: Store) -> None:
    first = await created(store, 1)
    await store.delete_partition((first.refs(1))[0], first.incarnation)
    assert await store.write_topology(first, first.condemned())
    assert await store.bury_queue(first.condemned())
    assert await reassert(store, first, proven=True) is None
    assert await store.read_topology(QUEUE) is None


async def test_V13_settings_of_the_newer_topology_come_back_with_it(store: Store) -> None:
    first = await created(store, 2)
    await promote(store, QUEUE, 2, 1)
    edited = await configure(store, QUEUE, QueueSettings(timeout_ms=1234))
    await forget(store, first)
    assert await reassert(store, edited) == edited
    assert (await stored_topology(store)).settings.timeout_ms == 1234
    assert set((await complete(store, QUEUE, 1, client_retry_ms=0)).versions) == {2}


HELD = QueueSettings(stop="hold")


async def held_and_forgotten(store: Store) -> tuple[Topology, list[str], Topology]:
    """A job waits in v1 and one in v2; the queue was paused, which the store forgets, but its partitions do not."""
    await created(store, 2)
    jobs = [(await Producer(store).enqueue(QUEUE, "send")).id]
    second = await promote(store, QUEUE, 2, 3)
    jobs.append((await Producer(store).enqueue(QUEUE, "send")).id)
    held = await configure(store, QUEUE, HELD)
    await forget(store, second)
    assert await run_everything(store, second) == []
    return second, jobs, held


@pytest.mark.parametrize("settings", [QueueSettings(), QueueSettings(timeout_ms=1234), HELD])
async def test_V13_settings_that_only_partitions_remember_do_not_outlive_the_next_edit(
    store: Store, settings: QueueSettings
) -> None:
    """Also the edit that changes nothing of what is stored: whoever resumes the queue means its partitions."""
    _, jobs, held = await held_and_forgotten(store)
    edited = await configure(store, QUEUE, settings)
    assert await store.read_topology(QUEUE) == edited
    assert edited.settings == settings
    assert edited.epoch >= held.epoch
    ran = await run_everything(store, edited)
    assert sorted(ran) == ([] if settings is HELD else sorted(jobs))
    assert sorted(ran + await run_everything(store, await configure(store, QUEUE, QueueSettings()))) == sorted(jobs)


async def test_V13_a_leader_makes_partitions_agree_with_what_is_stored(store: Store) -> None:
    second, jobs, held = await held_and_forgotten(store)
    assert await make_agree(store, second) == replace(second, epoch=held.epoch + 1)
    assert sorted(await run_everything(store, await stored_topology(store))) == sorted(jobs)


async def test_V13_a_worker_that_knew_the_settings_brings_them_back(store: Store) -> None:
    second, jobs, held = await held_and_forgotten(store)
    recall = Recall(store)
    await recall.look(held)
    found = await recall.look(second)
    assert found == await store.read_topology(QUEUE)
    # Partitions can remember more than the topology in a Cluster only.
    assert found.settings == (HELD if store.hints_may_be_lost else QueueSettings())
    await configure(store, QUEUE, QueueSettings())
    assert sorted(await run_everything(store, await stored_topology(store))) == sorted(jobs)


async def test_V13_a_worker_notices_settings_that_only_a_draining_version_goes_by(store: Store) -> None:
    await created(store, 2)
    second = await promote(store, QUEUE, 2, 3)
    held = second.configured(HELD)
    assert await store.write_topology(second, held)
    for each in held.refs(1):
        await store.settle(each, held)
    await forget(store, second)
    recall, topology = Recall(store), second
    for _ in range(5):
        topology = await recall.look(topology)
    assert await stored_topology(store) == topology
    if store.hints_may_be_lost:  # partitions can remember more than the topology in a Cluster only
        assert topology == replace(second, epoch=held.epoch + 1)
        known = [each.of for version in (1, 2) for each in await store.counts(topology.refs(version))]
        assert known == [topology.stamp] * 5
    else:
        assert topology == second


async def test_V13_who_is_late_takes_no_newer_settings_for_forgotten_ones(store: Store) -> None:
    """It read the topology before somebody changed it, and looks at the partitions after that."""
    first = await created(store, 2)
    edited = await configure(store, QUEUE, HELD)
    assert await make_agree(store, first) == first
    assert await store.read_topology(QUEUE) == edited


@pytest.mark.parametrize("kept", ["draining", "removing"])
async def test_V13_a_completion_that_was_forgotten_is_done_again(
    store: Store, completed: Complete, kept: VersionState
) -> None:
    """The topology lists a version of which only tombstones are left."""
    await created(store, 2)
    stale = Producer(store)
    await stale.enqueue(QUEUE, "send", id="ran")
    second = await promote(store, QUEUE, 2, 3)
    assert await run_everything(store, second) == ["ran"]
    await completed(1)
    forgotten = second if kept == "draining" else second.removing(1)
    await forget(store, forgotten)
    placed = [
        await producer.enqueue(QUEUE, "send", id=f"job-{n}") for n, producer in enumerate((stale, Producer(store)))
    ]
    assert [job.version for job in placed] == [2, 2]
    assert await Recall(store).look(forgotten) == forgotten
    third = await promote(store, QUEUE, 3, 1)
    assert set(third.versions) == {1, 2, 3}
    again = await stale.enqueue(QUEUE, "send", id="job-1")
    assert (again.version, again.existing) == (2, True)
    assert sorted(await run_everything(store, third)) == ["job-0", "job-1"]
    for version in (1, 2):
        await completed(version)
    assert set((await stored_topology(store)).versions) == {3}
    assert await states(store, 1, 2) + await states(store, 2, 3) == ["tombstone"] * 5


async def test_V13_V10_what_dies_in_a_version_that_is_being_removed_is_kept(store: Store, completed: Complete) -> None:
    """Its partition was closed when the removal began, and a failover has forgotten that: a job runs there again."""
    await created(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim()
    second = await promote(store, QUEUE, 2, 1)
    assert await store.write_topology(second, second.removing(1))
    with pytest.raises(NotDrained):
        await complete(store, QUEUE, 1, client_retry_ms=0)
    await store.fail(ref(), failures(claim, None))
    topology = await completed(1)
    assert topology.versions.keys() == {2}
    assert sorted(letter.stored_id for letter in await store.dead_letters(ref(0, 2))) == [b"a", b"b"]
