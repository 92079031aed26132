"""Deleting a whole queue: what becomes of its jobs, of those who still know it, and of a new queue of its name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from headrace.deletion import Deletion, delete_queue
from headrace.errors import QueueDeleting, QueueNotEmpty, TopologyConflict, UnknownQueue
from headrace.lifecycle import complete, configure, promote
from headrace.producer import Producer
from headrace.schedules.mark import ScheduleMark
from headrace.settings import QueueSettings
from headrace.stores.base import Beat, Fence, Moved, Store, Unknown
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.stores.redis.hints import Outlook
from headrace.topology import Grave, Topology
from tests.conformance.actors import Gate, Killed, killed_after, standing_before
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
    releases,
    run_everything,
    settled,
    states,
    stored_topology,
)
from tests.services.redis_setups import SUPPORTED, RedisSetups

DELETION = [
    "read_topology",
    "counts",
    "counts",
    "delete_partition 1:0",
    "delete_partition 2:0",
    "bury_queue",
]
"""The steps of deleting a queue that says already that it is being deleted."""


async def full(store: Store) -> Worker:
    """Fill v1:0, and promote version 2 over it: jobs in every state; ``leased`` is one of the worker's."""
    await created(store)
    worker = Worker(store)
    for job_id in ("dead", "retry", "parked", "leased"):
        await enqueue(store, job_id)
        claim = await worker.claim()
        match job_id:
            case "dead":
                await store.fail(ref(), failures(claim, None))
            case "retry":
                await store.fail(ref(), failures(claim, LONG_MS))
            case "parked":
                await store.park(ref(), [Unknown(*settled(claim)[0], "strange")])
    await enqueue(store, "ready", new("later", -LONG_MS))
    await promote(store, QUEUE, 2, 1)
    await enqueue(store, "new", at=ref(0, 2))
    return worker


HELD = {"ready": 2, "scheduled": 1, "retry": 1, "leased": 1, "parked": 1, "dead": 1}


async def test_J21_a_queue_is_deleted_with_all_that_it_holds(store: Store) -> None:
    await full(store)
    assert await delete_queue(store, QUEUE) == Deletion(QUEUE, 2, HELD)
    assert await store.read_topology(QUEUE) is None
    assert await store.read_grave(QUEUE) == Grave(4, 1)
    assert [await states(store, version, 1) for version in (1, 2)] == [["tombstone"], ["tombstone"]]
    assert await store.parked_partitions(QUEUE) == {}
    assert await store.wait_hint([QUEUE], 0.01) is None
    with pytest.raises(UnknownQueue):
        await Producer(store).enqueue(QUEUE, "send")
    assert await delete_queue(store, QUEUE) == Deletion(QUEUE, 0, {})


async def test_J21_a_queue_is_created_again_over_the_grave_of_another_release(store: Store) -> None:
    """Its text is what is compared, not what would be written here; partitions tell which queue they belong to."""
    await created(store, 2)
    await delete_queue(store, QUEUE)
    text = json.dumps({**json.loads(Grave(3, 1).to_json()), "unknown": {"of": "a later release"}})
    if isinstance(store, RedisStore):
        await store._client.command("SET", store._keys.queue(QUEUE, "grave"), text)
    else:
        assert isinstance(store, MemoryStore)
        until, _ = store._data.graves[QUEUE]
        store._data.graves[QUEUE] = until, Grave.from_json(QUEUE, text)
    found = await store.read_grave(QUEUE)
    assert (found, found and found.to_json()) == (Grave(3, 1), text)
    again = Topology.created(QUEUE, 1, 1, grave=found)
    assert not await store.write_topology(Grave(3, 1), again)
    assert await store.write_topology(found, again)
    assert (again.epoch, again.incarnation) == (4, 2)
    await promote(store, QUEUE, 1, 1)
    assert await delete_queue(store, QUEUE) == Deletion(QUEUE, 1, {})
    await promote(store, QUEUE, 1, 1)
    refs = [ref(), ref(1), ref(0, 2)]
    found_there = [(each.state, each.incarnation) for each in await store.counts(refs)]
    assert found_there == [("active", 3), ("tombstone", 1), ("absent", 1)]


