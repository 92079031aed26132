"""Finished jobs: kept only where the queue's retention says so, bounded by number, bytes and age."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.errors import InvalidInput
from headrace.ids import encode_id
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import MAX_RESULTS_BYTES, Claim, FinishedJob, Store, Success
from headrace.topology import PartitionRef
from tests.conformance.conftest import Advance
from tests.conformance.steps import QUEUE, Worker, enqueue, ids, new, ref, settled


async def keeping(store: Store, partitions: int = 1, **retention: int) -> None:
    """A queue that keeps finished jobs."""
    await promote(store, QUEUE, 1, partitions, settings=QueueSettings(retention=Retention(**retention)))


def told(claim: Claim, result: bytes = b"") -> list[Success]:
    return [Success("send", 0, result) for _ in claim.jobs]


async def finish(
    store: Store, *names: str, result: bytes = b"", at: PartitionRef | None = None, worker: str = "w"
) -> None:
    """Take jobs through their life, acknowledged together."""
    await enqueue(store, *names, at=at)
    claim = await Worker(store, f"{worker}-{names[0]}").claim(at=at)
    assert ids(claim) == list(names)
    assert await store.ack(at or ref(), settled(claim), told(claim, result)) == []


async def kept(store: Store, at: PartitionRef | None = None) -> list[str]:
    """Ids of the finished jobs, oldest first."""
    found: list[str] = []
    after = b""
    while page := await store.finished(at or ref(), after, newest_first=False):
        found += names([job for batch in page for job in batch.jobs])
        after = page[-1].entry
    return found


def names(jobs: Sequence[FinishedJob]) -> list[str]:
    return [job.stored_id.decode() for job in jobs]


async def test_QD1_nothing_is_kept_unless_the_queue_says_so(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    await finish(store, "a")
    assert await kept(store) == []
    await configure(store, QUEUE, QueueSettings(retention=Retention(done_count=0)))
    await finish(store, "b")
    assert await kept(store) == []


async def test_what_became_of_a_job_is_kept(store: Store) -> None:
    await keeping(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store, "host-1").claim()
    assert await store.ack(ref(), settled(claim), [Success("send", 2, b"\x00{}"), Success("other", 0)]) == []
    (batch,) = await store.finished(ref())
    first, second = batch.jobs
    assert first[:4] == (encode_id("a"), "send", 2, b"\x00{}")
    assert second[:4] == (encode_id("b"), "other", 0, b"")
    assert first.worker == second.worker == "host-1"
    assert first.finished_at == second.finished_at
    assert claim.now <= first.finished_at <= (await store.counts([ref()]))[0].now


async def test_a_claim_that_acknowledges_keeps_it_too(store: Store) -> None:
    await keeping(store)
    await enqueue(store, "a", "b")
    worker = Worker(store, "host-1")
    claim = await worker.claim(1)
    again = await store.claim(ref(), "host-1", 99, 1, 60_000, settled(claim), successes=told(claim))
    assert ids(again) == ["b"]
    assert await kept(store) == ["a"]


async def test_a_refused_result_is_not_kept_and_a_repeated_one_not_twice(store: Store, advance: Advance) -> None:
    await keeping(store)
    await enqueue(store, "a", "b", "c")
    claim = await Worker(store).claim()
    acks = settled(claim)
    stale = [acks[0]._replace(token=b"other:1"), *acks[1:]]
    results = [Success("send", 0, b"\x00%d" % number) for number in range(3)]
    assert await store.ack(ref(), stale, results) == [0]
    (batch,) = await store.finished(ref())
    assert [(job.stored_id, job.result) for job in batch.jobs] == [(b"b", b"\x001"), (b"c", b"\x002")]
    assert await store.ack(ref(), acks, results) == [1, 2]
    assert await store.ack(ref(), acks, results) == [0, 1, 2]
    assert sorted(await kept(store)) == ["a", "b", "c"]


async def test_J19_the_newest_are_kept_by_number(store: Store) -> None:
    await keeping(store, done_count=5)
    for number in range(12):
        await finish(store, f"job-{number:02}")
        if number >= 5:
            assert len(await kept(store)) == 5
    assert await kept(store) == [f"job-{number:02}" for number in range(7, 12)]
    await finish(store, *(f"batch-{number}" for number in range(8)))  # whole batches: at least five are kept
    await store.trim(ref())
    assert await kept(store) == [f"batch-{number}" for number in range(8)]
    await finish(store, "last")
    assert len(await kept(store)) == 9


async def test_J19_each_partition_keeps_its_part(store: Store) -> None:
    await keeping(store, partitions=4, done_count=6)
    for number in range(5):
        await enqueue(store, f"job-{number}", at=ref(3), partitions=4)
        claim = await Worker(store, f"w{number}").claim(at=ref(3))
        await store.ack(ref(3), settled(claim), told(claim))
    assert await kept(store, ref(3)) == ["job-3", "job-4"]
    assert await kept(store, ref(0)) == []


async def test_J19_QD2_bytes_are_bounded_and_payloads_are_gone(store: Store) -> None:
    """What is kept of a finished job does not hold its payload."""
    await keeping(store, done_bytes=5_000)
    for number in range(20):
        await enqueue(store, new(f"job-{number:02}", payload="x" * 50_000))
        claim = await Worker(store, f"w{number}").claim()
        await store.ack(ref(), settled(claim), told(claim, b"\x01" + b"r" * 1_000))
    left = await kept(store)
    assert left == [f"job-{number:02}" for number in range(20 - len(left), 20)]
    assert 3 <= len(left) <= 5
    await finish(store, "large", result=b"\x01" + b"r" * 20_000)  # the newest stays, whatever it takes
    assert await kept(store) == ["large"]


async def test_J19_QD2_age_is_bounded(store: Store, advance: Advance) -> None:
    await keeping(store, done_seconds=1)
    await finish(store, "old")
    await advance(600)
    await finish(store, "new")
    assert await kept(store) == ["old", "new"]
    await advance(500)
    await store.trim(ref())
    assert await kept(store) in (["new"], [])  # none if the machine was slow
    await advance(1_100)
    assert await kept(store) == []  # without anybody's doing
    await finish(store, "newest")
    assert await kept(store) == ["newest"]
    assert (await store.trim(ref())).finished == 0


async def test_QD4_nothing_is_left_once_it_is_switched_off(store: Store) -> None:
    await keeping(store)
    for number in range(3):
        await finish(store, f"job-{number}")
    await configure(store, QUEUE, QueueSettings())
    assert await kept(store) == ["job-0", "job-1", "job-2"]  # until somebody looks after the queue
    assert await store.trim(ref()) == (3, 0)
    assert await kept(store) == []
    assert await store.trim(ref()) == (0, 0)


async def test_a_bound_that_is_lowered_is_reached_in_bounded_steps(store: Store) -> None:
    await keeping(store)
    for number in range(40):
        await finish(store, f"job-{number:02}")
    await configure(store, QUEUE, QueueSettings(retention=Retention(done_count=3)))
    steps = []
    while dropped := (await store.trim(ref())).finished:
        steps.append(dropped)
    assert sum(steps) == 37
    assert max(steps) <= 16
    assert await kept(store) == ["job-37", "job-38", "job-39"]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_go_on_where_the_last_one_ended(store: Store, newest_first: bool) -> None:
    await keeping(store)
    batches = [[f"job-{number}{part}" for part in "abc"] for number in range(6)]
    for batch in batches:
        await finish(store, *batch)
    expected = batches[::-1] if newest_first else batches
    seen: list[list[str]] = []
    after = b""
    while page := await store.finished(ref(), after, 4, newest_first=newest_first):
        assert len(page) <= 2  # whole batches, until there are enough
        seen += [names(batch.jobs) for batch in page]
        after = page[-1].entry
        if newest_first:
            await finish(store, f"meanwhile-{len(seen)}")
    assert seen == expected


async def test_M14_an_outcome_is_found_by_its_id(store: Store) -> None:
    await keeping(store)
    for number in range(5):
        await finish(store, f"a{number}", "again", result=b"\x00%d" % number)
    for wanted, result in (("a1", b"\x001"), ("again", b"\x004")):
        found = await store.find_finished(ref(), [encode_id(wanted)])
        assert found.older == b""
        assert found.jobs[encode_id(wanted)].result == result
    both = await store.find_finished(ref(), [encode_id("a0"), encode_id("a4"), encode_id("none"), encode_id("a")])
    assert set(both.jobs) == {b"a0", b"a4"}
    newest = (await store.finished(ref(), limit=1))[0].entry
    assert (await store.find_finished(ref(), [b"a3"], newer=newest)).jobs == {}
    assert (await store.find_finished(ref(), [b"a3", b"a4"], older=newest)).jobs.keys() == {b"a3"}
    assert (await store.statuses(ref(), [])).newest == newest


async def test_what_is_new_since_is_found_without_looking_at_the_rest(store: Store) -> None:
    await keeping(store)
    await finish(store, "x")
    before = (await store.statuses(ref(), [b"x"])).newest
    await finish(store, "y")
    assert (await store.find_finished(ref(), [b"x", b"y"], newer=before)).jobs.keys() == {b"y"}


async def test_a_search_through_many_batches_takes_several_steps(store: Store, backend: str) -> None:
    if backend != "memory":  # its search is one step
        await keeping(store)
        await finish(store, "first")
        for number in range(300):
            await finish(store, f"job-{number}")
        found = await store.find_finished(ref(), [b"first"])
        assert found.jobs == {}
        assert found.older != b""
        found = await store.find_finished(ref(), [b"first"], older=found.older)
        assert found.jobs.keys() == {b"first"}


async def test_ids_of_every_form_are_found(store: Store) -> None:
    await keeping(store)
    forms = ["018f3c5e-7b1a-7c3d-9e2f-0a1b2c3d4e5f", "exactly-16-bytes", "ünïcödé", "x" * 200, "s"]
    await finish(store, *forms)
    stored = [encode_id(form) for form in forms]
    assert (await store.find_finished(ref(), stored)).jobs.keys() == set(stored)


async def test_what_is_told_must_fit(store: Store) -> None:
    await keeping(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim()
    with pytest.raises(InvalidInput, match="all of the 2 jobs or none"):
        await store.ack(ref(), settled(claim), [Success("send", 0)])
    large = [Success("send", 0, b"x" * MAX_RESULTS_BYTES), Success("send", 0, b"x")]
    with pytest.raises(InvalidInput, match="at most 262144"):
        await store.claim(ref(), "w", 77, 1, 1000, settled(claim), successes=large)
    assert await store.ack(ref(), settled(claim), told(claim)) == []
