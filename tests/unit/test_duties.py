"""When each duty of a leader is due, and what it does: on a queue in memory, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from headrace import JobSpec, Producer, QueueSettings, Retention
from headrace.deletion import delete_queue
from headrace.election.fence import Token
from headrace.envelope import encode_body
from headrace.errors import Fenced
from headrace.lifecycle import configure, promote
from headrace.maintenance import Duty, Signs
from headrace.maintenance.drained_versions import DrainedVersions
from headrace.maintenance.lost_hints import LostHints
from headrace.maintenance.migration import Migration
from headrace.maintenance.parked_limits import INTERVAL as PARKED_SECONDS
from headrace.maintenance.parked_limits import LimitedParking
from headrace.maintenance.retention import INTERVAL as RETENTION_SECONDS
from headrace.maintenance.retention import BoundedRetention
from headrace.maintenance.statistics import FreshStatistics
from headrace.maintenance.turn import Turn
from headrace.maintenance.unfinished_changes import DELETION_SECONDS, UnfinishedChanges
from headrace.settings import DrainSettings
from headrace.stores.base import Fence, NewJob, ParkedLimits, Release, Settled, Success, Unknown
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef, Topology

QUEUE = "emails"


class Counting(MemoryStore):
    """Counts the calls of duties by method."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name not in ("settle", "mark", "counts", "hint", "close_partition", "survey", "trim", "trim_parked"):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return await method(*args, **options)

        return call


class Scene:
    """A queue, a leader's signs of it, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.store = Counting(lambda: int(self.now * 1000))
        self.signs = Signs()
        self.token = Token(1, "n")
        self.reread = 0

    async def read(self) -> Topology:
        """Read the topology, as the leader's worker does."""
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        self.signs.read(topology)
        return topology

    def due(self, duty: Duty) -> float | None:
        at = duty.due(self.signs, self.now)
        return None if at is None else at - self.now

    async def run(self, duty: Duty) -> Counter[str]:
        """Run a duty, which must be due; the calls that it made."""
        assert (due := self.due(duty)) is not None
        assert due <= 0
        self.store.calls.clear()

        async def pause(seconds: float) -> None:
            self.now += seconds

        def reread() -> None:
            self.reread += 1

        turn = Turn(QUEUE, self.store, lambda: self.token, reread, lambda: self.now, pause)
        await duty.run(turn, self.signs)
        return self.store.calls


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
    assert await scene.store.write_topology(first.epoch, target)
    await scene.read()
    calls = await scene.run(duty)
    assert (calls["settle"], calls["mark"]) == (5, 2)
    states = [each.state for each in await scene.store.counts([*target.refs(1), *target.refs(2)])]
    assert states == ["draining", "draining", "active", "active", "active"]
    assert scene.due(duty) is None


async def test_a_deletion_that_nobody_ends_is_ended_after_a_while(scene: Scene) -> None:
    duty = UnfinishedChanges()
    await promote(scene.store, QUEUE, 1, 2)
    topology = await scene.read()
    await scene.run(duty)
    assert await scene.store.write_topology(topology.epoch, topology.condemned())
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


class Held:
    def __init__(self, ref: PartitionRef) -> None:
        self.ref = ref


async def held(store: MemoryStore, topology: Topology) -> list[Held]:
    refs = topology.refs(topology.active)
    return [Held(ref) for ref, each in zip(refs, await store.counts(refs), strict=True) if each.live]


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


async def held_in(store: MemoryStore, version: int) -> list[Held]:
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    refs = topology.refs(version)
    return [Held(ref) for ref, each in zip(refs, await store.counts(refs), strict=True) if each.live]


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


def moving(**drain: Any) -> QueueSettings:
    return QueueSettings(drain=DrainSettings(**drain))


