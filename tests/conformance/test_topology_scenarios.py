"""Versions of a queue under races and crashes: promote, drain and complete, driven step by step on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

import pytest

from headrace.errors import (
    HeadraceError,
    InvalidInput,
    NotDrained,
    TopologyConflict,
    UnknownQueue,
    UnknownVersion,
    VersionActive,
    VersionNotHigher,
)
from headrace.ids import partition_of
from headrace.lifecycle import complete, finish_promote, promote
from headrace.producer import Producer
from headrace.stores.base import Moved, Store
from headrace.topology import PartitionRef, Topology
from tests.conformance.actors import COMPLETION, PROMOTION, Gate, Killed, completing, promoting, standing_before
from tests.conformance.conftest import Complete
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    id_of,
    ids,
    new,
    partition_counts_accepted,
    ref,
    run_everything,
    settled,
    sizes,
    states,
    stored_topology,
)


async def test_T1_a_version_with_a_job_due_later_is_not_completed(store: Store, completed: Complete) -> None:
    await created(store, 2)
    late = id_of(1, 2)
    await enqueue(store, new(late, when=-LONG_MS), at=ref(1), partitions=2)
    second = await promote(store, QUEUE, 2, 1)
    with pytest.raises(NotDrained) as caught:
        await completed(1)
    assert caught.value.counts == {1: {"scheduled": 1}}
    assert caught.value.reason == "JobsRemain"
    assert "partition 1: 1 scheduled" in str(caught.value)
    assert await store.read_topology(QUEUE) == second
    assert await sizes(store, ref(1)) == {"scheduled": 1}
    assert (await counts(store, ref(1))).state == "draining"


async def test_T2_a_running_or_retried_job_keeps_its_version(store: Store, completed: Complete) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "a")
    claim = await worker.claim()
    second = await promote(store, QUEUE, 2, 1)
    with pytest.raises(NotDrained, match="1 leased"):
        await completed(1)
    await store.fail(ref(), failures(claim, 0))
    with pytest.raises(NotDrained, match="1 retry"):
        await completed(1)
    assert await store.read_topology(QUEUE) == second
    claim = await worker.claim()
    assert ids(claim) == ["a"]
    await store.ack(ref(), settled(claim))
    assert set((await completed(1)).versions) == {2}


@pytest.mark.parametrize("pause", ["close_partition 1:0", "close_partition 1:1", "write_topology", "remove 1:0"])
async def test_T2_T4_nothing_gets_into_a_version_between_check_and_removal(
    store: Store, completed: Complete, pause: str
) -> None:
    await created(store, 2)
    stale = Producer(store)
    await stale.enqueue(QUEUE, "send", id=id_of(1, 2))
    await promote(store, QUEUE, 2, 1)
    worker = Worker(store)
    claim = await worker.claim(at=ref(1))
    await store.ack(ref(1), settled(claim))
    gate = Gate(store)
    async with standing_before(gate, pause, partial(completed, 1)) as slower:
        again = await stale.enqueue(QUEUE, "send", id=id_of(0, 2))
        assert (again.version, again.partition, again.existing) == (2, 0, False)
    assert set((await slower).versions) == {2}
    assert [(await counts(store, ref(p))).state for p in (0, 1)] == ["tombstone", "tombstone"]
    assert ids(await worker.claim(at=ref(0, 2))) == [id_of(0, 2)]


@pytest.mark.parametrize("given", [False, True])
async def test_T3_a_stale_producer_is_sent_to_the_active_version(
    store: Store, completed: Complete, given: bool
) -> None:
    await created(store, 2)
    stale = Producer(store)
    first = await stale.enqueue(QUEUE, "send")
    assert first.version == 1
    second = await promote(store, QUEUE, 2, 4)
    assert await run_everything(store, second) == [first.id]
    await completed(1)

    placed = await stale.enqueue(QUEUE, "send", id="given" if given else None)
    assert (placed.version, placed.partition) == (2, partition_of(placed.id, 4))
    assert not placed.existing
    assert await run_everything(store, await stored_topology(store)) == [placed.id]


async def test_T4_a_drained_partition_stays_empty(store: Store) -> None:
    """One close per partition is a proof, in whatever order they are made."""
    await created(store, 4)
    await promote(store, QUEUE, 2, 1)
    for partition in range(4):
        assert (await store.close_partition(ref(partition))).state == "closed"
        for earlier in range(4):
            answer = await enqueue(store, f"job-{partition}", at=ref(earlier), partitions=4)
            assert isinstance(answer, Moved)
    assert [(await counts(store, ref(p))).live for p in range(4)] == [0] * 4


async def test_the_steps_of_a_promotion(store: Store) -> None:
    await created(store)
    gate = Gate(store)
    await promote(gate.store, QUEUE, 2, 3)
    assert gate.steps == PROMOTION


@pytest.mark.parametrize("others", [2, 4])
@pytest.mark.parametrize("pause", PROMOTION[:5])
async def test_T5_of_two_promoters_with_different_partitions_one_wins(store: Store, pause: str, others: int) -> None:
    await created(store)
    gate = Gate(store)
    async with standing_before(gate, pause, promoting(2, 3)) as slower:
        won = await promote(store, QUEUE, 2, others)
    with pytest.raises(TopologyConflict) as caught:
        await slower
    assert caught.value.current == won == await store.read_topology(QUEUE)
    assert f"{others} partitions, not 3" in str(caught.value)
    assert await partition_counts_accepted(store, 2, others) == {others}
    assert await states(store, 2, 5) == ["active"] * others + ["absent"] * (5 - others)
    assert await states(store, 1, 1) == ["draining"]


@pytest.mark.parametrize("pause", PROMOTION[5:])
async def test_T5_the_loser_is_told_while_the_winner_is_not_yet_ready(store: Store, pause: str) -> None:
    await created(store)
    gate = Gate(store)
    async with standing_before(gate, pause, promoting(2, 3)) as winner:
        with pytest.raises(TopologyConflict):
            await promote(store, QUEUE, 2, 4)
    assert await winner == await store.read_topology(QUEUE)
    assert await partition_counts_accepted(store, 2, 3) == {3}


@pytest.mark.parametrize("pause", PROMOTION[1:5])
async def test_T5_a_promoter_that_was_overtaken_leaves_nothing_behind(store: Store, pause: str) -> None:
    await created(store)
    gate = Gate(store)
    async with standing_before(gate, pause, promoting(2, 3)) as slower:
        third = await promote(store, QUEUE, 3, 1)
    with pytest.raises(VersionNotHigher):
        await slower
    assert await store.read_topology(QUEUE) == third
    assert await states(store, 2, 3) == ["absent"] * 3
    assert await states(store, 3, 1) == ["active"]


async def test_T5_many_promoters_at_once(store: Store) -> None:
    await created(store)
    wanted = [2, 3, 4, 2, 3, 4]
    outcomes = await asyncio.gather(*(promote(store, QUEUE, 2, n) for n in wanted), return_exceptions=True)
    stored = await stored_topology(store)
    for partitions, outcome in zip(wanted, outcomes, strict=True):
        if partitions == stored.partitions:
            assert outcome == stored
        else:
            assert isinstance(outcome, TopologyConflict)
    assert await partition_counts_accepted(store, 2, stored.partitions) == {stored.partitions}
    assert await states(store, 2, 5) == ["active"] * stored.partitions + ["absent"] * (5 - stored.partitions)


async def test_T5_a_producer_settles_what_a_dead_winner_left(store: Store) -> None:
    """Both promoters installed their count; the winner died before it settled them: the next producer does."""
    await created(store)
    loser, winner = Gate(store), Gate(store)
    async with standing_before(loser, "write_topology", promoting(2, 3)):
        winner.kill_after = PROMOTION.index("settle 2:0") - 1
        with pytest.raises(Killed):
            await promote(winner.store, QUEUE, 2, 2)
        topology = await stored_topology(store)
        assert topology.partitions == 2
        assert isinstance(await enqueue(store, id_of(0, 2), at=ref(0, 2), partitions=2), Moved)
        placed = await Producer(store).enqueue(QUEUE, "send", id=id_of(0, 2))
        assert (placed.version, placed.partition) == (2, 0)
    assert await partition_counts_accepted(store, 2, 1) == {2}


async def test_T8_every_wrong_request_has_its_own_error_and_changes_nothing(store: Store, completed: Complete) -> None:
    with pytest.raises(UnknownQueue, match="'emails'"):
        await completed(1)
    await created(store, 2)
    await promote(store, QUEUE, 3, 4)
    await completed(1)
    before = await store.read_topology(QUEUE)

    wrong: list[tuple[Awaitable[Topology], type[HeadraceError], str]] = [
        (promote(store, QUEUE, 2, 4), VersionNotHigher, "not above 3"),
        (promote(store, QUEUE, 1, 2), VersionNotHigher, "promote version 4 or higher"),
        (promote(store, QUEUE, 3, 8), TopologyConflict, "already active with 4 partitions, not 8"),
        (promote(store, QUEUE, 4, 0), InvalidInput, "partitions: is 0"),
        (promote(store, QUEUE, 4, -1), InvalidInput, "partitions: is -1"),
        (promote(store, QUEUE, 4, 1025), InvalidInput, "1 to 1024"),
        (promote(store, QUEUE, 0, 4), InvalidInput, "version: is 0"),
        (promote(store, QUEUE, -3, 4), InvalidInput, "version: is -3"),
        (promote(store, "No Queue", 4, 4), InvalidInput, "queue: 'No Queue'"),
        (complete(store, QUEUE, 3), VersionActive, "version 3 is active"),
        (complete(store, QUEUE, 1), UnknownVersion, "no version 1"),
        (complete(store, QUEUE, 9), UnknownVersion, "no version 9; versions in its topology: v3"),
    ]
    for request, error, message in wrong:
        with pytest.raises(error, match=message):
            await request
    assert await store.read_topology(QUEUE) == before
    assert await states(store, 4, 2) == ["absent", "absent"]


async def test_T8_the_same_request_again_is_a_success(store: Store) -> None:
    first = await promote(store, QUEUE, 1, 2)
    assert await promote(store, QUEUE, 1, 2) == first
    second = await promote(store, QUEUE, 2, 4)
    assert await promote(store, QUEUE, 2, 4) == second
    assert second.epoch == first.epoch + 1


async def test_T9_many_versions_drain_side_by_side_and_end_on_their_own(store: Store, completed: Complete) -> None:
    producer = Producer(store)
    placed = []
    for version, partitions in ((1, 2), (2, 4), (3, 3)):
        await promote(store, QUEUE, version, partitions)
        placed += [await producer.enqueue(QUEUE, "send") for _ in range(6)]
    topology = await stored_topology(store)
    assert topology.draining == (1, 2)
    assert {job.version for job in placed} == {1, 2, 3}

    worker = Worker(store)
    for at in topology.refs(2):
        claim = await worker.claim(at=at)
        await store.ack(at, settled(claim))
    with pytest.raises(NotDrained):
        await completed(1)
    assert set((await completed(2)).versions) == {1, 3}
    rest = await run_everything(store, await stored_topology(store))
    assert sorted(rest) == sorted(job.id for job in placed if job.version != 2)
    assert set((await completed(1)).versions) == {3}


@pytest.mark.parametrize("pause", sorted(set(COMPLETION)))
async def test_two_completions_at_once_remove_the_version_once(store: Store, pause: str) -> None:
    await created(store, 2)
    await promote(store, QUEUE, 2, 1)
    gate = Gate(store)
    async with standing_before(gate, pause, completing(1)) as slower:
        topology = await complete(store, QUEUE, 1, client_retry_ms=0)
    if pause.startswith("remove"):  # what it would write is stored: the end of both is one and the same
        assert await slower == topology
    else:
        with pytest.raises(UnknownVersion):
            await slower
    assert await store.read_topology(QUEUE) == topology
    assert await states(store, 1, 2) == ["tombstone", "tombstone"]


async def test_T9_a_promotion_during_a_completion_changes_neither(store: Store, completed: Complete) -> None:
    for number, pause in enumerate(dict.fromkeys(COMPLETION)):
        queue = f"queue-{number}"
        await promote(store, queue, 1, 2)
        await promote(store, queue, 2, 1)
        gate = Gate(store)
        async with standing_before(gate, pause, completing(1, queue)) as slower:
            await promote(store, queue, 3, 2)
        assert set((await slower).versions) == {2, 3}
        stored = await store.read_topology(queue)
        assert stored is not None
        assert (stored.active, stored.highest, stored.draining) == (3, 3, (2,))
        await finish_promote(store, stored)
        (gone,) = await store.counts([PartitionRef(queue, 1, 0)])
        assert gone.state == "tombstone"
