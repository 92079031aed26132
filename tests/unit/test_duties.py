"""When each duty of a leader is due, and what it does: on a queue in memory, step by step."""

from __future__ import annotations

import pytest

from headrace import JobSpec, Producer, QueueSettings, Retention
from headrace.deletion import delete_queue
from headrace.envelope import encode_body
from headrace.lifecycle import configure, promote
from headrace.maintenance.drained_versions import DrainedVersions
from headrace.maintenance.lost_hints import LostHints
from headrace.maintenance.parked_limits import INTERVAL as PARKED_SECONDS
from headrace.maintenance.parked_limits import LimitedParking
from headrace.maintenance.retention import INTERVAL as RETENTION_SECONDS
from headrace.maintenance.retention import BoundedRetention
from headrace.maintenance.statistics import FreshStatistics
from headrace.maintenance.unfinished_changes import DELETION_SECONDS, UnfinishedChanges
from headrace.stores.base import NewJob, ParkedLimits, Settled, Success, Unknown
from headrace.topology import PartitionRef
from tests.unit.duty_scene import QUEUE, Scene, held, held_in


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_promotion_that_died_after_its_topology_was_written_is_finished_once(scene: Scene) -> None:
    duty = UnfinishedChanges()
    await promote(scene.store, QUEUE, 1, 2)
    first = await scene.read()
    assert (await scene.run(duty))["settle"] == 2
    assert scene.due(duty) is None

    target = first.promoted(2, 3)
    await scene.store.install(PartitionRef(QUEUE, 2, 0), target, 3)
    assert await scene.store.write_topology(first, target)
    await scene.read()
    calls = await scene.run(duty)
    assert (calls["settle"], calls["mark"]) == (5, 2)
    states = [each.state for each in await scene.store.counts([*target.refs(1), *target.refs(2)])]
    assert states == ["draining", "draining", "active", "active", "active"]
    assert scene.due(duty) is None


async def test_what_had_to_be_written_again_is_settled_once(scene: Scene) -> None:
    """A partition goes by settings that a failover has forgotten."""
    duty = UnfinishedChanges()
    await promote(scene.store, QUEUE, 1, 2)
    first = await scene.read()
    forgotten = first.configured(QueueSettings(stop="hold"))
    await scene.store.settle(PartitionRef(QUEUE, 1, 0), forgotten)
    assert (await scene.run(duty))["settle"] == 4
    assert (scene.reread, scene.due(duty)) == (1, None)
    raised = await scene.read()
    assert raised.epoch == forgotten.epoch + 1
    assert scene.due(duty) is None
    # That is forgotten, too: it is not what was done.
    assert await scene.store.write_topology(raised, first)
    await scene.read()
    assert scene.due(duty) == 0


async def test_a_deletion_that_nobody_ends_is_ended_after_a_while(scene: Scene) -> None:
    duty = UnfinishedChanges()
    await promote(scene.store, QUEUE, 1, 2)
    topology = await scene.read()
    await scene.run(duty)
    assert await scene.store.write_topology(topology, topology.condemned())
    await scene.read()
    assert scene.due(duty) == DELETION_SECONDS
    scene.now += DELETION_SECONDS
    await scene.run(duty)
    assert await scene.store.read_topology(QUEUE) is None
    assert scene.reread == 1
    assert (await delete_queue(scene.store, QUEUE)).partitions == 0


async def test_hints_are_raised_where_jobs_are_at_the_begin_after_an_outage_and_after_a_promotion(scene: Scene) -> None:
    duty = LostHints()
    await promote(scene.store, QUEUE, 1, 8)
    producer = Producer(scene.store)
    await producer.enqueue_many(QUEUE, [JobSpec("x", None, id=f"job-{n}") for n in range(3)])
    await producer.enqueue(QUEUE, "x", None, id="later", delay=60)
    topology = await scene.read()
    holding = {each.ref for each in await held(scene.store, topology)}
    while await scene.store.wait_hint([QUEUE], 0.01) is not None:
        pass  # taken by a worker that dies

    calls = await scene.run(duty)
    assert (calls["counts"], calls["hint"]) == (8, len(holding))
    found = set()
    while (hint := await scene.store.wait_hint([QUEUE], 0.01)) is not None:
        found.add(hint)
    assert found == holding

    assert scene.due(duty) is None
    scene.signs.noticed()
    assert scene.due(duty) is None
    scene.signs.came_back()
    await scene.run(duty)
    assert scene.due(duty) is None
    await promote(scene.store, QUEUE, 2, 1)
    await scene.read()
    assert (await scene.run(duty))["counts"] == 9