async def test_waiting_jobs_move_and_what_runs_follows_when_it_comes_back(scene: Scene) -> None:
    duty = Migration()
    await promote(scene.store, QUEUE, 1, 4, settings=moving(policy="migrate"))
    producer = Producer(scene.store)
    await producer.enqueue_many(QUEUE, [JobSpec("x", None, id=f"job-{n}", delay=3600) for n in range(250)])
    await producer.enqueue(QUEUE, "x", None, id="runs")
    (ref,) = [each.ref for each in await held_in(scene.store, 1) if await ready(scene.store, each.ref)]
    claim = await scene.store.claim(ref, "w", 1, 1, 60_000)
    await scene.read()
    assert scene.due(duty) is None  # nothing drains
    await promote(scene.store, QUEUE, 2, 2)
    await scene.read()
    await scene.run(duty)
    assert await live(scene.store, 1) == {"leased": 1}
    assert await live(scene.store, 2) == {"scheduled": 250}
    assert scene.due(duty) == 1.5

    await scene.store.release(ref, [Release(claim.jobs[0].key, claim.token)])
    scene.now += 2
    await scene.run(duty)
    assert await live(scene.store, 1) == {}
    assert await live(scene.store, 2) == {"scheduled": 250, "ready": 1}


async def ready(store: MemoryStore, ref: PartitionRef) -> bool:
    return (await store.counts([ref]))[0].ready > 0


async def live(store: MemoryStore, version: int) -> dict[str, int]:
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    total: Counter[str] = Counter()
    for each in await store.counts(topology.refs(version)):
        total.update(each.nonempty())
    return dict(total)


async def test_marks_that_a_dead_leader_left_are_forgotten_whatever_the_settings_say(scene: Scene) -> None:
    await promote(scene.store, QUEUE, 1, 1)
    await Producer(scene.store).enqueue(QUEUE, "x", None, id="later", delay=3600)
    await promote(scene.store, QUEUE, 2, 1)
    topology = await scene.read()
    source, target, fence = PartitionRef(QUEUE, 1, 0), PartitionRef(QUEUE, 2, 0), Fence(1, "n")
    aside = await scene.store.set_aside(source, fence, 2, 100)
    await scene.store.adopt(target, 1, fence, source, aside)
    await scene.store.let_go(source, fence, [job.stored_id for job in aside])
    assert (await scene.store.counts([target]))[0].arrived == 1  # and the leader died
    duty = Migration()
    await scene.run(duty)
    assert (await scene.store.counts([target]))[0].arrived == 0
    assert scene.due(duty) is None
    assert topology.settings.drain.policy == "wait"


@pytest.mark.parametrize(("owner", "dead"), [(None, 1), ({"name": "emails"}, 0)])
async def test_jobs_of_a_drain_that_timed_out_are_buried_unless_an_operator_does_it(
    scene: Scene, owner: dict[str, str] | None, dead: int
) -> None:
    duty = Migration()
    settings = moving(timeout_ms=60_000, on_timeout="dead_letter")
    await promote(scene.store, QUEUE, 1, 1, settings=settings, owner=owner)
    await Producer(scene.store).enqueue(QUEUE, "x", None, delay=3600)
    await promote(scene.store, QUEUE, 2, 1)
    await scene.read()
    await scene.run(duty)
    assert await live(scene.store, 1) == {"scheduled": 1}
    assert scene.due(duty) == pytest.approx(30, abs=1)
    scene.now += 61
    await scene.run(duty)
    assert (await live(scene.store, 1)).get("dead", 0) == dead


async def test_a_leader_of_the_past_is_refused_and_a_younger_one_goes_on(scene: Scene) -> None:
    await promote(scene.store, QUEUE, 1, 1, settings=moving(policy="migrate"))
    await Producer(scene.store).enqueue(QUEUE, "x", None, delay=3600)
    await promote(scene.store, QUEUE, 2, 1)
    await scene.read()
    await scene.store.fence(PartitionRef(QUEUE, 1, 0), Fence(7, "younger"))
    with pytest.raises(Fenced) as refused:
        await scene.run(Migration())
    assert (refused.value.epoch, refused.value.newer) == (1, 7)
    assert await live(scene.store, 1) == {"scheduled": 1}
    scene.token = Token(8, "next")
    await scene.run(Migration())
    assert await live(scene.store, 1) == {}


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
