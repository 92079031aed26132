"""What a foreign hand does to a queue in Redis is found, named and mended, and nothing else is touched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis

from headrace.audit import QueueAudit, audit
from headrace.errors import InvalidInput, UnknownQueue
from headrace.lifecycle import promote
from headrace.stores.base import Unknown
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    ids,
    new,
    ref,
    run_everything,
    settled,
    sizes,
    stored_topology,
)
from tests.services.redis import RedisServer

Damage = Callable[["Hand"], object]


class Hand:
    """Somebody with redis-cli in the partition v1:0."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.queue = f"{{{prefix}:{QUEUE}}}:"
        self.partition = f"{{{prefix}:{QUEUE}:1:0}}:"

    def __call__(self, command: str, key: str, *arguments: object) -> object:
        return self.client.execute_command(  # type: ignore[no-untyped-call]
            command, self.partition + key, *arguments
        )


@pytest.fixture
def hand(redis_server: RedisServer, prefix: str) -> Iterator[Hand]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield Hand(client, prefix)


@pytest.fixture
async def store(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.url, prefix=prefix)
    yield store
    await store.close()


async def filled(store: RedisStore) -> Worker:
    """Put jobs in every state into v1:0: ``kind-n``, n from 0 to 4."""
    await created(store)
    worker = Worker(store)
    for kind in ("dead", "retry", "parked", "suspect", "leased"):
        await enqueue(store, *(f"{kind}-{n}" for n in range(5)))
        claim = await worker.claim(lease_ms=1 if kind == "suspect" else LONG_MS, suspects=0)
        assert len(claim.jobs) == 5
        match kind:
            case "dead":
                assert await store.fail(ref(), failures(claim, None)) == []
            case "retry":
                assert await store.fail(ref(), failures(claim, LONG_MS)) == []
            case "parked":
                assert await store.park(ref(), [Unknown(*each, "send") for each in settled(claim)]) == []
            case "suspect":
                while not await store.recover(ref()):
                    pass
    await enqueue(store, *(new(f"ready-{n}", lane=b"%d" % (n % 3)) for n in range(5)))
    await enqueue(store, *(new(f"later-{n}", -LONG_MS) for n in range(5)))
    return worker


EVERYTHING = {"dead": 5, "retry": 5, "parked": 5, "ready": 10, "leased": 5, "scheduled": 5}


def found(result: QueueAudit) -> list[tuple[str, str, bytes]]:
    assert result.unproven == []
    return sorted((each.leftover.kind, each.leftover.key, each.leftover.member) for each in result.leftovers)


async def test_J10_a_sound_queue_has_no_leftovers(store: RedisStore) -> None:
    await filled(store)
    await promote(store, QUEUE, 2, 3)
    result = await audit(store, QUEUE, load=1.0)
    assert (result.partitions, result.records, found(result)) == (4, 30, [])
    assert await sizes(store) == EVERYTHING


RECORD_GONE = ["ready-1", "later-1", "retry-1", "parked-1", "suspect-1", "leased-1"]


@pytest.mark.parametrize("job", RECORD_GONE)
async def test_J10_an_index_entry_without_a_record_is_removed(store: RedisStore, hand: Hand, job: str) -> None:
    await filled(store)
    hand("HDEL", "jobs", job)
    key, member = {
        "ready-1": ("r1", b"ready-1"),
        "later-1": ("scheduled", b"1later-1"),
        "retry-1": ("retry", b"1retry-1"),
        "parked-1": ("park", b"send\x001parked-1"),
        "suspect-1": ("suspects", b"1suspect-1"),
        "leased-1": ("leased", b"1leased-1"),
    }[job]
    expected = [("index without record", key, member)]
    if job in ("retry-1", "suspect-1"):
        expected.insert(0, ("changes without record", "mut", job.encode()))
    before = await counts(store)
    assert found(await audit(store, QUEUE, load=1.0)) == expected
    assert (await counts(store))._replace(now=0) == before._replace(now=0)  # it only looked

    mended = await audit(store, QUEUE, load=1.0, repair=True)
    assert found(mended) == expected
    assert mended.open == []
    assert found(await audit(store, QUEUE, load=1.0)) == []
    assert (await counts(store)).live == before.live - 1


