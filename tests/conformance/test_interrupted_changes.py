"""Promotions and completions killed before any of their steps: others see old or new, and finish it."""

from __future__ import annotations

from itertools import count

import pytest

from headrace.errors import NotDrained, UnknownQueue
from headrace.lifecycle import complete, configure, promote
from headrace.producer import Producer
from headrace.settings import QueueSettings
from headrace.stores.base import Moved, Store
from headrace.topology import Topology
from tests.conformance.actors import COMPLETION, PROMOTION, completing, configuring, killed_after, promoting
from tests.conformance.conftest import Complete
from tests.conformance.steps import LONG_MS, QUEUE, created, enqueue, ref, run_everything, states, stored_topology


@pytest.mark.parametrize("steps", range(len(PROMOTION) + 1))
@pytest.mark.parametrize("successor", ["the same again", "a higher version", "producers only"])
async def test_T11_a_promotion_killed_at_any_step_is_old_or_new_and_can_be_finished(
    store: Store, completed: Complete, steps: int, successor: str
) -> None:
    old = await created(store)
    new_ = old.promoted(2, 3)
    before = await Producer(store).enqueue(QUEUE, "send")
    stale = Producer(store)
    await stale.enqueue(QUEUE, "send", id="of the stale one")
    done = await killed_after(store, steps, promoting(2, 3))
    assert done == (None if steps == len(PROMOTION) else PROMOTION[:steps])

    written = steps > PROMOTION.index("write_topology")
    assert await store.read_topology(QUEUE) == (new_ if written else old)
    # Readers with either view, and one with none, can go on.
    fresh = await Producer(store).enqueue(QUEUE, "send")
    late = await stale.enqueue(QUEUE, "send")
    known = await Producer(store).enqueue(QUEUE, "send", id="of the stale one")
    assert fresh.version == (2 if written else 1)
    assert known.existing

    match successor:
        case "the same again":
            assert await promote(store, QUEUE, 2, 3) == new_
            assert await states(store, 1, 1) == ["draining"]
            wrong = [await enqueue(store, "never", at=ref(p, 2), partitions=4) for p in range(3)]
            assert wrong == [Moved("resized", None)] * 3
        case "a higher version":
            third = await promote(store, QUEUE, 3, 2)
            assert third.active == 3
            assert await states(store, 1, 1) == ["draining"]
    topology = await stored_topology(store)
    ran = await run_everything(store, topology)
    assert sorted(ran) == sorted([before.id, fresh.id, late.id, "of the stale one"])
    for version in topology.draining:
        await completed(version)
    last = await stored_topology(store)
    assert set(last.versions) == {last.active}


async def test_T11_a_first_promotion_killed_at_any_step_is_no_queue_or_a_whole_one(store: Store) -> None:
    """Each kill is tried on a queue of its own."""
    steps = 0
    while True:
        queue = f"queue-{steps}"
        done = await killed_after(store, steps, promoting(1, 2, queue))
        stored = await store.read_topology(queue)
        if done is None:
            break
        if "write_topology" in done:
            assert stored == Topology.created(queue, 1, 2)
            assert (await Producer(store).enqueue(queue, "send")).version == 1
        else:
            assert stored is None
            with pytest.raises(UnknownQueue, match=queue):
                await Producer(store).enqueue(queue, "send")
        assert await promote(store, queue, 1, 2) == Topology.created(queue, 1, 2)
        steps += 1
    assert steps == 7


@pytest.mark.parametrize("steps", range(len(PROMOTION)))
async def test_T11_the_same_promotion_again_does_what_an_earlier_one_has_left(store: Store, steps: int) -> None:
    """By itself: no producer has marked or settled a partition in between."""
    await created(store)
    await killed_after(store, steps, promoting(2, 3))
    second = await promote(store, QUEUE, 2, 3)
    assert await store.read_topology(QUEUE) == second
    assert await states(store, 1, 1) == ["draining"]
    assert await states(store, 2, 4) == ["active"] * 3 + ["absent"]
    assert await store.successor(ref()) == second


async def test_T11_an_edit_killed_at_any_step_is_old_or_new_and_finished_by_the_same_again(store: Store) -> None:
    """A pause, and then its end: each kill is tried on a queue of its own."""
    held, free = QueueSettings(stop="hold"), QueueSettings()
    for steps in count():
        queue = f"queue-{steps}"
        jobs = []
        for version, partitions in ((1, 2), (2, 2)):
            await promote(store, queue, version, partitions)
            jobs += [(await Producer(store).enqueue(queue, "send")).id for _ in range(4)]
        for before, after in ((free, held), (held, free)):
            done = await killed_after(store, steps, configuring(after, queue))
            stored = await store.read_topology(queue)
            assert stored is not None
            assert stored.settings == (after if done is None or "write_topology" in done else before)
            edited = await configure(store, queue, after)
            assert edited.settings == after
            ran = await run_everything(store, edited)
            assert sorted(ran) == ([] if after is held else sorted(jobs))
        if done is None:
            break
    assert steps == 6


@pytest.mark.parametrize("steps", range(len(COMPLETION) + 1))
@pytest.mark.parametrize("between", ["nothing", "a promotion"])
async def test_T11_a_completion_killed_at_any_step_is_finished_by_the_next(
    store: Store, completed: Complete, steps: int, between: str
) -> None:
    await created(store, 2)
    await promote(store, QUEUE, 2, 1)
    with pytest.raises(NotDrained, match="ClientsMayRetry"):
        await complete(store, QUEUE, 1, client_retry_ms=LONG_MS)
    done = await killed_after(store, steps, completing(1))
    assert done == (None if steps == len(COMPLETION) else COMPLETION[:steps])
    placed = await Producer(store).enqueue(QUEUE, "send")
    assert placed.version == 2
    if between == "a promotion":
        await promote(store, QUEUE, 3, 1)
    if done is not None:
        await completed(1)
    topology = await stored_topology(store)
    assert set(topology.versions) == ({2, 3} if between == "a promotion" else {2})
    assert await states(store, 1, 2) == ["tombstone", "tombstone"]
    assert await run_everything(store, topology) == [placed.id]
