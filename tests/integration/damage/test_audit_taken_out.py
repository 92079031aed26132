"""An audit while jobs are taken out in the middle of lists: it follows them, and damage is found and mended.

What happens beside it happens in the pauses that an audit makes before each of its steps, so every run is the same.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest

from headrace.stores.base import PartitionAudit, Release, Store
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


def damage(hand: Hand, key: str) -> None:
    for job in LOST:
        assert hand("LREM", key, 1, job) == 1
    for job in EMPTY:
        assert hand("HDEL", "jobs", job) == 1
    for job in TWICE:
        hand("RPUSH", key, job)


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
        self.held: list[str] = []

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