async def test_J21_results_of_jobs_that_ran_meanwhile_are_refused_and_leave_nothing(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "a", "b", "c", "d", "e")
    claim = await worker.claim()
    await delete_queue(store, QUEUE)
    every = list(range(5))
    assert await store.renew(ref(), settled(claim), LONG_MS) == every
    assert await store.ack(ref(), settled(claim)) == every
    assert await store.fail(ref(), failures(claim, 0)) == every
    assert await store.fail(ref(), failures(claim, None)) == every
    assert await store.release(ref(), releases(claim)) == every
    assert await store.park(ref(), [Unknown(*each, "strange") for each in settled(claim)]) == every
    assert (await store.resume(ref(), "w", 1, LONG_MS)).gone
    assert (await worker.claim(acks=settled(claim))).gone
    assert await store.recover(ref()) == await store.promote_due(ref()) == await store.unpark(ref(), ["strange"]) == 0
    (after,) = await store.counts([ref()])
    assert (after.state, after.nonempty()) == ("tombstone", {})
    assert await store.wait_hint([QUEUE], 0.01) is None


async def test_J21_what_clients_say_too_late_leaves_no_key_that_stays(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups
) -> None:
    """Whoever was on its way when the queue was buried gives hints back, parks, ticks, counts and takes its leave."""
    worker = await full(store)
    holding = await Worker(store, "other").claim(1)
    await store.tick(QUEUE, "w")
    await delete_queue(store, QUEUE)
    hints = store._hints if isinstance(store, RedisStore) else None
    for at in (ref(), ref(0, 2)):
        await store.hint(at)
        await store.hint_parked(at, 1)
        assert (await worker.claim(at=at, acks=settled(holding))).gone
        if hints is not None:  # of scripts that were done before the end
            await hints.give(at, ready=1, due=1)
            await hints.after_claim(at, "w", Outlook(1, -1), b"")
            await hints.parked(at, 1)
    assert not await store.count_work(QUEUE, {"claimed": 1})
    assert not await store.note_schedule(QUEUE, Fence(1, "leader"), "nightly", None, ScheduleMark(1, "0 3 * * *"))
    await store.tick(QUEUE, "w", Beat("host", 1, "pod", "node", 1, 1))
    await store.stop_claiming(QUEUE, ["w"], 1)
    await store.leave(QUEUE, "w")
    assert await store.wait_hint([QUEUE], 0.01) is None
    assert await store.parked_partitions(QUEUE) == {}
    if backend != "memory":
        staying = {name.rpartition(":")[2] for name, ms in redis_setups.keys(backend, prefix).items() if ms < 0}
        assert staying <= {"queues", "wakes"}  # of all queues


async def test_J21_a_stale_producer_does_not_bring_it_back(store: Store) -> None:
    stale = Producer(store)
    await created(store, 2)
    await promote(store, QUEUE, 2, 2)
    await stale.enqueue(QUEUE, "send", id="mine")
    await delete_queue(store, QUEUE)
    for job_id in ("mine", "other", None):  # ids of the caller's are looked up in the old version first
        with pytest.raises(UnknownQueue):
            await stale.enqueue(QUEUE, "send", id=job_id)
    assert await states(store, 1, 2) == await states(store, 2, 2) == ["tombstone", "tombstone"]


async def test_J21_while_it_is_deleted_nothing_else_changes_it(store: Store) -> None:
    topology = await created(store)
    stale = Producer(store)
    await stale.enqueue(QUEUE, "send")
    gate = Gate(store)
    async with standing_before(gate, "delete_partition 1:0", lambda through: delete_queue(through, QUEUE)):
        assert (await stored_topology(store)).deleting
        for step in (
            promote(store, QUEUE, 1, 1),
            promote(store, QUEUE, 2, 1),
            configure(store, QUEUE, topology.settings),
            configure(store, QUEUE, QueueSettings(stop="hold")),
            complete(store, QUEUE, 1),
        ):
            with pytest.raises(QueueDeleting, match="headrace queue delete emails"):
                await step
        with pytest.raises(QueueDeleting):
            await Producer(store).enqueue(QUEUE, "send")
        await stale.enqueue(QUEUE, "send")  # its partition is still there, and so will the job not be
    assert await store.read_topology(QUEUE) is None


