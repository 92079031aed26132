"""What somebody else has written into one key is the trouble of one partition, or of one queue: the rest runs on."""

from __future__ import annotations

import logging

import pytest

from headrace import App, Context, JobSpec, Store
from headrace.audit import audit
from headrace.errors import DataDamaged
from headrace.ids import new_id, partition_of
from headrace.producer import Producer
from headrace.stores.base import Claim, Settled
from headrace.topology import PartitionRef
from headrace.worker.outage import Backoff
from tests.conformance.steps import Worker
from tests.integration.damage.damages import replaced
from tests.integration.damage.hand import Hand
from tests.integration.worker.support import QUEUE, eventually, queue, working

OTHER = "letters"


def noting() -> tuple[App, set[str]]:
    """An app whose handler notes the ids that it runs."""
    app, run = App(), set[str]()

    @app.handler("job")
    async def job(ctx: Context, payload: None) -> None:
        run.add(ctx.job.id)

    return app, run


def id_in(partition: int, partitions: int) -> str:
    while partition_of(found := new_id(), partitions) != partition:
        pass
    return found


@pytest.mark.parametrize("key", ["meta", "r1", "suspects", "scheduled", "leased", "lease", "jobs", "mut", "seen"])
async def test_J10_a_damaged_partition_keeps_no_other_from_running(
    store: Store, hand: Hand, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, run = noting()
    producer = await queue(store, partitions=2)
    waiting = [id_in(0, 2) for _ in range(5)]
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=each) for each in waiting])
    replaced(key)(hand)
    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with working(app, store):
            for _ in range(20):
                beside = [id_in(1, 2) for _ in range(5)]
                await producer.enqueue_many(QUEUE, [JobSpec("job", id=each) for each in beside])
                await eventually(lambda: run >= set(beside))  # noqa: B023 - waited for here
            await store.hint(PartitionRef(QUEUE, 1, 0))
            await eventually(lambda: any(hand.key(key) in line.getMessage() for line in caplog.records))
            (line, *_) = (line for line in caplog.records if hand.key(key) in line.getMessage())
            assert f"`headrace audit {QUEUE}`" in line.getMessage()
            assert line.exc_info is None
            mended = await audit(store, QUEUE, load=1.0, repair=True)
            assert mended.open == []
            after = id_in(0, 2)
            await producer.enqueue(QUEUE, "job", None, id=after)
            await eventually(lambda: after in run)
            if key not in ("jobs", "r1", "lease"):  # what was in these keys is gone, and a lease has to end
                await eventually(lambda: run >= set(waiting))


@pytest.fixture
def paused_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried a second time, so that what waits for a second try at damage waits for ever."""
    monkeypatch.setattr(Backoff, "next", lambda self: 3600.0)


async def stumbled(hand: Hand, key: str, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until the worker has met that damage."""
    await eventually(lambda: any(hand.key(key) in line.getMessage() for line in caplog.records))


async def never_heard_of_again(store: Store, claim: Claim, ref: PartitionRef) -> None:
    """Let the leases of a claim end."""
    await store.renew(ref, [Settled(job.key, claim.token) for job in claim.jobs], 1)

    async def ended() -> bool:
        await store.recover(ref)
        return (await store.counts([ref]))[0].leased == 0

    await eventually(ended)


IN_THE_WAY = ["r1", "lease", "leased", "meta"]
"""The first in the way of CLAIM only, the others in that of RESUME too."""


@pytest.mark.parametrize("key", IN_THE_WAY)
@pytest.mark.usefixtures("paused_for_ever")
async def test_J10_a_damaged_partition_keeps_no_suspects_of_another_from_running(
    store: Store, hand: Hand, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, run = noting()
    producer = await queue(store, partitions=2)
    suspects = [id_in(1, 2) for _ in range(6)]
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=each) for each in suspects])
    healthy = PartitionRef(QUEUE, 1, 1)
    doomed = await store.claim(healthy, "doomed", 1, len(suspects), 600_000)
    await producer.enqueue(QUEUE, "job", None, id=id_in(0, 2))
    replaced(key)(hand)
    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with working(app, store):
            await stumbled(hand, key, caplog)
            await never_heard_of_again(store, doomed, healthy)
            await store.hint(healthy)
            await eventually(lambda: run == set(suspects))


