"""One suite over every lock: memory, Redis, MongoDB protocol, and Leases of a real API server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from headrace.election.backends.lease import LeaseLock
from headrace.election.backends.memory import MemoryLock
from headrace.election.backends.mongo import MongoLock
from headrace.election.backends.redis import RedisLock
from headrace.election.errors import Conflict
from headrace.election.record import Lock, Record
from headrace.redis.by_url import open_client
from tests.cluster.cluster import LocalCluster
from tests.services.redis import RedisServers

C = 5.0
KINDS = ("memory", "redis", "mongo", "lease")


@dataclass
class Opened:
    """A lock that nobody has written, and further clients of the same one."""

    kind: str
    another: Callable[[], Lock]


@pytest.fixture(params=KINDS)
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Opened]:
    name = f"lock-{uuid4().hex[:12]}"
    made: list[Lock] = []

    def remember(lock: Lock) -> Lock:
        made.append(lock)
        return lock

    if request.param == "memory":
        shared = MemoryLock()
        yield Opened("memory", lambda: shared)
    elif request.param == "redis":
        servers: RedisServers = request.getfixturevalue("redis_servers")
        yield Opened("redis", lambda: remember(RedisLock(open_client(servers.get("valkey").url, call_timeout=C), name)))
    elif request.param == "mongo":
        url: str = request.getfixturevalue("mongo_url")
        yield Opened("mongo", lambda: remember(MongoLock(url, name, call_timeout=C)))
    else:
        cluster: LocalCluster = request.getfixturevalue("cluster")
        space: str = request.getfixturevalue("namespace")

        def configure() -> Any:
            return cluster.client().configuration

        yield Opened("lease", lambda: remember(LeaseLock(name, space, configure=configure)))
    for lock in made:
        await lock.close()


def record(holder: str = "a_1", term: int = 1, seq: int = 1_700_000_000_123_456, duration: float = 15) -> Record:
    return Record(holder, term, duration, seq, acquired=1_700_000_000_000_001)


async def test_a_lock_that_was_never_written_is_not_there(opened: Opened) -> None:
    assert await opened.another().read(C) is None


async def test_what_is_written_is_read_by_everybody(opened: Opened) -> None:
    a, b = opened.another(), opened.another()
    version = await a.create(record(), C)
    found = await b.read(C)
    assert found == (version, record())
    following = record(term=7, seq=1_700_000_002_000_001)
    version = await a.cas(version, following, C)
    assert await b.read(C) == (version, following)


async def test_LE26_of_two_creations_one_wins(opened: Opened) -> None:
    a, b = opened.another(), opened.another()
    await a.create(record("a_1"), C)
    with pytest.raises(Conflict):
        await b.create(record("b_1"), C)
    found = await b.read(C)
    assert found is not None
    assert found[1].holder == "a_1"


async def test_L1_LE26_creations_at_once_have_one_winner(opened: Opened) -> None:
    locks = [opened.another() for _ in range(5)]
    answers = await asyncio.gather(
        *(lock.create(record(f"p{n}_1"), C) for n, lock in enumerate(locks)), return_exceptions=True
    )
    winners = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
    assert len(winners) == 1
    assert all(isinstance(answer, Conflict) for answer in answers if isinstance(answer, BaseException))
    found = await locks[0].read(C)
    assert found is not None
    assert found[1].holder == f"p{winners[0]}_1"


async def test_L2_a_write_at_an_old_version_is_refused_and_changes_nothing(opened: Opened) -> None:
    a, b = opened.another(), opened.another()
    old = await a.create(record("a_1"), C)
    new = await b.cas(old, record("b_1", term=2, seq=1_700_000_001_000_001), C)
    with pytest.raises(Conflict):
        await a.cas(old, record("a_1", seq=1_700_000_001_500_001), C)
    assert await a.read(C) == (new, record("b_1", term=2, seq=1_700_000_001_000_001))


async def test_versions_differ_and_are_equal_for_the_same_state(opened: Opened) -> None:
    a, b = opened.another(), opened.another()
    seen = [await a.create(record(), C)]
    for step in range(1, 6):
        seen.append(await a.cas(seen[-1], record(seq=1_700_000_000_123_456 + step), C))
    assert len(set(seen)) == len(seen)
    first, second = await a.read(C), await b.read(C)
    assert first is not None
    assert second is not None
    assert first[0] == second[0] == seen[-1]


async def test_L3_LE12_a_freed_lock_keeps_its_term_and_lasts_one_second(opened: Opened) -> None:
    a, b = opened.another(), opened.another()
    version = await a.create(record(term=4), C)
    await a.cas(version, dataclasses.replace(record("", term=4, duration=1), acquired=0), C)
    found = await b.read(C)
    assert found is not None
    assert (found[1].holder, found[1].term, found[1].duration) == ("", 4, 1)
    taken = await b.cas(found[0], record("b_1", term=5), C)
    assert await a.read(C) == (taken, record("b_1", term=5))
    # The first holder's late farewell must not free what is the other's now.
    with pytest.raises(Conflict):
        await a.cas(found[0], record("", term=4, duration=1), C)


async def test_LE19_a_time_at_a_full_second_is_kept(opened: Opened) -> None:
    a = opened.another()
    version = await a.create(record(seq=1_700_000_001_000_001), C)
    version = await a.cas(version, record(seq=1_700_000_002_000_000), C)
    found = await a.read(C)
    assert found == (version, record(seq=1_700_000_002_000_000))