@pytest.mark.parametrize("steps", range(8))
async def test_J21_a_deletion_killed_at_any_step_is_finished_by_the_next(store: Store, steps: int) -> None:
    await full(store)
    done = await killed_after(store, steps, lambda through: delete_queue(through, QUEUE))
    whole = ["read_topology", "write_topology", *DELETION[1:]]
    assert done == (None if steps == len(whole) else whole[:steps])
    if steps < 2:
        assert not (await stored_topology(store)).deleting
    gate = Gate(store)
    await delete_queue(gate.store, QUEUE)
    if 2 <= steps < len(whole):
        assert gate.steps == DELETION
    assert await store.read_topology(QUEUE) is None
    assert [await states(store, version, 1) for version in (1, 2)] == [["tombstone"], ["tombstone"]]


async def test_J21_a_new_queue_of_the_name_begins_at_any_version_and_runs_its_own_jobs_only(store: Store) -> None:
    worker = await full(store)
    await delete_queue(store, QUEUE)
    again = await promote(store, QUEUE, 1, 2)
    assert (again.epoch, again.incarnation, again.highest) == (5, 2, 1)
    assert await states(store, 1, 2) == ["active", "active"]
    placed = await Producer(store).enqueue(QUEUE, "send", id="dead")
    assert not placed.existing
    assert await run_everything(store, again) == ["dead"]
    assert worker.seq == 4

    assert await delete_queue(store, QUEUE) == Deletion(QUEUE, 2, {})
    third = await promote(store, QUEUE, 7, 1)
    assert (third.incarnation, third.highest) == (3, 7)
    assert (await Producer(store).enqueue(QUEUE, "send")).version == 7


async def test_J21_who_knows_the_deleted_queue_cannot_harm_the_new_one(store: Store) -> None:
    stale = Producer(store)
    old = await created(store)
    old = await promote(store, QUEUE, 2, 1)
    await stale.enqueue(QUEUE, "send", id="mine")
    await delete_queue(store, QUEUE)
    fresh = await promote(store, QUEUE, 1, 1)

    assert await store.mark(ref(), old) == "active"
    assert await store.probe(ref(), old, [(b"1mine", b"")]) == [False]
    assert (await store.settle(ref(), old)).state == "active"
    assert (await store.install(ref(), old, 3)).state == "active"
    assert not await store.remove(ref(), old.incarnation)
    assert not await store.delete_partition(ref(), old.incarnation)
    assert not await store.write_topology(old, old.promoted(3, 1))
    assert not await store.bury_queue(old)
    # One that was not asked again would have put its job where a promoter may still be at work.
    assert await store.enqueue(ref(), 1, b"nonce", [new("mine")], old.incarnation) == Moved("resized", None)
    placed = await stale.enqueue(QUEUE, "send", id="mine")
    assert (placed.version, placed.existing) == (1, False)
    assert await stored_topology(store) == fresh
    assert await run_everything(store, fresh) == ["mine"]


async def test_J21_a_promoter_that_is_overtaken_by_the_deletion_leaves_nothing(store: Store) -> None:
    await created(store)
    gate = Gate(store)
    async with standing_before(gate, "write_topology", lambda through: promote(through, QUEUE, 2, 2)) as promoting:
        deleting = Gate(store)
        async with standing_before(deleting, "bury_queue", lambda through: delete_queue(through, QUEUE)):
            gate.go_on()
            async with asyncio.timeout(60):
                await asyncio.wait([promoting])
    assert isinstance(promoting.exception(), QueueDeleting)
    assert await states(store, 2, 2) == ["absent", "absent"]


async def test_J21_a_partition_of_the_new_queue_that_is_undone_is_open_to_it_and_closed_to_the_deleted_one(
    store: Store,
) -> None:
    old = await created(store)
    await delete_queue(store, QUEUE)
    new_ = await promote(store, QUEUE, 1, 1)
    assert await store.discard(ref())
    assert (await store.install(ref(), old, 1)).state == await store.mark(ref(), old) == "tombstone"
    assert await store.enqueue(ref(), 1, b"a", [new("a")], old.incarnation) == Moved("tombstone", None)
    assert await store.enqueue(ref(), 1, b"b", [new("a")], new_.incarnation) == Moved("absent", None)
    assert (await Producer(store).enqueue(QUEUE, "send", id="a")).version == 1
    assert await states(store, 1, 1) == ["active"]