@pytest.mark.parametrize("key", IN_THE_WAY)
@pytest.mark.usefixtures("paused_for_ever")
async def test_J10_a_damaged_partition_takes_nothing_of_max_in_flight(
    store: Store, hand: Hand, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, run = noting()
    producer = await queue(store, partitions=2)
    await producer.enqueue_many(QUEUE, [JobSpec("job", id=id_in(0, 2)) for _ in range(4)])
    replaced(key)(hand)
    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with working(app, store, concurrency=4, max_in_flight=4, lease_ms=3_600_000):
            await stumbled(hand, key, caplog)
            for _ in range(10):
                beside = id_in(1, 2)
                await producer.enqueue(QUEUE, "job", None, id=beside)
                await eventually(lambda: beside in run)  # noqa: B023 - waited for here


async def test_J10_damaged_hints_keep_no_other_queue_from_running(
    store: Store, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    app, run = noting()
    await queue(store)
    producer = await queue(store, name=OTHER)
    for key in ("hot", "due", "alarm"):
        replaced(key)(hand)
    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with working(app, store, queues=f"{QUEUE},{OTHER}"):
            first = await producer.enqueue(QUEUE, "job", None)  # producers go on: the job is stored, and waits
            for _ in range(20):
                other = (await producer.enqueue(OTHER, "job", None)).id
                await eventually(lambda: other in run)  # noqa: B023 - waited for here
            await eventually(lambda: any(hand.key("hot") in line.getMessage() for line in caplog.records))
            mended = await audit(store, QUEUE, load=1.0, repair=True)
            assert mended.open == []
            await eventually(lambda: first.id in run)


@pytest.mark.parametrize("key", ["parked", "park"])
async def test_J10_what_becomes_due_does_not_wait_for_damage_beside_it(
    store: Store, hand: Hand, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, run = noting()
    producer = await queue(store, partitions=2)
    await store.hint_parked(PartitionRef(QUEUE, 1, 0), 1)
    replaced(key)(hand)
    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with working(app, store):
            await eventually(lambda: any(hand.key(key) in line.getMessage() for line in caplog.records))
            later = await producer.enqueue(QUEUE, "job", None, id=id_in(1, 2), delay=0.2)
            await eventually(lambda: later.id in run)


async def test_J10_a_producer_is_told_which_key_is_damaged(store: Store, hand: Hand) -> None:
    await queue(store, partitions=2)
    replaced("r1")(hand)
    producer = Producer(store)
    with pytest.raises(DataDamaged, match=r"is a string and not a list.*headrace audit") as told:
        await producer.enqueue(QUEUE, "job", None, id=id_in(0, 2))
    assert (told.value.key, told.value.queue) == (hand.key("r1"), QUEUE)
    assert not (await producer.enqueue(QUEUE, "job", None, id=id_in(1, 2))).existing


async def test_J10_a_step_that_stumbled_once_looks_first_until_the_damage_is_mended(store: Store, hand: Hand) -> None:
    """What goes through meanwhile and does not touch the damaged key, as RESUME, says nothing about it."""
    await queue(store, partitions=2)
    worker, at = Worker(store, "w"), PartitionRef(QUEUE, 1, 0)
    replaced("r1")(hand)
    with pytest.raises(DataDamaged):
        await worker.claim(at=at)
    await store.resume(at, worker.name, worker.seq, 1000)
    hand("RPUSH", "r0", "an id that a claim would take out before it comes to the damaged lane")
    with pytest.raises(DataDamaged, match="is a string and not a list"):
        await worker.claim(at=at)
    assert hand("LLEN", "r0") == 1
    for lane in ("r0", "r1"):
        hand("DEL", lane)
    assert not (await worker.claim(at=at)).jobs
