"""Every step of the Store protocol, on every set-up, in partitions that lie on every master of the Cluster."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from headrace import App, Context, JobSpec, Producer, WorkerSettings
from headrace import Worker as RealWorker
from headrace.deletion import delete_queue
from headrace.lifecycle import complete, configure, promote
from headrace.migration import move_jobs
from headrace.schedules.mark import ScheduleMark
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Fence, Moved, ParkedLimits, Settled, Sought, Store, Success, TrimmedParked, Unknown
from headrace.stores.redis.keys import Keys
from headrace.topology import PartitionRef, Topology
from tests.conformance.actors import LOOKS, Gate
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    enqueue,
    failures,
    fresh_nonce,
    ids,
    key,
    new,
    no_pause,
    ref,
    releases,
    settled,
    sizes,
    stored_topology,
)
from tests.services.redis import RedisServer
from tests.services.redis_setups import RedisSetups

PARTITIONS = 48
"""So many that each of three masters has some of them, whatever the prefix of the test."""


ELSEWHERE = {
    "close": "the end of the connection",
    **dict.fromkeys(
        ("stored_partitions", "stored_queues"),
        "looks through all keys of the servers, which few users may: integration/test_audit.py",
    ),
}


def steps() -> set[str]:
    """Steps on a partition, which go to whatever master has it, and on a queue or the server."""
    return {name for name, method in inspect.getmembers(Store, inspect.iscoroutinefunction)} - set(ELSEWHERE)


def successor_in(store: Store) -> Callable[[PartitionRef], Awaitable[Topology]]:
    """Ask a partition that was marked for its successor."""

    async def ask(at: PartitionRef) -> Topology:
        successor = await store.successor(at)
        assert successor is not None
        return successor

    return ask


async def life_of_jobs(store: Store, at: PartitionRef) -> None:
    """Take jobs of one partition through every state, until it is empty."""
    worker = Worker(store, f"worker-{at.partition}")
    jobs = [new(f"{name}-{at.partition}") for name in ("done", "failed", "released", "parked", "buried", "lost")]
    later = new(f"later-{at.partition}", when=-1)
    await enqueue(store, *jobs, later, at=at, partitions=PARTITIONS)
    claim = await worker.claim(6, at=at)
    assert len(claim.jobs) == 6
    again = await store.resume(at, worker.name, worker.seq, LONG_MS)
    assert sorted(again.jobs) == sorted(claim.jobs)
    leases = dict(zip(("done", "failed", "released", "parked", "buried", "lost"), settled(claim), strict=True))
    assert await store.renew(at, list(leases.values()), LONG_MS) == []
    audit = await store.audit_partition(at, repair=True, pause=no_pause)
    assert (audit.records, list(audit.leftovers), audit.proven) == (7, [], True)
    assert [each and each.state for each in (await store.statuses(at, [job.key[1:] for job in jobs])).live] == [
        "leased"
    ] * 6
    described = await store.describe(at, jobs[0].key[1:])
    assert described is not None
    assert described.live.worker == worker.name
    assert await store.ack(at, [leases["done"]], [Success("send", 0)]) == []
    assert [len(batch.jobs) for batch in await store.finished(at)] == [1]
    assert (await store.find_finished(at, [jobs[0].key[1:]])).jobs.keys() == {jobs[0].key[1:]}
    assert await store.fail(at, failures(claim, 0)[1:2]) == []
    assert await store.release(at, releases(claim)[2:3]) == []
    unknown = [Unknown(*leases[name], kind) for name, kind in (("parked", "x"), ("buried", "y"))]
    assert await store.park(at, unknown) == []
    assert await store.parked(at) == {"x": 1, "y": 1}
    assert (await store.parked_partitions(QUEUE)).keys() >= {at}
    assert await store.unpark(at, ["x"]) == 1
    assert await store.trim_parked(at, "y", ParkedLimits(1)) == TrimmedParked(0, b"")
    assert await store.bury_parked(at, "y") == 1
    letters = await store.dead_letters(at)
    assert (await store.find_dead(at, [letters[0].stored_id])).letters == {letters[0].stored_id: letters[0]}
    assert await store.trim(at) == (0, 0)
    assert await store.remove_dead(at, [letter.letter for letter in letters]) == 1
    assert await store.renew(at, [leases["lost"]], 1) == []
    ran: list[str] = []
    async with asyncio.timeout(60):
        while len(ran) < 5:
            await store.recover(at)
            await store.promote_due(at)
            claim = await worker.claim(at=at)
            assert await store.ack(at, settled(claim)) == []
            ran += ids(claim)
            await asyncio.sleep(0.002)
    assert sorted(ran) == sorted(f"{name}-{at.partition}" for name in ("failed", "released", "parked", "lost", "later"))
    assert await store.ack(at, [Settled(key("done"), b"nobody:1")]) == [0]
    assert await sizes(store, at) == {}
    await enqueue(store, f"unwanted-{at.partition}", f"spam-{at.partition}", at=at, partitions=PARTITIONS)
    assert await store.withdraw(at, [key(f"unwanted-{at.partition}")[1:]], running=False) == ["ready"]
    assert len(await store.browse(at, "r1")) == 1
    assert (await store.purge(at, "r1", Sought(1 << 50), 0)).matching == 1
    assert (await store.sleep(at, 0)).asleep
    await enqueue(store, f"woken-{at.partition}", at=at, partitions=PARTITIONS)
    assert await store.ack(at, settled(await worker.claim(at=at))) == []


async def move(store: Store, source: PartitionRef) -> None:
    """Move the one job of a partition to the active version."""
    fence = Fence(1, "leader")
    await store.fence(source, fence)
    (aside,) = await store.set_aside(source, fence, 2, 10)
    assert await store.still_aside(source, [aside.stored_id]) == [True]
    await store.retarget(source, fence, [aside.stored_id], 2)
    assert await move_jobs(store, source, fence) == 1
    assert await store.arrivals(ref(0, 2)) == []
    assert ids(await Worker(store, "mover").claim(at=ref(0, 2))) == ["waits"]


async def life_of_the_queue(store: Store) -> None:
    """What concerns no single partition: registry, schedules, statistics, naps, and the servers themselves."""
    await store.check()
    assert all(server.version for server in await store.facts())
    assert len(await store.memory()) == len(await store.facts())
    assert QUEUE in await store.queues()
    await store.stop_claiming(QUEUE, ["worker"], 1000)
    assert [entry.worker for entry in await store.workers(QUEUE)] == ["worker"]
    assert [entry.worker for entry in await store.about_workers(QUEUE, ["worker"])] == ["worker"]
    fence, mark = Fence(1, "leader"), ScheduleMark(1, "0 3 * * *")
    assert await store.note_schedule(QUEUE, fence, "nightly", None, mark)
    assert (await store.read_schedules(QUEUE)).marks == {"nightly": mark}
    assert await store.forget_schedule(QUEUE, "nightly", mark)
    assert await store.write_scaling(QUEUE, b"1")
    cursor = await store.last_wake()
    assert (await store.wait_wakes(cursor, 0.01)).queues == ()
    assert await store.audit_keys(QUEUE, repair=False, pause=no_pause) == []
    await store.hint(PartitionRef(QUEUE, 7, 7))
    assert (await store.glance(QUEUE)).ready
    assert b"7:7" in await store.hinted_labels(QUEUE)
    assert await store.forget_hints(await stored_topology(store), b"7:7")
    assert b"7:7" not in await store.hinted_labels(QUEUE)


async def test_QE1_QE5_every_step_works_in_every_partition(store: Store, advance: Advance) -> None:
    gate = Gate(store)
    through = gate.store
    assert await through.read_marker() is None
    await through.write_marker("data")
    topology = await promote(through, QUEUE, 1, PARTITIONS, settings=QueueSettings(retention=Retention()))
    living = asyncio.gather(*(life_of_jobs(through, at) for at in topology.refs(1)))
    while not living.done():  # for memory, whose time passes when told
        await advance(2)
        await asyncio.sleep(0.002)
    await living
    await through.hint(ref(7))
    async with asyncio.timeout(60):
        while await through.wait_hint([QUEUE], 0.1) != ref(7):
            pass
    await through.hint_parked(ref(7), 1)
    assert ref(7) in await through.parked_partitions(QUEUE)
    assert await through.unpark(ref(7), ["send"]) == 0  # nothing is parked there, so the hint goes in a Cluster
    assert await summarise(through, QUEUE) is not None
    assert await through.count_work(QUEUE, {"claimed": 1})
    await through.tick(QUEUE, "worker")
    await life_of_the_queue(through)
    await through.leave(QUEUE, "worker")

    await configure(through, QUEUE, QueueSettings(timeout_ms=1000, retention=Retention()))
    await enqueue(through, "old", "dead", at=ref(5), partitions=PARTITIONS)
    buried = await Worker(through, "gravedigger").claim(at=ref(5))
    await through.fail(ref(5), failures(buried, None)[1:])
    await through.release(ref(5), releases(buried)[:1])
    await enqueue(through, "waits", at=ref(6), partitions=PARTITIONS)
    await enqueue(through, "too long", at=ref(7), partitions=PARTITIONS)
    newer = await promote(through, QUEUE, 2, 1)
    await move(through, ref(6))
    assert await through.bury_waiting(ref(7), "drained too long") == 1
    assert await through.probe(ref(5), newer, [(key("old"), b""), (key("other"), b"")]) == [True, False]
    assert {each.epoch for each in await asyncio.gather(*map(successor_in(store), topology.refs(1)))} == {newer.epoch}
    assert await store.replicated(QUEUE, topology.refs(1))
    refused = await through.enqueue(ref(5), PARTITIONS, fresh_nonce(), [new("late")])
    assert isinstance(refused, Moved)
    worker = Worker(through)
    assert await through.ack(ref(5), settled(await worker.claim(at=ref(5)))) == []
    await complete(through, QUEUE, 1, client_retry_ms=0)
    assert {each.state for each in await through.counts(topology.refs(1))} == {"tombstone"}
    unpromoted = PartitionRef(QUEUE, 3, 0)
    await through.install(unpromoted, newer.promoted(3, 1), 1)
    assert await through.discard(unpromoted)
    await delete_queue(through, QUEUE)
    await delete_queue(through, QUEUE)  # as whoever does not know that it was done

    done = {step.partition(" ")[0] for step in gate.steps}
    missing = steps() - LOOKS - done
    assert not missing, "add what is new to this walk"


async def test_QE3_P3_partitions_of_one_queue_lie_on_every_master(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups
) -> None:
    """Their jobs are where the keys say, each master has a share, and so has the work of claims."""
    topology = await promote(store, QUEUE, 1, PARTITIONS)
    for at in topology.refs(1):
        await enqueue(store, f"job-{at.partition}", at=at, partitions=PARTITIONS)
    if backend == "cluster":
        keys, holding = Keys(prefix, hinted=False), dict.fromkeys(redis_setups.cluster.masters, 0)
        for at in topology.refs(1):
            holder = redis_setups.cluster.holder(keys.partition(at, "jobs"))
            with holder.client() as node:
                holding[holder] += node.hlen(keys.partition(at, "jobs"))
        assert len(holding) == 3
        assert min(holding.values()) >= 4
        assert sum(holding.values()) == PARTITIONS
    claims = await asyncio.gather(*(Worker(store, f"w{at.partition}").claim(at=at) for at in topology.refs(1)))
    assert sorted(job for claim in claims for job in ids(claim)) == sorted(f"job-{n}" for n in range(PARTITIONS))


async def test_QE3_a_hot_queue_gives_every_master_the_work_of_its_partitions(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups
) -> None:
    """Counted by the masters: a producer and a worker that know nothing of masters make each of them run scripts."""
    topology = await promote(store, QUEUE, 1, PARTITIONS)
    app, ran = App(), set[str]()

    @app.handler("send")
    async def send(ctx: Context, payload: object) -> None:
        ran.add(ctx.job.id)

    def scripts_run(server: RedisServer) -> int:
        with server.client() as node:
            return int(node.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])

    masters = redis_setups.cluster.masters if backend == "cluster" else []
    before = [scripts_run(master) for master in masters]
    placed = await Producer(store).enqueue_many(QUEUE, [JobSpec("send", n) for n in range(960)])
    worker = RealWorker(app, store, WorkerSettings(queues=(QUEUE,), concurrency=32))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while len(ran) < len(placed) or any(each.live for each in await store.counts(topology.refs(1))):
            await asyncio.sleep(0.02)
    await worker.stop()
    await running
    assert {job.partition for job in placed} == set(range(PARTITIONS))
    keys = Keys(prefix, hinted=False)
    for master, earlier in zip(masters, before, strict=True):
        holds = [at for at in topology.refs(1) if redis_setups.cluster.holder(keys.partition(at, "meta")) is master]
        assert len(holds) >= 4
        # Of each of its partitions an enqueue, and a claim with or without the acknowledgement, at the least.
        assert scripts_run(master) - earlier >= 2 * len(holds)