async def test_J21_two_deletions_at_once_delete_it_once(store: Store) -> None:
    await full(store)
    gate = Gate(store)
    async with standing_before(gate, "delete_partition 1:0", lambda through: delete_queue(through, QUEUE)) as slow:
        await delete_queue(store, QUEUE)
        again = await promote(store, QUEUE, 1, 1)
        await enqueue(store, new("a"), at=ref(), partitions=1, incarnation=again.incarnation)
    assert slow.result().partitions == 1  # v2, which the new queue does not have
    assert await stored_topology(store) == again
    assert ids(await Worker(store).claim()) == ["a"]


async def test_J21_only_the_owner_deletes_and_only_an_empty_queue_if_so_asked(store: Store) -> None:
    mine = {"uid": "1"}
    await promote(store, QUEUE, 1, 1, owner=mine)
    before = await stored_topology(store)
    with pytest.raises(TopologyConflict, match="another owner"):
        await delete_queue(store, QUEUE, owner={"uid": "2"})
    await enqueue(store, "a")
    with pytest.raises(QueueNotEmpty, match="1 ready") as caught:
        await delete_queue(store, QUEUE, owner=mine, only_if_empty=True)
    assert caught.value.counts == {"ready": 1}
    await store.fail(ref(), failures(await Worker(store).claim(), None))
    with pytest.raises(QueueNotEmpty, match="1 dead"):
        await delete_queue(store, QUEUE, owner=mine, only_if_empty=True)
    assert await stored_topology(store) == before
    (letter,) = await store.dead_letters(ref())
    await store.remove_dead(ref(), [letter.letter])
    assert await delete_queue(store, QUEUE, owner=mine, only_if_empty=True) == Deletion(QUEUE, 1, {})


async def test_J21_a_queue_that_never_was_is_not_deleted(store: Store) -> None:
    with pytest.raises(UnknownQueue):
        await delete_queue(store, QUEUE)


class Dying:
    """Passes commands on to a client that dies at one of a name; or ``act`` happens before it, and it goes on."""

    def __init__(self, client: Any, command: str, act: Callable[[], Awaitable[object]] | None = None) -> None:
        self._client = client
        self._command = command
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def command(self, name: str, *args: Any) -> Any:
        if name == self._command:
            if self._act is None:
                raise Killed
            act, self._act, self._command = self._act, None, ""
            await act()
        return await self._client.command(name, *args)


@pytest.fixture(params=SUPPORTED)
async def listing(request: pytest.FixtureRequest, prefix: str, redis_setups: RedisSetups) -> AsyncIterator[RedisStore]:
    """A store on each server: in memory the list of queues is no key of its own."""
    store = RedisStore(redis_setups.url(request.param), prefix=prefix)
    await created(store)
    yield store
    await store.close()


@pytest.mark.parametrize("grave", [True, False], ids=["the next day", "after the grave has passed"])
async def test_J21_a_deleter_that_dies_before_it_has_unlisted_the_queue_leaves_that_to_the_next(
    listing: RedisStore, grave: bool
) -> None:
    dying = listing.clone()
    dying._client = cast(Any, Dying(dying._client, "ZREM"))
    with pytest.raises(Killed):
        await delete_queue(dying, QUEUE)
    assert await listing.read_topology(QUEUE) is None
    assert await listing.queues() == [QUEUE]
    if grave:
        assert await delete_queue(listing, QUEUE) == Deletion(QUEUE, 0, {})
    else:
        await listing._client.command("UNLINK", listing._keys.queue(QUEUE, "grave"))
        with pytest.raises(UnknownQueue):
            await delete_queue(listing, QUEUE)
    assert await listing.queues() == []
    await dying.close()


async def test_J21_a_queue_that_is_created_while_it_is_unlisted_stays_listed(listing: RedisStore) -> None:
    await delete_queue(listing, QUEUE)
    late = listing.clone()
    late._client = cast(Any, Dying(late._client, "ZREM", lambda: promote(listing, QUEUE, 1, 1)))
    await late.unlist_queue(QUEUE)
    assert await listing.queues() == [QUEUE]
    await late.close()
