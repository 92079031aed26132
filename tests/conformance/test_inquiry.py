"""Where a job is: every state is told, with what is known of it."""

from __future__ import annotations

import pytest

from headrace.ids import encode_id
from headrace.stores.base import Claimed, Live, NewJob, Store, Unknown
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    key,
    new,
    opened,
    ref,
    releases,
    settled,
)

ODD_IDS = ["plain", "018f3c5e-7b1a-7c3d-9e2f-0a1b2c3d4e5f", "exactly-16-bytes", "ünïcödé", "with@1700000000000"]


async def live(store: Store, name: str) -> Live | None:
    (found,) = (await store.statuses(ref(), [encode_id(name)])).live
    described = await store.describe(ref(), encode_id(name))
    assert (described and described.live) == found
    return found


async def test_M13_each_state_is_told(store: Store, advance: Advance) -> None:
    await created(store)
    assert await live(store, "a") is None
    await enqueue(store, new("later", when=-LONG_MS), "a", "b", "c", "d")
    now = (await counts(store)).now
    later = await live(store, "later")
    assert later is not None
    assert later.state == "scheduled"
    assert later.at is not None
    assert abs(later.at - LONG_MS - now) < 60_000
    assert await live(store, "a") == Live("ready", None, "")
    claim = await Worker(store, "host-1").claim(4)
    leased = await live(store, "b")
    assert leased is not None
    assert (leased.state, leased.worker) == ("leased", "host-1")
    assert leased.at is not None
    assert leased.at >= now + LONG_MS
    retry, release, park, _ = failures(claim, LONG_MS)
    await store.fail(ref(), [retry])
    waiting = await live(store, "a")
    assert waiting is not None
    assert waiting.state == "retry"
    await store.release(ref(), [each for each in releases(claim) if each.key == release.key])
    assert await live(store, "b") == Live("ready", None, "")
    await store.park(ref(), [Unknown(park.key, park.token, "send")])
    assert await live(store, "c") == Live("parked", None, "")
    await store.ack(ref(), settled(claim)[3:])
    assert await live(store, "d") is None


async def test_a_suspect_is_ready(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    await Worker(store).claim(lease_ms=1)
    await advance(3)
    await store.recover(ref())
    assert await live(store, "a") == Live("ready", None, "")


async def test_many_are_told_at_once_in_their_order(store: Store) -> None:
    await created(store)
    await enqueue(store, *ODD_IDS, new("later", when=-LONG_MS))
    asked = [encode_id(name) for name in ("missing", *ODD_IDS, "later", "plain")]
    states = [found and found.state for found in (await store.statuses(ref(), asked)).live]
    assert states == [None, *["ready"] * len(ODD_IDS), "scheduled", "ready"]


@pytest.mark.parametrize("lane", [b"0", b"1", b"2"])
async def test_jobs_of_every_priority_are_found(store: Store, lane: bytes) -> None:
    await created(store)
    waiting: NewJob = new("waits", when=-LONG_MS, lane=lane)
    await enqueue(store, waiting, new("ready", lane=lane))
    found = await live(store, "waits")
    assert found is not None
    assert found.state == "scheduled"
    await Worker(store).claim()
    found = await live(store, "ready")
    assert found is not None
    assert found.state == "leased"


async def test_M13_a_described_job_brings_its_record_and_history(store: Store) -> None:
    await created(store)
    await enqueue(store, new("a", payload={"to": "ada"}))
    await store.fail(ref(), failures(await Worker(store, "host-1").claim(), LONG_MS, "boom"))
    described = await store.describe(ref(), encode_id("a"))
    assert described is not None
    job = opened(Claimed(key("a"), described.record, described.changes))
    assert (job.payload, job.attempt, job.last_error) == ({"to": "ada"}, 1, "boom")
    assert [(entry.status, entry.worker, entry.error) for entry in job.history] == [("failed", "host-1", "boom")]


async def test_dead_letters_are_found_by_id(store: Store, advance: Advance) -> None:
    await created(store)
    for number, name in enumerate([*ODD_IDS, "plain"]):
        await enqueue(store, new(name, payload=number))
        await store.fail(ref(), failures(await Worker(store, f"w{number}").claim(), None, f"error {number}"))
        await advance(2)
    stored = [encode_id(name) for name in ODD_IDS]
    found = await store.find_dead(ref(), [*stored, b"missing"])
    assert found.go_on is None
    assert found.letters.keys() == set(stored)
    newest = found.letters[encode_id("plain")]  # of two deaths the newest
    assert (await store.find_dead(ref(), stored, since=newest.died_at)).letters == {encode_id("plain"): newest}
    assert (await store.find_dead(ref(), stored, since=newest.died_at + 1)).letters == {}


async def test_a_search_through_many_dead_letters_takes_several_steps(store: Store, backend: str) -> None:
    if backend != "memory":  # its search is one step
        await created(store)
        await enqueue(store, "first")
        await store.fail(ref(), failures(await Worker(store).claim(), None))
        for number in range(10):
            await enqueue(store, *(f"job-{number}-{n}" for n in range(250)))
            await store.fail(ref(), failures(await Worker(store, f"w{number}").claim(250), None))
        steps = [await store.find_dead(ref(), [b"first", b"job-9-1"])]
        assert steps[0].letters.keys() == {b"job-9-1"}
        while steps[-1].go_on is not None:
            steps.append(await store.find_dead(ref(), [b"first"], go_on=steps[-1].go_on))
        assert len(steps) == 3  # 2,501 letters, at most 1,000 in a step
        assert steps[-1].letters.keys() == {b"first"}
