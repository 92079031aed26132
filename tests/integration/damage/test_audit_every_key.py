"""Whatever a foreign hand does to a key: the audit names it, mends what can be mended, and the queue works again."""

from __future__ import annotations

import pytest

from headrace.audit import QueueAudit, audit
from headrace.errors import DataDamaged, HeadraceError, TopologyUnreadable
from headrace.lifecycle import configure, promote
from headrace.migration import move_jobs
from headrace.producer import Producer
from headrace.remedies import remedy
from headrace.schedules.mark import ScheduleMark
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Beat, Fence, Success, Unknown
from headrace.stores.redis import RedisStore
from headrace.stores.redis.kinds import PARTITION_KINDS, QUEUE_KINDS, SHARED_KINDS
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    ids,
    new,
    ref,
    settled,
    stored_topology,
)
from tests.integration.damage.damages import CONTENTS, MEMBERS, Damage, every_damage
from tests.integration.damage.hand import Hand

EVERY = list(every_damage())
MARK = ScheduleMark(1, "every day")


async def filled(store: RedisStore, hand: Hand) -> None:
    """Something in every key that lasts: jobs in every state, workers, statistics, schedules, a leader."""
    await created(store)
    await configure(store, QUEUE, QueueSettings(retention=Retention()))
    worker = Worker(store)
    for kind in ("dead", "retry", "parked", "suspect", "done", "leased"):
        await enqueue(store, *(f"{kind}-{n}" for n in range(3)))
        claim = await worker.claim(lease_ms=1 if kind == "suspect" else LONG_MS, suspects=0)
        assert len(claim.jobs) == 3
        match kind:
            case "dead":
                await store.fail(ref(), failures(claim, None))
            case "retry":
                await store.fail(ref(), failures(claim, LONG_MS))
            case "parked":
                await store.park(ref(), [Unknown(*each, "send") for each in settled(claim)])
            case "suspect":
                while not await store.recover(ref()):
                    pass
            case "done":
                await store.ack(ref(), settled(claim), [Success("send", 0)] * 3)
    await enqueue(store, *(new(f"ready-{n}", lane=b"%d" % (n % 3)) for n in (0, 2)), new("ready-1"))
    await enqueue(store, *(new(f"later-{n}", -LONG_MS) for n in range(3)))
    await store.tick(QUEUE, "w", Beat("host", 1))
    await store.write_marker("this one")
    await summarise(store, QUEUE)
    assert await store.note_schedule(QUEUE, Fence(1, "leader"), "nightly", None, MARK)
    for name in ("epoch", "rank", "term", "exp", "since"):
        hand("HSET", "fence", name, 1)
    for name in ("term", "duration", "seq", "acquired", "epoch", "rv"):
        hand("HSET", "lock", name, 1)


def told(result: QueueAudit) -> set[tuple[str, str]]:
    return {(each.leftover.kind, each.leftover.key) for each in result.leftovers}


def left(result: QueueAudit) -> set[tuple[str, str]]:
    return {(each.leftover.kind, each.leftover.key) for each in result.open}


def test_J10_the_table_of_damages_has_every_key() -> None:
    keys = {*PARTITION_KINDS, *QUEUE_KINDS, *SHARED_KINDS}
    assert {each.key for each in EVERY if each.name == "another type"} == keys
    strings = {key for key, kind in {**QUEUE_KINDS, **SHARED_KINDS}.items() if kind == "string"}
    assert set(MEMBERS) == keys - strings
    # Of these nothing can be wrong but a member: lists and zsets of jobs, nonces and hints.
    only_members = {"r0", "r1", "r2", "suspects", "alone", "scheduled", "retry", "leased", "park", "seen", "dead"}
    only_members |= {"hot", "due", "parked", "workers", "gone", "stopping", "queues", "wakes", "marker"}
    assert {each.key for each in CONTENTS} == keys - only_members