async def test_hints_of_parked_jobs_are_raised_with_the_others(scene: Scene) -> None:
    await promote(scene.store, QUEUE, 1, 1)
    await Producer(scene.store).enqueue(QUEUE, "x", None)
    ref = PartitionRef(QUEUE, 1, 0)
    claim = await scene.store.claim(ref, "w", 1, 1, 1000)
    await scene.store.park(ref, [Unknown(claim.jobs[0].key, claim.token, "x")])
    (held_since,) = (await scene.store.parked_partitions(QUEUE)).values()
    scene.store._data.queue(QUEUE).parked.clear()
    await scene.read()
    await scene.run(LostHints())
    assert list(await scene.store.parked_partitions(QUEUE)) == [ref]
    assert (await scene.store.parked_partitions(QUEUE))[ref] >= held_since


async def test_a_drained_version_is_removed_and_looked_at_no_more_often_than_it_changes(scene: Scene) -> None:
    duty = DrainedVersions()
    await promote(scene.store, QUEUE, 1, 4)
    await scene.read()
    assert scene.due(duty) is None  # nothing drains
    await Producer(scene.store).enqueue(QUEUE, "x", None, id="later", delay=20)
    await promote(scene.store, QUEUE, 2, 1)
    await scene.read()
    assert (await scene.run(duty))["close_partition"] == 4
    # The other partitions are closed; the last one is worth a look when its job is due.
    assert scene.due(duty) == pytest.approx(20, abs=0.1)
    scene.now += 21
    assert (await scene.run(duty))["close_partition"] == 1
    assert scene.due(duty) == 1.5  # while it runs, soon

    (ref,) = (each.ref for each in await held_in(scene.store, 1))
    claim = await scene.store.claim(ref, "w", 1, 1, 30_000)
    await scene.store.ack(ref, [Settled(claim.jobs[0].key, claim.token)])
    scene.now += 2
    await scene.run(duty)
    topology = await scene.read()
    assert set(topology.versions) == {2}
    assert scene.reread == 1
    assert scene.due(duty) is None


async def test_a_version_that_producers_may_resend_to_waits(scene: Scene) -> None:
    duty = DrainedVersions()
    await promote(scene.store, QUEUE, 1, 2)
    await promote(scene.store, QUEUE, 2, 2)
    await scene.read()
    await scene.run(duty)
    assert scene.due(duty) == pytest.approx(5, abs=0.2)
    assert set((await scene.read()).versions) == {1, 2}
    scene.now += 5.1
    await scene.run(duty)
    assert set((await scene.read()).versions) == {2}


async def test_the_versions_of_an_operator_are_left_to_it(scene: Scene) -> None:
    duty = DrainedVersions()
    await promote(scene.store, QUEUE, 1, 2, owner={"name": "emails"})
    await promote(scene.store, QUEUE, 2, 2)
    await scene.read()
    assert scene.due(duty) is None


async def test_statistics_are_fresh_while_something_happens_and_not_measured_while_nothing_does(scene: Scene) -> None:
    duty = FreshStatistics()
    assert scene.due(duty) is None
    await promote(scene.store, QUEUE, 1, 4)
    await scene.read()
    assert (await scene.run(duty))["survey"] == 1
    assert scene.due(duty) is None
    scene.now += 3600
    assert scene.due(duty) is None

    scene.signs.noticed()
    assert await scene.run(duty)
    scene.signs.noticed()
    assert scene.due(duty) == pytest.approx(2)
    scene.now += 2
    await scene.run(duty)
    assert scene.due(duty) is None  # once more after the last sign, and no more
    found = await scene.store.read_stats(QUEUE)
    assert found is not None
    assert found.measured_at == pytest.approx(scene.now * 1000, abs=5)


async def test_statistics_of_a_queue_that_is_gone_wait_for_the_topology(scene: Scene) -> None:
    duty = FreshStatistics()
    await promote(scene.store, QUEUE, 1, 1)
    await scene.read()
    await delete_queue(scene.store, QUEUE)
    await scene.run(duty)
    assert scene.reread == 1
    assert scene.due(duty) == pytest.approx(2)


