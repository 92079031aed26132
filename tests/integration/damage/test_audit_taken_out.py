"""An audit while jobs are taken out in the middle of lists: it follows them, and damage is found and mended.

What happens beside it happens in the pauses that an audit makes before each of its steps, so runs are nearly the same.
"""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

import pytest

from headrace.envelope import encode_body
from headrace.stores.base import Failure, NewJob, PartitionAudit, Release, Settled, Store
from headrace.stores.protocols.inquiry import Index
from headrace.stores.protocols.withdrawing import Sought
from headrace.stores.redis import RedisStore
from headrace.stores.redis.audit import partition_pass
from headrace.stores.redis.audit.list_sweep import ListSweep
from tests.conformance.steps import (
    LONG_MS,
    Worker,
    counts,
    created,
    enqueue,
    ids,
    key,
    new,
    no_pause,
    ref,
    settled,
)
from tests.integration.damage.hand import Hand

LISTS: dict[bytes, Index] = {b"0": "r0", b"1": "r1"}
LONG = 3_000
"""Jobs of a list that is too long for one look."""

LOST = [f"lost-{n}" for n in range(5)]
EMPTY = [f"empty-{n}" for n in range(5)]
TWICE = [f"twice-{n}" for n in range(5)]


async def filled(store: Store, number: int, lane: bytes = b"1") -> list[str]:
    """Put jobs into a list; return those that nobody damages, which stand between the others."""
    await enqueue(store, *(new(job, lane=lane) for job in TWICE))
    sound = [f"job-{lane.decode()}-{n}" for n in range(number)]
    for start in range(0, number, 500):
        some = [*sound[start : start + 500], *(LOST + EMPTY if start == number // 1000 * 500 else [])]
        for first in range(0, len(some), 500):
            await enqueue(store, *(new(job, lane=lane) for job in some[first : first + 500]))
    return sound


def damage(hand: Hand, list: str) -> None:
    for job in LOST:
        assert hand("LREM", list, 1, job) == 1
    for job in EMPTY:
        assert hand("HDEL", "jobs", job) == 1
    for job in TWICE:
        hand("RPUSH", list, job)


class Beside:
    """Cancels, purges, claims and enqueues in the pauses of an audit: some of each, as chance wants."""

    def __init__(self, store: Store, waiting: list[str], seed: int, lane: bytes = b"1") -> None:
        self.store = store
        self.waiting = waiting
        self.rng = random.Random(seed)
        self.lane = lane
        self.usual = len(waiting)
        self.numbers = count()
        self.taken_out = 0
        self.worker = Worker(store)

    async def enqueue(self) -> None:
        """Some more, unless there are too many already."""
        if len(self.waiting) > self.usual + 100:
            return
        jobs = [f"more-{next(self.numbers)}" for _ in range(self.rng.choice((1, 1, 1, 30)))]
        await enqueue(self.store, *(new(job, lane=self.lane) for job in jobs))
        self.waiting += jobs

    async def cancel(self) -> None:
        """Jobs near the ends of the list, which are found there in one step, unless there are few left."""
        if len(self.waiting) < self.usual - 1_500:
            return
        reach = self.rng.choice((10, 1_000))
        near = self.waiting[: -reach - 1 : -1] if self.rng.random() < 0.7 else self.waiting[:reach]
        chosen = self.rng.sample(near, min(len(near), self.rng.choice((1, 2, 20))))
        places = await self.store.withdraw(ref(), [job.encode() for job in chosen], running=False)
        gone = {job for job, place in zip(chosen, places, strict=True) if place == "ready"}
        self.taken_out += len(gone)
        self.waiting = [job for job in self.waiting if job not in gone]

    async def purge(self) -> None:
        """One job, wherever in the list it is."""
        one = self.rng.choice(self.waiting)
        for passed in range(0, 2 * LONG, 2_000):
            purged = await self.store.purge(ref(), LISTS[self.lane], Sought(stored_id=one.encode()), passed)
            if purged.matching:
                self.taken_out += 1
                self.waiting.remove(one)
                return

    async def claim(self) -> None:
        """Jobs from the head, which are acknowledged, or become suspects, unless there are few left."""
        if len(self.waiting) < self.usual - 1_500:
            return
        limit, lease_ms = self.rng.choice((1, 10, 100)), self.rng.choice((1, LONG_MS))
        claim = await self.worker.claim(limit, lease_ms, suspects=self.rng.choice((0, 0, 0, 20)))
        match self.rng.randrange(3):
            case 0:
                await self.store.ack(ref(), settled(claim))
            case 1:
                await self.store.release(ref(), [Release(*each) for each in settled(claim)])
                return
        await self.store.recover(ref())
        claimed = set(ids(claim))
        self.waiting = [job for job in self.waiting if job not in claimed]

    async def __call__(self) -> None:
        for what in self.rng.choices((self.enqueue, self.cancel, self.purge, self.claim), (3, 5, 1, 3), k=2):
            await what()


def named(audit: PartitionAudit) -> set[tuple[str, str]]:
    return {(each.kind, each.member.decode()) for each in audit.leftovers}


@pytest.mark.parametrize("lane", [b"0", b"1"])
@pytest.mark.parametrize("seed", range(6))
async def test_J10_a_sound_partition_is_proven_while_jobs_are_taken_out(
    store: RedisStore, seed: int, lane: bytes
) -> None:
    await created(store)
    beside = Beside(store, await filled(store, LONG, lane), seed, lane)
    audit = await store.audit_partition(ref(), repair=False, pause=beside)
    assert named(audit) == set()
    assert audit.proven
    assert beside.taken_out > 20


@pytest.mark.parametrize("seed", range(6))
async def test_J10_what_was_read_of_a_list_is_counted_right_while_jobs_are_taken_out(
    store: RedisStore, hand: Hand, seed: int
) -> None:
    """Every entry that was read is where the reader counts it to be, or has gone from there."""
    await created(store)
    beside = Beside(store, await filled(store, LONG), seed)
    sweep, fallen_back = ListSweep(2), 0
    tailwards = False
    for _ in range(60):
        reply: Any = await store._audit_step(ref(), "audit_list", *sweep.question(tailwards=tailwards))
        if reply[0] == b"lost":
            fallen_back += 1
            if not sweep.fall_back(reply[1]):
                sweep, tailwards = ListSweep(2, sweep), False
            continue
        assert list(sweep.answer(reply, tailwards=tailwards)) == []
        entries = hand("LRANGE", "r1", 0, -1)
        anchor = sweep.seen()[0][1]
        read = {anchor + sweep.from_anchor(coordinate): value for value, coordinate in sweep}
        there = [hash(entry) == read[n] for n, entry in enumerate(reversed(entries)) if n in read]
        assert sum(there) >= len(there) - beside.taken_out
        tailwards = sweep.done
        await beside()
    assert fallen_back


class Cancels(Beside):
    """Jobs are enqueued, and cancelled near the tail, as often as the audit takes a step; nobody claims."""

    async def __call__(self) -> None:
        await self.enqueue()
        await self.cancel()


@pytest.mark.parametrize("seed", range(6))
async def test_J10_damage_is_named_and_mended_while_jobs_are_taken_out(
    store: RedisStore, hand: Hand, seed: int
) -> None:
    await created(store)
    beside = Cancels(store, await filled(store, LONG), seed)
    damage(hand, "r1")
    known = {
        *(("record without index", job) for job in LOST),
        *(("index without record", job) for job in EMPTY),
        *(("twice in the lists", job) for job in TWICE),
    }
    seen = await store.audit_partition(ref(), repair=False, pause=beside)
    assert seen.proven
    assert {("record without index", job) for job in LOST} <= named(seen) <= known
    found = set()
    async with asyncio.timeout(120):
        while True:  # what has moved while it was looked at is found by one of the next
            mended = await store.audit_partition(ref(), repair=True, pause=beside)
            found |= {each for each in named(mended) if each[0] != "sizes differ"}
            last = await store.audit_partition(ref(), repair=False, pause=no_pause)
            if last.proven and not last.leftovers:
                break
    assert found == known
    assert beside.taken_out > 20
    ready: list[str] = []
    worker = Worker(store)
    while (await counts(store)).ready:
        claim = await worker.claim(250)
        ready += ids(claim)
        await store.ack(ref(), settled(claim))
    assert len(ready) == len(set(ready))
    assert sorted(ready) == sorted([*beside.waiting, *LOST, *TWICE])


@pytest.mark.parametrize("before", [3, 5, 8])
async def test_J10_a_purge_of_many_that_stand_together_hides_no_damage(
    store: RedisStore, hand: Hand, before: int
) -> None:
    """They give their places to the last ones of the list, which stand together there as before."""
    await created(store)
    old, young = [f"old-{n}" for n in range(1_500)], [f"young-{n}" for n in range(1_000)]
    odd = [NewJob(key(f"odd-{n}"), 0, encode_body("odd", None, max_payload_bytes=100)) for n in range(600)]
    for some in (old, odd, young):
        for first in range(0, len(some), 500):
            await enqueue(store, *some[first : first + 500])
    empty = old[-500::10]
    for job in empty:
        assert hand("HDEL", "jobs", job) == 1
    steps = count(1)

    async def purge() -> None:
        if next(steps) != before:
            return
        passed, end = 0, False
        while not end:
            purged = await store.purge(ref(), "r1", Sought(1 << 60, "odd"), passed)
            passed, end = passed + purged.seen - purged.matching, purged.end

    audit = await store.audit_partition(ref(), repair=False, pause=purge)
    assert not (await store.withdraw(ref(), [b"odd-0"], running=False))[0]
    assert (named(audit), audit.proven) == ({("index without record", job) for job in empty}, True)


@pytest.mark.parametrize("before", [2, 5, 15])
async def test_J10_one_that_is_cancelled_hides_no_job_that_is_twice(store: RedisStore, hand: Hand, before: int) -> None:
    """The reader counts from an older anchor then, and reads what is nearer to the tail again."""
    await created(store)
    jobs = await filled(store, LONG)
    hand("RPUSH", "r1", jobs[LONG // 2])
    await enqueue(store, *(f"more-{n}" for n in range(5)))
    steps = count(1)

    async def cancel() -> None:
        if next(steps) == before:
            assert await store.withdraw(ref(), [jobs[2].encode()], running=False) == ["ready"]

    audit = await store.audit_partition(ref(), repair=False, pause=cancel)
    assert (named(audit), audit.proven) == ({("twice in the lists", jobs[LONG // 2])}, True)


async def test_J10_an_audit_ends_while_jobs_fail_and_come_back(store: RedisStore) -> None:
    """Each is read twice, and is on its way."""
    await created(store)
    await filled(store, LONG // 2)
    worker, numbers, failed = Worker(store), count(), set[bytes]()

    async def retry() -> None:
        await enqueue(store, *(f"more-{next(numbers)}" for _ in range(30)))
        claim = await worker.claim(60)
        bad = [job for job in claim.jobs if job.key not in failed]
        failed.update(job.key for job in bad)
        await store.fail(ref(), [Failure(job.key, claim.token, 0, "boom") for job in bad])
        await store.ack(ref(), [Settled(job.key, claim.token) for job in claim.jobs if job not in bad])

    at_rest = await store.audit_partition(ref(), repair=False, pause=no_pause)
    async with asyncio.timeout(60):
        audit = await store.audit_partition(ref(), repair=False, pause=retry)
    assert (named(audit), audit.proven) == (set(), True)
    assert audit.steps < 5 * at_rest.steps


async def test_J10_of_lists_too_long_to_be_searched_nothing_is_said_that_may_not_be_so(
    store: RedisStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_pass, "SEARCHED", LONG // 2)
    await created(store)
    beside = Cancels(store, await filled(store, LONG), 1)
    sound = await store.audit_partition(ref(), repair=False, pause=beside)
    assert (named(sound), sound.proven) == (set(), True)
    assert hand("LREM", "r1", -1, LOST[0]) == 1
    moving = await store.audit_partition(ref(), repair=True, pause=beside)
    assert (named(moving), moving.proven) == ({("sizes differ", "")}, False)
    at_rest = await store.audit_partition(ref(), repair=True, pause=no_pause)
    assert (named(at_rest), at_rest.proven) == ({("record without index", LOST[0])}, True)
    sound = await store.audit_partition(ref(), repair=False, pause=beside)
    assert (named(sound), sound.proven) == (set(), True)
