"""Random damage by a foreign hand: the audit finds it whenever a plain look at every key does, and mends all of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast
from uuid import uuid4

import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.audit import QueueAudit, audit
from headrace.lifecycle import promote
from headrace.stores.base import Unknown
from headrace.stores.redis import RedisStore
from tests.conformance.steps import LONG_MS, QUEUE, Worker, enqueue, failures, new, ref, settled
from tests.services.redis import RedisServer

LISTS = ("r0", "r1", "r2", "suspects", "alone")
ZSETS = ("scheduled", "retry", "leased", "park", "dead")
HASHES = ("jobs", "mut", "lease", "letters", "moving")
JOBS = [f"{kind}-{n}" for kind in ("dead", "retry", "parked", "leased", "ready", "later", "nobody") for n in range(3)]

names = st.sampled_from(JOBS)
lanes = st.sampled_from(["0", "1", "2", "1", "1", "7"])
damages = st.one_of(
    st.tuples(st.just("HDEL"), st.sampled_from(HASHES), names),
    st.tuples(st.just("LREM"), st.sampled_from(LISTS), names, lanes),
    st.tuples(st.just("ZREM"), st.sampled_from(ZSETS), names, lanes),
    st.tuples(st.just("RPUSH"), st.sampled_from(LISTS), names, lanes),
    st.tuples(st.just("LPUSH"), st.sampled_from(LISTS), names, lanes),
    st.tuples(st.just("ZADD"), st.sampled_from(ZSETS), names, lanes),
    st.tuples(st.just("HSET"), st.sampled_from(("mut", "lease", "moving", "jobs")), names),
    st.tuples(st.just("DEL"), st.sampled_from((*LISTS, *ZSETS, "lease", "moving", "mut"))),
)


def key_of(name: str, place: str, lane: str) -> bytes:
    """A job as it stands in a list or zset."""
    if place in ("r0", "r1", "r2"):
        return name.encode()
    if place == "park":
        return b"send\x00" + lane.encode() + name.encode()
    if place == "dead":
        return name.encode() + b"@1700000000000"
    return lane.encode() + name.encode()


class Partition:
    """The keys of v1:0, looked at and damaged without Headrace."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.key = f"{{{prefix}:{QUEUE}:1:0}}:"

    def damage(self, command: str, place: str, name: str = "", lane: str = "1") -> None:
        run, key, member = self.client, self.key + place, key_of(name, place, lane)
        match command:
            case "DEL":
                run.delete(key)
            case "HDEL":
                fields = cast(list[bytes], run.hkeys(key))
                chosen = [field for field in fields if field.split(b"@")[0] == name.encode()]
                run.hdel(key, *chosen or [name.encode()])
            case "HSET":
                record = b"\x00" * 16 + b"\x01" + b"\x00" * 7 + b"\x01\x04send\x00\x00null"
                value = {"jobs": record, "mut": b"\x96\x00\x00\xa0\x00\x00\x00", "lease": b"w:99"}
                run.hsetnx(key, name, cast(Any, value.get(place, b"\x95\x02\xa5ready\x00\xa0\xa11")))
            case "LREM":
                run.lrem(key, 1, cast(Any, member))
            case "RPUSH":
                run.rpush(key, member)
            case "LPUSH":
                run.lpush(key, member)
            case "ZREM":
                run.zrem(key, member)
            case "ZADD":
                run.zadd(key, {member: 0 if place == "park" else 9e12})

    def hash(self, name: str) -> Mapping[bytes, bytes]:
        return cast(Mapping[bytes, bytes], self.client.hgetall(self.key + name))

    def zset(self, name: str) -> list[bytes]:
        return cast(list[bytes], self.client.zrange(self.key + name, 0, -1))

    def unsound(self) -> set[str]:
        """What is wrong, found by reading everything at once."""
        jobs, lease = self.hash("jobs"), self.hash("lease")
        places: Counter[bytes] = Counter()
        wrong: set[str] = set()
        for name in LISTS:
            for entry in cast(list[bytes], self.client.lrange(self.key + name, 0, -1)):
                malformed = name in LISTS[3:] and entry[:1] not in (b"0", b"1", b"2")
                places[b"?" if malformed else entry[1:] if name in LISTS[3:] else entry] += 1
        for name in ("scheduled", "retry", "leased"):
            for member in self.zset(name):
                places[member[1:] if member[:1] in (b"0", b"1", b"2") else b"?"] += 1
        for member in self.zset("park"):
            _, _, rest = member.partition(b"\x00")
            places[rest[1:] if rest[:1] in (b"0", b"1", b"2") else b"?"] += 1
        for field in self.hash("moving"):
            places[field] += 1
        wrong |= {f"{name!r} has no record" for name in places if name not in jobs}
        wrong |= {f"{name!r} is in {number} places" for name, number in places.items() if number > 1}
        wrong |= {f"{name!r} is nowhere" for name in jobs if name not in places}
        leased = {member[1:] for member in self.zset("leased")}
        wrong |= {f"{name!r} has a lease" for name in lease if name not in leased}
        wrong |= {f"{name!r} has no lease" for name in leased if name not in lease}
        wrong |= {f"{name!r} is remembered" for name in self.hash("mut") if name not in jobs}
        letters, times = set(self.hash("letters")), set(self.zset("dead"))
        return wrong | {f"{letter!r} is half a letter" for letter in letters ^ times}


async def fill(store: RedisStore) -> None:
    await promote(store, QUEUE, 1, 1)
    worker = Worker(store)
    for kind in ("dead", "retry", "parked", "leased"):
        await enqueue(store, *(f"{kind}-{n}" for n in range(3)))
        claim = await worker.claim()
        match kind:
            case "dead":
                await store.fail(ref(), failures(claim, None))
            case "retry":
                await store.fail(ref(), failures(claim, LONG_MS))
            case "parked":
                await store.park(ref(), [Unknown(*each, "send") for each in settled(claim)])
    await enqueue(store, *(new(f"ready-{n}", lane=b"%d" % n) for n in range(3)))
    await enqueue(store, *(new(f"later-{n}", -LONG_MS) for n in range(3)))


async def audited(store: RedisStore, *, repair: bool) -> QueueAudit:
    return await audit(store, QUEUE, load=1.0, repair=repair)


def test_J10_random_damage_is_found_and_mended(redis_server: RedisServer) -> None:
    @settings(max_examples=120)
    @given(st.lists(damages, min_size=1, max_size=8))
    def damaged(steps: list[tuple[str, ...]]) -> None:
        async def scenario() -> None:
            prefix = f"t{uuid4().hex[:16]}"
            store = RedisStore(redis_server.url, prefix=prefix)
            with redis.Redis.from_url(redis_server.url) as client:
                partition = Partition(client, prefix)
                await fill(store)
                assert partition.unsound() == set()
                for step in steps:
                    partition.damage(*step)
                wrong, records = partition.unsound(), partition.hash("jobs")
                seen = await audited(store, repair=False)
                assert bool(seen.leftovers) == bool(wrong), (wrong, seen.leftovers)
                assert partition.hash("jobs") == records
                assert partition.unsound() == wrong
                mended = await audited(store, repair=True)
                assert mended.open == [], wrong
                assert partition.unsound() == set(), wrong
                assert partition.hash("jobs") == records  # no job is lost by it
                assert (await audited(store, repair=False)).leftovers == []
            await store.close()

        asyncio.run(scenario())

    damaged()