async def test_QD2_a_retention_is_kept_to_when_it_changes_and_while_something_happens(scene: Scene) -> None:
    duty = BoundedRetention()
    retention = Retention(done_count=50)
    await promote(scene.store, QUEUE, 1, 2, settings=QueueSettings(retention=retention))
    await scene.read()
    assert (await scene.run(duty))["trim"] == 2
    assert scene.due(duty) is None  # nothing happens
    ref = PartitionRef(QUEUE, 1, 0)
    for number in range(40):
        job = NewJob(b"1%d" % number, 0, encode_body("send", None))
        await scene.store.enqueue(ref, 2, b"n%d" % number, [job])
        claim = await scene.store.claim(ref, "w", number, 1, 1000)
        await scene.store.ack(ref, [Settled(claim.jobs[0].key, claim.token)], [Success("send", 0)])
    scene.signs.noticed()
    assert scene.due(duty) == RETENTION_SECONDS
    await configure(scene.store, QUEUE, QueueSettings(retention=Retention(done_count=4)))
    await scene.read()
    assert scene.due(duty) == 0  # a bound was lowered
    assert (await scene.run(duty))["trim"] > 3  # in bounded steps
    kept = [job for batch in await scene.store.finished(ref) for job in batch.jobs]
    assert len(kept) == 2  # the partition's part
    scene.signs.noticed()
    scene.now += RETENTION_SECONDS
    assert scene.due(duty) == 0
    await scene.run(duty)
    await configure(scene.store, QUEUE, QueueSettings())
    await scene.read()
    await scene.run(duty)
    assert await scene.store.finished(ref) == []
    scene.signs.noticed()
    assert scene.due(duty) is None  # nothing is bounded, so there is nothing to look after


async def test_what_was_measured_is_told(scene: Scene) -> None:
    told: list[tuple[str, int]] = []
    duty = FreshStatistics(lambda queue, statistics: told.append((queue, statistics.total("ready"))))
    await promote(scene.store, QUEUE, 1, 1)
    await scene.read()
    await Producer(scene.store).enqueue_many(QUEUE, [JobSpec("send"), JobSpec("send")])
    await scene.run(duty)
    assert told == [(QUEUE, 2)]


async def park(scene: Scene, *names: str, partitions: int = 1) -> None:
    """Enqueue jobs and park them, as a worker that does not know their type does."""
    await Producer(scene.store).enqueue_many(QUEUE, [JobSpec("new", None, id=name) for name in names])
    for ref in (PartitionRef(QUEUE, 1, number) for number in range(partitions)):
        claim = await scene.store.claim(ref, "worker", int(scene.now * 1000), 256, 30_000)
        await scene.store.park(ref, [Unknown(job.key, claim.token, "new") for job in claim.jobs])
    scene.signs.noticed()


async def test_J15_without_a_limit_nothing_is_looked_at(scene: Scene) -> None:
    await promote(scene.store, QUEUE, 1, 1)
    await scene.read()
    await park(scene, "a")
    assert scene.due(LimitedParking(ParkedLimits())) is None


async def test_J15_jobs_parked_for_too_long_die_by_and_by_and_the_look_ends_with_them(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    duty = LimitedParking(ParkedLimits(age_ms=100_000))
    await promote(scene.store, QUEUE, 1, 1)
    await scene.read()
    await scene.run(duty)
    assert scene.due(duty) is None  # nothing is parked, and nothing has happened since
    await park(scene, "old")
    scene.now += 90
    await park(scene, "young")
    await scene.run(duty)
    assert await scene.store.parked(PartitionRef(QUEUE, 1, 0)) == {"new": 2}
    assert scene.due(duty) == 5  # a twentieth of the limit
    scene.now += 11
    assert (await scene.run(duty))["trim_parked"] == 1
    assert await scene.store.parked(PartitionRef(QUEUE, 1, 0)) == {"new": 1}
    assert "1 parked job(s) are dead letters now" in caplog.text
    scene.now += 90
    await scene.run(duty)
    scene.now += 5
    await scene.run(duty)
    assert await scene.store.parked_partitions(QUEUE) == {}
    assert scene.due(duty) is None


async def test_J15_each_partition_keeps_its_part_of_the_number_that_may_wait(scene: Scene) -> None:
    duty = LimitedParking(ParkedLimits(jobs=5))
    await promote(scene.store, QUEUE, 1, 2)
    await scene.read()
    await park(scene, *(f"job-{number}" for number in range(40)), partitions=2)
    await scene.run(duty)
    left = [await scene.store.parked(PartitionRef(QUEUE, 1, number)) for number in range(2)]
    assert left == [{"new": 3}, {"new": 3}]
    assert scene.due(duty) == PARKED_SECONDS
