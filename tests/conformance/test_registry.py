"""The registry of workers: who is there, what they say of themselves, and who is to claim nothing."""

from __future__ import annotations

from headrace.stores.base import Beat, Store
from headrace.stores.memory import MemoryStore
from headrace.stores.memory.roster import KEPT_MS, SILENT_MS
from tests.conformance.conftest import Advance, ManualClock
from tests.conformance.steps import QUEUE

SAID = Beat("host-1", 17, "emails-abc", "node-1", 16, 3)


async def test_QK6_workers_are_listed_with_what_they_said_last(store: Store, advance: Advance) -> None:
    assert await store.workers(QUEUE) == []
    await store.tick(QUEUE, "first", SAID)
    await store.tick(QUEUE, "second")
    await store.tick(QUEUE, "first", SAID._replace(in_flight=5))
    await store.tick(QUEUE, "first")  # a tick for the alarm says nothing and changes nothing
    entries = {entry.worker: entry for entry in await store.workers(QUEUE)}
    assert entries.keys() == {"first", "second"}
    assert entries["first"].beat == SAID._replace(in_flight=5)
    assert entries["second"].beat == Beat()
    assert not any(entry.gone or entry.stop_ms is not None for entry in entries.values())
    await advance(30)
    assert all(30 <= entry.heard_ms < 60_000 for entry in await store.workers(QUEUE))
    assert await store.workers("other") == []


async def test_QK6_what_a_worker_said_is_known_after_it_has_left(store: Store) -> None:
    await store.tick(QUEUE, "first", SAID)
    await store.leave(QUEUE, "first")
    assert await store.workers(QUEUE) == []
    (entry,) = await store.about_workers(QUEUE, ["first", "nobody"])
    assert (entry.worker, entry.beat, entry.gone) == ("first", SAID, True)
    assert await store.about_workers(QUEUE, []) == []


async def test_QK6_what_a_dead_worker_said_is_known_for_an_hour(store: Store, clock: ManualClock) -> None:
    if not isinstance(store, MemoryStore):
        return  # an hour of a server's time
    await store.tick(QUEUE, "dead", SAID)
    clock.now += SILENT_MS
    (entry,) = await store.about_workers(QUEUE, ["dead"])
    assert (entry.gone, entry.heard_ms) == (True, SILENT_MS)
    assert await store.workers(QUEUE) == []
    await store.tick(QUEUE, "alive", SAID)
    (entry,) = await store.about_workers(QUEUE, ["dead"])
    assert (entry.gone, entry.beat) == (True, SAID)
    clock.now += KEPT_MS
    await store.tick(QUEUE, "alive", SAID)
    assert await store.about_workers(QUEUE, ["dead"]) == []


async def test_QG6_a_worker_is_told_for_how_long_to_claim_nothing(store: Store, advance: Advance) -> None:
    await store.tick(QUEUE, "first")
    await store.stop_claiming(QUEUE, ["first", "unknown"], 60_000)
    tick = await store.tick(QUEUE, "first")
    assert tick.stop_ms is not None
    assert 0 < tick.stop_ms <= 60_000
    assert (await store.tick(QUEUE, "second")).stop_ms is None
    stop_ms = {entry.worker: entry.stop_ms for entry in await store.workers(QUEUE)}
    assert stop_ms["second"] is None
    assert stop_ms["first"] is not None
    # It may be taken back, and it runs out.
    await store.stop_claiming(QUEUE, ["first"], 0)
    assert (await store.tick(QUEUE, "first")).stop_ms is None
    await store.stop_claiming(QUEUE, ["first"], 20)
    await advance(20)
    assert (await store.tick(QUEUE, "first")).stop_ms is None
    assert [entry.stop_ms for entry in await store.workers(QUEUE)] == [None, None]


async def test_QG6_the_longer_of_two_orders_does_not_end_with_the_shorter(store: Store, advance: Advance) -> None:
    await store.stop_claiming(QUEUE, ["first"], 60_000)
    await store.stop_claiming(QUEUE, ["second"], 10)
    await advance(10)
    assert (await store.tick(QUEUE, "first")).stop_ms is not None
    assert (await store.tick(QUEUE, "second")).stop_ms is None


async def test_QG6_a_worker_says_until_when_it_claims_nothing(store: Store, advance: Advance) -> None:
    """However old the word is: it is until a time of the server, and ends with it."""
    assert (await store.tick(QUEUE, "first", SAID)).stop_till == 0
    await store.stop_claiming(QUEUE, ["first"], 60_000)
    (entry,) = await store.workers(QUEUE)
    assert entry.stop_ms is not None
    assert entry.stands_by_ms == 0  # it has not learnt of that
    tick = await store.tick(QUEUE, "first")
    assert tick.stop_till
    await store.tick(QUEUE, "first", SAID._replace(stands_by_till=tick.stop_till))
    await advance(20)
    await store.tick(QUEUE, "first")  # for the alarm: it says nothing, and makes nothing of it younger
    (entry,) = await store.workers(QUEUE)
    assert entry.stop_ms is not None
    assert 0 < entry.stands_by_ms <= entry.stop_ms < 60_000
    await store.tick(QUEUE, "first", SAID._replace(stands_by_till=tick.stop_till - 60_000))
    assert [entry.stands_by_ms for entry in await store.workers(QUEUE)] == [0]


async def test_a_worker_that_leaves_is_not_told_any_more(store: Store) -> None:
    await store.tick(QUEUE, "first", SAID)
    await store.stop_claiming(QUEUE, ["first"], 60_000)
    await store.leave(QUEUE, "first")
    (entry,) = await store.about_workers(QUEUE, ["first"])
    assert entry.stop_ms is None