@pytest.mark.parametrize(
    ("job", "remove"),
    [
        ("ready-1", ("LREM", "r1", 1, "ready-1")),
        ("later-1", ("ZREM", "scheduled", "1later-1")),
        ("retry-1", ("ZREM", "retry", "1retry-1")),
        ("parked-1", ("ZREM", "park", "send\x001parked-1")),
        ("suspect-1", ("LREM", "suspects", 1, "1suspect-1")),
    ],
)
async def test_J10_a_record_without_an_index_becomes_ready_uncharged(
    store: RedisStore, hand: Hand, job: str, remove: tuple[str, ...]
) -> None:
    await filled(store)
    assert hand(*remove) == 1
    expected = [("record without index", "jobs", job.encode())]
    assert found(await audit(store, QUEUE, load=1.0)) == expected
    mended = await audit(store, QUEUE, load=1.0, repair=True)
    assert (found(mended), mended.open) == (expected, [])
    assert found(await audit(store, QUEUE, load=1.0)) == []
    claim = await Worker(store, "v").claim(suspects=0)
    assert job in ids(claim)


async def test_J10_a_lease_without_a_leased_job_and_the_reverse(store: RedisStore, hand: Hand) -> None:
    worker = await filled(store)
    hand("HDEL", "lease", "leased-1")
    hand("ZREM", "leased", "1leased-2")
    expected = [
        ("lease without job", "lease", b"leased-2"),
        ("leased without lease", "leased", b"1leased-1"),
        ("record without index", "jobs", b"leased-2"),
    ]
    assert found(await audit(store, QUEUE, load=1.0)) == expected
    mended = await audit(store, QUEUE, load=1.0, repair=True)
    assert (found(mended), mended.open) == (expected, [])
    assert await sizes(store) == EVERYTHING | {"leased": 3, "ready": 12}
    assert {"leased-1", "leased-2"} <= set(ids(await worker.claim(suspects=0)))


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (lambda hand: hand("RPUSH", "r2", "leased-1"), {"leased": 5}),
        (lambda hand: hand("ZADD", "scheduled", 9e12, "0retry-1"), {"scheduled": 6, "retry": 4}),
        (lambda hand: hand("ZADD", "retry", 1e12, "1later-1"), {"scheduled": 5, "retry": 5}),
        (lambda hand: hand("ZADD", "leased", 9e12, "1parked-1"), {"parked": 5, "leased": 5}),
        (lambda hand: hand("ZADD", "leased", 9e12, "2leased-1"), {"leased": 5}),
        (lambda hand: hand("LPUSH", "suspects", "1later-1"), {"scheduled": 5}),
        (lambda hand: hand("RPUSH", "r0", "parked-1"), {"parked": 5}),
        (
            lambda hand: hand("HSET", "moving", "later-1", b"\x95\x02\xa5ready\x00\xa0\xa11"),
            {"moving": 1, "scheduled": 4},
        ),
    ],
)
async def test_J10_a_job_in_two_indexes_stays_in_one(
    store: RedisStore, hand: Hand, damage: Damage, kept: dict[str, int]
) -> None:
    await filled(store)
    damage(hand)
    named = {kind for kind, _, _ in found(await audit(store, QUEUE, load=1.0))}
    assert "several indexes" in named <= {"several indexes", "leased without lease"}
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert found(await audit(store, QUEUE, load=1.0)) == []
    assert await sizes(store) == EVERYTHING | kept


@pytest.mark.parametrize(
    "damage",
    [
        lambda hand: hand("RPUSH", "r1", "ready-1"),
        lambda hand: hand("LPUSH", "r1", "ready-1"),
        lambda hand: hand("RPUSH", "r0", "ready-1", "ready-2"),
        lambda hand: hand("RPUSH", "alone", "1suspect-1"),
        lambda hand: hand("RPUSH", "r2", "suspect-1"),
        lambda hand: hand("RPUSH", "r2", *["ready-1"] * 4),
    ],
)
async def test_J10_a_job_twice_in_the_lists_runs_once(store: RedisStore, hand: Hand, damage: Damage) -> None:
    await filled(store)
    damage(hand)
    assert {kind for kind, _, _ in found(await audit(store, QUEUE, load=1.0))} == {"twice in the lists"}
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert found(await audit(store, QUEUE, load=1.0)) == []
    ran = await run_everything(store, await stored_topology(store))
    assert sorted(ran) == sorted(f"{kind}-{n}" for kind in ("ready", "suspect") for n in range(5))


