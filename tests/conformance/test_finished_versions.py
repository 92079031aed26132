"""Finished jobs over all versions: listed by the time of their end, and carried over when their version is removed."""

from __future__ import annotations

from headrace.finished import carry_over, finished_jobs
from headrace.ids import decode_id, partition_of
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import FinishedBatch, FinishedJob, Settled, Store, Success
from headrace.topology import PartitionRef
from tests.conformance.actors import Gate, Killed
from tests.conformance.conftest import Advance, Complete
from tests.conformance.steps import QUEUE, Worker, enqueue, ref, stored_topology


async def keeping(store: Store, partitions: int, **retention: int) -> None:
    await promote(store, QUEUE, 1, partitions, settings=QueueSettings(retention=Retention(**retention)))


async def finish(store: Store, advance: Advance, *names: str) -> None:
    """Take jobs through their life in the active version, one after the other, no two at the same time."""
    for name in names:
        topology = await stored_topology(store)
        at = PartitionRef(QUEUE, topology.active, partition_of(name, topology.partitions))
        await enqueue(store, name, at=at, partitions=topology.partitions)
        claim = await Worker(store, f"w-{name}").claim(at=at)
        lease = Settled(claim.jobs[0].key, claim.token)
        assert await store.ack(at, [lease], [Success("send", 0, name.encode())]) == []
        await advance(2)


async def listed(store: Store, *, newest_first: bool = True) -> list[str]:
    return [decode_id(each.job.stored_id) async for each in finished_jobs(store, QUEUE, newest_first=newest_first)]


async def test_jobs_of_all_partitions_and_versions_are_listed_by_time(store: Store, advance: Advance) -> None:
    await keeping(store, 3)
    assert await listed(store) == []
    names = [f"job-{number}" for number in range(12)]
    await finish(store, advance, *names[:8])
    await promote(store, QUEUE, 2, 2)
    await finish(store, advance, *names[8:])
    assert await listed(store) == names[::-1]
    assert await listed(store, newest_first=False) == names


async def test_M15_what_finished_in_a_version_is_known_when_it_is_gone(
    store: Store, advance: Advance, completed: Complete
) -> None:
    await keeping(store, 3)
    names = [f"job-{number}" for number in range(12)]
    await finish(store, advance, *names)
    await promote(store, QUEUE, 2, 5)
    await completed(1)
    assert sorted(await listed(store)) == sorted(names)
    for name, status in (await Producer(store).statuses(QUEUE, names)).items():
        assert (status.state, status.version, status.worker) == ("succeeded", 2, f"w-{name}")
        assert status.partition == partition_of(name, 5)
        assert status.packed_result == name.encode()


async def test_what_is_newer_is_not_pushed_out_by_what_is_carried_over(
    store: Store, advance: Advance, completed: Complete
) -> None:
    await keeping(store, 1, done_count=6)
    await finish(store, advance, *(f"old-{number}" for number in range(6)))
    await promote(store, QUEUE, 2, 1)
    await finish(store, advance, *(f"new-{number}" for number in range(4)))
    await completed(1)
    # Those that were carried over stand behind the partition's own, since a stream only grows at its end.
    assert await listed(store, newest_first=False) == ["new-0", "new-1", "new-2", "new-3", "old-5", "old-4"]


async def test_nothing_is_carried_over_where_nothing_is_kept(
    store: Store, advance: Advance, completed: Complete
) -> None:
    await promote(store, QUEUE, 1, 1)
    await finish(store, advance, "a")
    await promote(store, QUEUE, 2, 1)
    await completed(1)
    assert await listed(store) == []


async def test_a_carrying_over_that_dies_anywhere_loses_nothing(store: Store, advance: Advance) -> None:
    """What was given, and not yet removed, may be there twice."""
    await keeping(store, 2)
    names = [f"job-{number}" for number in range(6)]
    await finish(store, advance, *names)
    topology = await promote(store, QUEUE, 2, 2)
    for steps in range(20):
        gate = Gate(store)
        gate.kill_after = steps
        try:
            await carry_over(gate.store, topology, 1)
        except Killed:
            assert set(await listed(store)) == set(names)
            continue
        break
    assert set(await listed(store)) == set(names)
    assert [await store.finished(at) for at in topology.refs(1)] == [[], []]


async def test_jobs_are_adopted_by_the_active_version_only(store: Store, advance: Advance) -> None:
    await keeping(store, 1)
    now = (await store.counts([ref()]))[0].now
    batch = FinishedBatch(b"1-1", (FinishedJob(b"x", "send", 0, b"", now, "w"),))
    incarnation = (await stored_topology(store)).incarnation
    assert await store.adopt_finished(ref(), [batch], incarnation + 1) is None
    assert await store.adopt_finished(ref(), [batch], incarnation) == 1
    too_old = FinishedBatch(b"1-0", (FinishedJob(b"y", "send", 0, b"", now - 3_600_000, "w"),))
    assert await store.adopt_finished(ref(), [too_old], incarnation) == 0
    await promote(store, QUEUE, 2, 1)
    assert await store.adopt_finished(ref(), [batch], incarnation) is None
    assert await store.adopt_finished(PartitionRef(QUEUE, 9, 0), [batch], incarnation) is None
    (kept,) = await store.finished(ref())
    assert kept.jobs == batch.jobs
    assert await store.forget_finished(ref(), [kept.entry, b"7-7"]) == 1
    assert await store.finished(ref()) == []
    assert await store.forget_finished(ref(), []) == 0
