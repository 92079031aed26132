"""Steps on jobs with long histories and large records: bounded by bytes, whole batches all the same."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.errors import StoreFull, StoreUnavailable
from headrace.lifecycle import configure
from headrace.redis.client import Argument
from headrace.redis.scripts import Script
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import MAX_STEP_BYTES, Claim, DeadLetter, Failure, Release, Report, Settled, Store, Unknown
from headrace.stores.protocols.parking import ParkedLimits
from headrace.stores.redis import RedisStore
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    ids,
    key,
    new,
    opened,
    ref,
    settled,
    sizes,
)

ERROR = "x" * 20_000
JOBS = 8
PAYLOAD = "x" * 100_000


async def with_histories(store: Store, worker: Worker, size: int = 0) -> list[Settled]:
    """Lease jobs that have failed five times, with 100 kB of errors each; in the order of their names."""
    await created(store)
    await configure(store, QUEUE, QueueSettings(retention=Retention(history_entries=5)))
    await enqueue(store, *(new(f"j{n}", payload="x" * size) for n in range(JOBS)))
    for _ in range(5):
        claims = await all_ready(worker)
        await store.release(ref(), [Release(*each, 0, ERROR) for claim in claims for each in settled(claim)])
    return [each for claim in await all_ready(worker) for each in settled(claim)]


async def all_ready(worker: Worker, **options: Any) -> list[Claim]:
    """Claim until nothing is ready: a claim, too, takes what fits only."""
    claims = []
    while (claim := await worker.claim(**options)).jobs:
        claims.append(claim)
    return claims


class Counting:
    """Passes scripts on to a store's client and counts the calls of each; from ``full`` on they are refused."""

    def __init__(self, store: Store, full: int = 1000) -> None:
        self.calls: list[str] = []
        self._full = full
        self._client: Any = None
        if isinstance(store, RedisStore):
            self._client = store._client
            store._client = cast(Any, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def run(self, script: Script, *args: Argument, **options: Any) -> Any:
        if len(self.calls) >= self._full:
            raise StoreFull("out of memory")
        self.calls.append(script.name)
        return await self._client.run(script, *args, **options)

    def in_parts(self, step: str, parts: int) -> None:
        """Check that no call was given more than it is to do; memory needs none."""
        if self._client is not None:
            assert self.calls.count(step) >= parts, self.calls


PARTS = JOBS * 5 * len(ERROR) // MAX_STEP_BYTES
"""Calls that so many bytes of histories need at least."""


async def test_failures_of_jobs_with_long_histories_are_recorded_in_parts(store: Store) -> None:
    worker = Worker(store)
    leases = await with_histories(store, worker)
    failed = [Failure(*each, LONG_MS if n % 2 else None, f"boom {n}") for n, each in enumerate(leases)]
    failed[3:3] = [Failure(key("nobody"), b"w:1", 0, "")]
    failed.append(Failure(leases[0].key, b"other:1", 0, ""))
    counting = Counting(store)
    assert await store.fail(ref(), failed) == [3, JOBS + 1]
    counting.in_parts("fail", PARTS)
    assert await sizes(store) == {"retry": JOBS // 2, "dead": JOBS // 2}
    assert [each.stored_id for each in await store.dead_letters(ref())] == [b"j0", b"j2", b"j4", b"j6"]
    for n in (1, 3, 5, 7):
        found = await store.describe(ref(), b"j%d" % n)
        assert found is not None
        assert found.changes.count(ERROR.encode()) >= 4
        assert f"boom {n}".encode() in found.changes


async def test_jobs_with_long_histories_are_handed_back_in_their_order(store: Store) -> None:
    worker = Worker(store)
    leases = await with_histories(store, worker)
    await enqueue(store, "behind")
    released = [Release(*each, 0, "stopped") for each in leases]
    released[2:2] = [Release(key("nobody"), b"w:1"), Release(leases[0].key, b"other:1")]
    counting = Counting(store)
    assert await store.release(ref(), released) == [2, 3]
    counting.in_parts("release", PARTS)
    assert [name for claim in await all_ready(worker) for name in ids(claim)] == [
        *(f"j{n}" for n in range(JOBS)),
        "behind",
    ]


async def test_reports_of_jobs_with_long_histories_are_all_kept(store: Store) -> None:
    worker = Worker(store)
    leases = [Settled(key("nobody"), b"w:1"), *await with_histories(store, worker)]
    counting = Counting(store)
    reports = [Report(n, n / 10, f"part {n}") for n in range(JOBS + 1)]
    assert await store.renew(ref(), leases, LONG_MS, reports) == [0]
    counting.in_parts("renew", PARTS)
    await store.release(ref(), [Release(*each) for each in leases[1:]])
    jobs = [opened(job) for claim in await all_ready(worker) for job in claim.jobs]
    assert [job.progress and job.progress.note for job in jobs] == [f"part {n}" for n in range(1, JOBS + 1)]
    assert {len(job.history) for job in jobs} == {5}


async def test_jobs_with_long_histories_are_taken_back_some_at_a_time(store: Store, advance: Advance) -> None:
    leases = await with_histories(store, Worker(store))
    await store.renew(ref(), leases, 1)
    await advance(2)
    taken = []
    while (await counts(store)).leased:
        taken.append(await store.recover(ref()))
    assert sum(taken) == JOBS
    assert max(taken) <= MAX_STEP_BYTES // 80_000
    assert len(taken) >= PARTS


@pytest.mark.parametrize("step", ["bury_parked", "trim_parked", "bury_waiting"])
async def test_jobs_with_long_histories_are_buried_some_at_a_time(store: Store, step: str) -> None:
    worker = Worker(store)
    leases = await with_histories(store, worker)
    if step == "bury_waiting":
        topology = await store.read_topology(QUEUE)
        assert topology is not None
        await store.release(ref(), [Release(*each) for each in leases])
        await store.mark(ref(), topology.promoted(2, 1))
    else:
        await store.park(ref(), [Unknown(*each, "send") for each in leases])
    dead: list[int] = []
    after = b""
    while sum(dead) < JOBS:
        if step == "bury_parked":
            dead.append(await store.bury_parked(ref(), "send"))
        elif step == "trim_parked":
            trimmed = await store.trim_parked(ref(), "send", ParkedLimits(0, None), after)
            after = trimmed.after
            dead.append(trimmed.dead)
        else:
            dead.append(await store.bury_waiting(ref(), "drained too long"))
    assert min(dead) > 0
    assert max(dead) <= 1 + MAX_STEP_BYTES // 100_000
    assert len(dead) >= PARTS
    assert await sizes(store) == {"dead": JOBS}


async def test_suspects_with_long_histories_are_parked_in_parts(store: Store, advance: Advance) -> None:
    worker = Worker(store)
    leases = await with_histories(store, worker)
    await store.renew(ref(), leases, 1)
    await advance(2)
    while (await counts(store)).leased:
        await store.recover(ref())
    leases = [each for claim in await all_ready(worker, suspects=JOBS) for each in settled(claim)]
    counting = Counting(store)
    unknown = [Unknown(*each, "send") for each in (*leases, Settled(key("nobody"), b"w:1"))]
    assert await store.park(ref(), unknown) == [JOBS]
    counting.in_parts("park", PARTS)
    assert await sizes(store) == {"parked": JOBS}
    assert await store.unpark(ref(), ["send"]) == JOBS
    jobs = [opened(job) for claim in await all_ready(worker) for job in claim.jobs]
    assert [job.suspect for job in jobs] == [False] * JOBS


async def test_large_jobs_are_found_and_withdrawn_in_parts(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    names = [f"j{n}" for n in range(JOBS)]
    await enqueue(store, *(new(name, payload=PAYLOAD) for name in names))
    leases = [each for claim in await all_ready(worker) for each in settled(claim)]
    await store.park(ref(), [Unknown(*each, "send") for each in leases[::2]])
    asked = [name.encode() for name in (*names, "nobody")]
    counting = Counting(store)
    live = (await store.statuses(ref(), asked)).live
    counting.in_parts("statuses", 2)
    assert [each and each.state for each in live] == ["parked", "leased"] * (JOBS // 2) + [None]
    assert await store.withdraw(ref(), asked, running=True) == ["parked", "leased"] * (JOBS // 2) + [""]
    counting.in_parts("withdraw", 2)
    assert await sizes(store) == {}
    assert await store.parked_partitions(QUEUE) == {}


async def test_a_large_job_is_buried_and_moved_alone(store: Store) -> None:
    """One that is larger than a step is to copy is dealt with all the same."""
    await created(store)
    worker = Worker(store)
    await enqueue(store, *(new(f"j{n}", payload="x" * (MAX_STEP_BYTES + n)) for n in range(3)))
    leases = [each for claim in await all_ready(worker) for each in settled(claim)]
    counting = Counting(store)
    assert await store.fail(ref(), [Failure(*each, None, "boom") for each in leases]) == []
    counting.in_parts("fail", 3)
    assert await sizes(store) == {"dead": 3}


async def test_a_batch_that_was_refused_half_way_is_not_told_to_be_refused_whole(store: Store, backend: str) -> None:
    """Else the worker would take its first part, which is refused when it is sent again, for lost leases."""
    worker = Worker(store)
    leases = await with_histories(store, worker)
    failed = [Failure(*each, LONG_MS, "boom") for each in leases]
    if backend == "memory":
        assert await store.fail(ref(), failed) == []
        return
    client = cast(Any, store)._client
    Counting(store, full=2)
    with pytest.raises(StoreUnavailable, match="a part of the batch was applied") as raised:
        await store.fail(ref(), failed)
    assert not isinstance(raised.value, StoreFull)
    cast(Any, store)._client = client
    done = (await counts(store)).retry
    assert 0 < done < JOBS
    assert await store.fail(ref(), failed) == list(range(done))
    assert await sizes(store) == {"retry": JOBS}


@pytest.mark.parametrize("step", ["withdraw", "adopt_dead", "renew"])
async def test_a_call_whose_second_step_is_refused_is_not_told_to_be_refused_whole(
    store: Store, backend: str, step: str
) -> None:
    if backend == "memory":  # it does all in one step
        return
    worker = Worker(store)
    leases = await with_histories(store, worker, size=0 if step == "renew" else 100_000)
    letters = [DeadLetter(b"d%d@%d" % (n, n), n, b"x" * 400_000, b"") for n in range(1, 6)]

    async def call() -> object:
        if step == "withdraw":
            return await store.withdraw(ref(), [b"j%d" % n for n in range(JOBS)], running=True)
        if step == "adopt_dead":
            return await store.adopt_dead(ref(), letters)
        reports = [Report(n, 0.5, "half") for n in range(JOBS)]
        return await store.renew(ref(), leases, LONG_MS, reports)

    client = cast(Any, store)._client
    for full, told in ((0, StoreFull), (1, StoreUnavailable)):
        Counting(store, full=full)
        with pytest.raises(StoreUnavailable) as raised:
            await call()
        assert type(raised.value) is told
        assert ("a part of the batch was applied" in str(raised.value)) == bool(full)
        cast(Any, store)._client = client
    await call()


async def test_large_dead_letters_are_copied_in_parts(store: Store) -> None:
    """As many as a page of small ones has, whoever made the list."""
    await created(store)
    letters = [DeadLetter(b"j%d@%d" % (n, n), n, b"x" * 400_000, b"") for n in range(1, 6)]
    counting = Counting(store)
    assert await store.adopt_dead(ref(), letters)
    counting.in_parts("dead_adopt", 4)
    found: list[DeadLetter] = []
    while page := await store.dead_letters(ref(), found[-1] if found else None):
        found += page
    assert found == letters
    assert await store.adopt_dead(ref(), [])
    assert not await store.adopt_dead(ref(), letters, incarnation=2)