async def test_J10_damage_in_long_lists_is_found_where_it_is(store: RedisStore, hand: Hand) -> None:
    await created(store)
    for start in range(0, 6000, 500):
        await enqueue(store, *(f"job-{n}" for n in range(start, start + 500)))
    await enqueue(store, *(new(f"high-{n}", lane=b"0") for n in range(5)))
    for start in range(0, 900, 300):
        await enqueue(store, *(new(f"low-{n}", lane=b"2") for n in range(start, start + 300)))
    hand("LREM", "r1", 1, "job-3000")
    hand("HDEL", "jobs", "job-4000")
    hand("LINSERT", "r1", "BEFORE", "job-500", "job-5500")
    hand("LINSERT", "r0", "AFTER", "high-2", "job-2500")
    hand("LINSERT", "r2", "AFTER", "low-450", "job-100")
    hand("RPUSH", "suspects", "1job-7")
    expected = [
        ("index without record", "r1", b"job-4000"),
        ("record without index", "jobs", b"job-3000"),
    ]
    result = found(await audit(store, QUEUE, load=1.0))
    assert [each for each in result if each[0] != "twice in the lists"] == expected[:2]
    assert {member for kind, _, member in result if kind == "twice in the lists"} == {
        b"job-5500",
        b"job-2500",
        b"job-100",
        b"job-7",
    }
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert found(await audit(store, QUEUE, load=1.0)) == []
    ran = await run_everything(store, await stored_topology(store))
    assert len(ran) == len(set(ran)) == 6904


async def test_J10_letters_and_their_times(store: RedisStore, hand: Hand) -> None:
    await filled(store)
    letters = await store.dead_letters(ref())
    hand("ZREM", "dead", letters[0].letter)
    hand("HDEL", "letters", letters[1].letter)
    expected = [
        ("letter without time", "letters", letters[0].letter),
        ("time without letter", "dead", letters[1].letter),
    ]
    assert found(await audit(store, QUEUE, load=1.0)) == expected
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert await store.dead_letters(ref()) == [letters[0], *letters[2:]]


@pytest.mark.parametrize(
    ("key", "member", "damage"),
    [
        ("suspects", b"x", lambda hand: hand("RPUSH", "suspects", "x")),
        ("scheduled", b"9strange", lambda hand: hand("ZADD", "scheduled", 1, "9strange")),
        ("park", b"without a zero", lambda hand: hand("ZADD", "park", 0, "without a zero")),
        ("moving", b"nobody", lambda hand: hand("HSET", "moving", "nobody", "\x95\x02\xa5ready\x00\xa0\xa11")),
        ("r1", b"", lambda hand: hand("RPUSH", "r1", "")),
    ],
)
async def test_J10_what_is_no_entry_at_all_is_removed(
    store: RedisStore, hand: Hand, key: str, member: bytes, damage: Damage
) -> None:
    await filled(store)
    damage(hand)
    assert found(await audit(store, QUEUE, load=1.0)) == [("index without record", key, member)]
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert await sizes(store) == EVERYTHING
    assert found(await audit(store, QUEUE, load=1.0)) == []


async def test_J10_a_job_parked_under_a_type_that_is_not_its_own_is_found(store: RedisStore, hand: Hand) -> None:
    await filled(store)
    hand("ZREM", "park", "send\x001parked-1")
    hand("ZADD", "park", 0, "other\x001parked-1")
    (first, _) = found(await audit(store, QUEUE, load=1.0))
    assert first == ("parked under another type", "park", b"other\x001parked-1")
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert "parked-1" in ids(await Worker(store, "v").claim(suspects=0))


async def test_J10_whole_keys_that_were_deleted(store: RedisStore, hand: Hand) -> None:
    for key in ("jobs", "lease", "leased", "r1", "scheduled", "retry", "park", "suspects", "letters", "dead", "mut"):
        await filled_anew(store, hand)
        hand("DEL", key)
        result = await audit(store, QUEUE, load=1.0)
        if key == "mut":  # what was remembered of the jobs is gone; they are where they were
            assert found(result) == []
            continue
        assert len(result.open) >= (2 if key == "r1" else 5), key
        assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
        assert found(await audit(store, QUEUE, load=1.0)) == []


async def filled_anew(store: RedisStore, hand: Hand) -> None:
    for key in hand.client.scan_iter(hand.partition.replace("[", "\\[") + "*"):
        hand.client.delete(key)
    hand.client.delete(hand.queue + "topology", hand.queue + "hot", hand.queue + "due", hand.queue + "parked")
    await filled(store)


async def test_J10_a_lost_hint_is_given_again(store: RedisStore, hand: Hand) -> None:
    await filled(store)
    hand.client.delete(hand.queue + "hot", hand.queue + "due")
    assert found(await audit(store, QUEUE, load=1.0)) == [("no hint", "due", b"1:0")]
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    await store.tick(QUEUE, "w")
    assert await store.wait_hint([QUEUE], 1.0) == ref()