@pytest.mark.parametrize("damage", EVERY, ids=lambda each: f"{each.key}: {each.name}")
async def test_J10_damage_to_any_key_is_named_and_mended(store: RedisStore, hand: Hand, damage: Damage) -> None:
    await filled(store, hand)
    assert told(await audit(store, QUEUE, load=1.0)) == set()
    damage.do(hand)
    seen = await audit(store, QUEUE, load=1.0)
    if damage.found is None:
        assert told(seen) == set()
    else:
        assert damage.found in told(seen)
    assert all(not each.leftover.repaired for each in seen.leftovers)
    mended = await audit(store, QUEUE, load=1.0, repair=True)
    if not damage.left:
        assert (left(mended), mended.unproven) == (set(), [])
        again = await audit(store, QUEUE, load=1.0)
        assert (told(again), again.unproven) == (set(), [])
        await works(store)
    else:
        assert left(mended)
        assert left(mended) == told(await audit(store, QUEUE, load=1.0))


async def test_J10_a_queue_whose_topology_cannot_be_read_is_created_again_with_its_jobs(
    store: RedisStore, hand: Hand
) -> None:
    await filled(store, hand)
    hand("SET", "topology", "half of")
    (place,) = (await audit(store, QUEUE, load=1.0, repair=True)).leftovers
    assert f"headrace topology promote {QUEUE}" in remedy(QUEUE, place.leftover)
    hand("DEL", "topology")
    await promote(store, QUEUE, 1, 1)
    await configure(store, QUEUE, QueueSettings(retention=Retention(), max_length=50))
    assert hand("HGET", "meta", "len") == b"50"  # newer than what the partition knew
    assert told(await audit(store, QUEUE, load=1.0)) == set()
    await works(store)


async def works(store: RedisStore) -> None:
    """Jobs can be enqueued, claimed and ended, and whatever is kept can be read."""
    topology = await stored_topology(store)
    await Producer(store).enqueue(QUEUE, "send", 1, id="after")
    worker, run = Worker(store, "after"), set[str]()
    while (claim := await worker.claim(alone=True, suspects=10)).jobs:
        run |= set(ids(claim))
        assert await store.ack(ref(), settled(claim)) == []
    assert "after" in run
    await store.tick(QUEUE, "after", Beat("host", 1))
    assert await summarise(store, QUEUE) is not None
    await store.dead_letters(ref())
    await store.finished(ref(), b"", 100, newest_first=True)
    await store.workers(QUEUE)
    await store.read_schedules(QUEUE)
    await move_jobs(store, ref(), Fence(2, "leader", topology.incarnation))


@pytest.mark.parametrize("damage", EVERY, ids=lambda each: f"{each.key}: {each.name}")
async def test_J10_steps_meet_damage_with_a_typed_error_that_names_the_remedy(
    store: RedisStore, hand: Hand, damage: Damage
) -> None:
    await filled(store, hand)
    damage.do(hand)
    worker = Worker(store, "after")
    problems: list[HeadraceError] = []
    for step in (
        lambda: Producer(store).enqueue(QUEUE, "send", 1),
        lambda: worker.claim(suspects=10),
        lambda: worker.claim(alone=True),
        lambda: store.resume(ref(), "after", 1, LONG_MS),
        lambda: store.counts([ref()]),
        lambda: store.recover(ref()),
        lambda: store.promote_due(ref()),
        lambda: store.wait_hint([QUEUE], 0.01),
        lambda: store.tick(QUEUE, "after", Beat("host", 1)),
        lambda: store.glance(QUEUE),
        lambda: store.workers(QUEUE),
        lambda: store.parked_partitions(QUEUE),
        lambda: store.dead_letters(ref()),
        lambda: store.finished(ref(), b"", 100, newest_first=True),
        lambda: store.read_schedules(QUEUE),
        lambda: store.note_schedule(QUEUE, Fence(2, "leader"), "nightly", MARK, ScheduleMark(2, "every day")),
        lambda: summarise(store, QUEUE),
        lambda: store.queues(),
        lambda: store.read_marker(),
        lambda: store.arrivals(ref()),
        lambda: store.leave(QUEUE, "after"),
    ):  # fmt: skip
        try:
            await step()
        except HeadraceError as error:  # anything else is a crash
            problems.append(error)
    for problem in problems:
        assert isinstance(problem, DataDamaged | TopologyUnreadable), problem
        assert "headrace audit" in str(problem)
        if isinstance(problem, DataDamaged):
            assert damage.key in problem.key or problem.key.endswith(":*"), problem