async def test_J10_a_lost_hint_of_parked_jobs_is_given_again(store: RedisStore, hand: Hand) -> None:
    """Else no worker that learns their type would ask for them."""
    await filled(store)
    hand.client.delete(hand.queue + "parked")
    assert found(await audit(store, QUEUE, load=1.0)) == [("no hint", "parked", b"1:0")]
    assert await store.parked_partitions(QUEUE) == {}
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert list(await store.parked_partitions(QUEUE)) == [ref()]
    assert found(await audit(store, QUEUE, load=1.0)) == []
    assert await store.unpark(ref(), ["send"]) == 5
    assert await store.parked_partitions(QUEUE) == {}


async def test_J10_hints_of_partitions_that_are_not_there_are_removed(store: RedisStore, hand: Hand) -> None:
    await filled(store)
    hand.client.zadd(hand.queue + "hot", {"1:7": 1, "5:0": 1})
    hand.client.zadd(hand.queue + "due", {"5:0": 1})
    hand.client.zadd(hand.queue + "parked", {"nonsense": 1})
    expected = [("hint without partition", "due", label) for label in (b"1:7", b"5:0", b"nonsense")]
    assert found(await audit(store, QUEUE, load=1.0)) == expected
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert await store.hinted_labels(QUEUE) == [b"1:0"]


async def test_J10_partitions_that_the_topology_does_not_list(store: RedisStore, hand: Hand) -> None:
    await filled(store)
    topology = await stored_topology(store)
    for stray, partitions in ((PartitionRef(QUEUE, 1, 1), 3), (PartitionRef(QUEUE, 7, 3), 4)):
        await store.install(stray, topology, partitions)
        await enqueue(store, "lost", at=stray, partitions=partitions)
    hand.client.zrem(hand.queue + "due", "1:1", "7:3")
    hand.client.zrem(hand.queue + "hot", "1:1", "7:3")
    near = ("partition not listed", "1 ready", b"1:1")
    assert found(await audit(store, QUEUE, load=1.0)) == [near]
    far = ("partition not listed", "1 ready", b"7:3")  # nothing points there
    hand.client.set(hand.partition + "notes", "mine")
    expected = [near, far, ("unknown key", hand.partition + "notes", b"")]
    assert found(await audit(store, QUEUE, load=1.0, scan=True)) == expected
    result = await audit(store, QUEUE, load=1.0, scan=True, repair=True)
    assert found(result) == expected
    assert len(result.open) == 3  # they hold a job, and what is not ours is left alone
    for stray in (PartitionRef(QUEUE, 1, 1), PartitionRef(QUEUE, 7, 3)):
        claim = await Worker(store).claim(at=stray)
        await store.ack(stray, settled(claim))
    assert len((await audit(store, QUEUE, load=1.0, scan=True, repair=True)).open) == 1
    assert [each.state for each in await store.counts([PartitionRef(QUEUE, 1, 1)])] == ["tombstone"]


async def test_J10_a_partition_that_is_gone_is_named(store: RedisStore, hand: Hand) -> None:
    await created(store, 2)
    await promote(store, QUEUE, 2, 1)
    for label in ("1:0", "2:0"):
        hand.client.delete(hand.partition.replace("1:0", label) + "meta")
    expected = [("partition missing", "meta", b"1:0"), ("partition missing", "meta", b"2:0")]
    assert found(await audit(store, QUEUE, load=1.0)) == expected
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert found(await audit(store, QUEUE, load=1.0)) == []
    hand.client.hset(hand.partition + "meta", mapping={"s": "T"})
    assert found(await audit(store, QUEUE, load=1.0)) == [("partition gone", "meta", b"1:0")]


async def test_J10_jobs_of_a_closed_partition_become_dead_letters(store: RedisStore, hand: Hand) -> None:
    await filled(store)
    hand.client.hset(hand.partition + "meta", "s", "C")
    result = await audit(store, QUEUE, load=1.0)
    assert {each.leftover.kind for each in result.leftovers} == {"record in a closed partition", "partition superseded"}
    assert len(result.leftovers) == 31
    mended = await audit(store, QUEUE, load=1.0, repair=True)
    assert [each.leftover.kind for each in mended.open] == ["partition superseded"]
    assert await sizes(store) == {"dead": 35}
    error = "found in a partition that is closed"
    assert sum(error.encode() in letter.changes for letter in await store.dead_letters(ref())) == 30


async def test_J10_what_cannot_be_audited_is_said(store: RedisStore) -> None:
    with pytest.raises(UnknownQueue):
        await audit(store, QUEUE)
    await created(store)
    for load in (0, 1.1):
        with pytest.raises(InvalidInput, match="load"):
            await audit(store, QUEUE, load=load)
