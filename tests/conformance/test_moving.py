"""Waiting jobs move from a draining version to the active one: each once, wherever the leader stops."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.dead_letters import dead_jobs
from headrace.errors import Fenced, InvalidInput, NotDrained
from headrace.lifecycle import configure, promote
from headrace.migration import bury_jobs, drain_action, move_jobs, tidy_arrivals
from headrace.producer import Producer
from headrace.settings import DrainSettings, QueueSettings
from headrace.stores.base import Aside, Counts, Failure, Fence, ParkedLimits, Store, Unknown
from headrace.stores.protocols.working import LEASE_LOST
from tests.conformance.actors import Gate, killed_after, standing_before
from tests.conformance.conftest import Advance, Complete
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
    key,
    new,
    opened,
    ref,
    run_everything,
    settled,
    sizes,
    stored_topology,
)

LEADER = Fence(1, "first")
MOVE = ["read_topology", "mark 1:0", "set_aside 1:0", "adopt 2:0", "let_go 1:0", "forget_arrived 2:0"]


async def drained_into(store: Store, partitions: int = 1) -> None:
    """Promote version 2 over version 1."""
    await promote(store, QUEUE, 2, partitions)


async def test_V8_jobs_of_every_kind_move_as_they_are(store: Store, completed: Complete) -> None:
    await created(store)
    await enqueue(store, "tried", "parked", "lost")
    worker = Worker(store)
    claim = await worker.claim()
    by_id = dict(zip(ids(claim), settled(claim), strict=True))
    assert await store.fail(ref(), [Failure(*by_id["tried"], LONG_MS, "boom")]) == []
    assert await store.park(ref(), [Unknown(*by_id["parked"], "rare")]) == []
    await enqueue(store, new("high", lane=b"0"), "plain", new("low", lane=b"2"), new("later", -LONG_MS))
    before = await sizes(store)
    assert before == {"ready": 3, "scheduled": 1, "retry": 1, "leased": 1, "parked": 1}
    due = (await counts(store)).next_due_at

    await drained_into(store)
    assert await move_jobs(store, ref(), LEADER) == 6
    assert await sizes(store) == {"leased": 1}
    target = ref(0, 2)
    assert await sizes(store, target) == {"ready": 3, "scheduled": 1, "retry": 1, "parked": 1}
    assert (await counts(store, target)).next_due_at == due
    assert await store.parked(target) == {"rare": 1}
    assert target in await store.parked_partitions(QUEUE)
    assert await store.ack(ref(), [by_id["lost"]]) == []

    assert await store.unpark(target, ["rare"]) == 1
    taken = await Worker(store, "other").claim(at=target)
    assert sorted(ids(taken)) == ["high", "low", "parked", "plain"]
    assert ids(taken)[0] == "high"
    assert await store.ack(target, settled(taken)) == []
    assert (await completed(1)).older == ()


async def test_V8_what_a_job_has_gone_through_goes_with_it(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    claim = await Worker(store).claim()
    await store.fail(ref(), [Failure(*settled(claim)[0], 0, "boom")])
    first = await Worker(store, "again").claim(lease_ms=1)
    assert ids(first) == ["a"]
    await advance(2)
    assert await store.recover(ref()) == 1  # a suspect from now on
    await drained_into(store)
    assert await move_jobs(store, ref(), LEADER) == 1
    target = ref(0, 2)
    assert (await Worker(store, "careful").claim(at=target, suspects=0)).jobs == []
    (claimed,) = (await Worker(store, "bold").claim(at=target)).jobs
    job = opened(claimed, target)
    assert (job.attempt, job.expiries, job.last_error) == (1, 1, LEASE_LOST)
    assert [entry.status for entry in job.history] == ["failed", "lease expired"]


async def test_V8_leased_jobs_stay_and_nothing_moves_into_a_version_that_drains(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    claim = await Worker(store).claim(1)
    await drained_into(store)
    assert await move_jobs(store, ref(), LEADER) == 1
    assert await sizes(store) == {"leased": 1}
    assert await move_jobs(store, ref(0, 2), LEADER) == 0  # the active version
    assert await move_jobs(store, ref(0, 9), LEADER) == 0  # unknown
    assert await sizes(store, ref(0, 2)) == {"ready": 1}
    assert await store.ack(ref(), settled(claim)) == []


@pytest.mark.parametrize("steps", range(1, len(MOVE)))
async def test_V6_V7_V8_a_leader_that_dies_between_two_steps_leaves_each_job_once(
    store: Store, completed: Complete, steps: int
) -> None:
    await created(store)
    await enqueue(store, "a")
    await drained_into(store)
    assert await killed_after(store, steps, lambda through: move_jobs(through, ref(), LEADER)) == MOVE[:steps]
    if steps > MOVE.index("set_aside 1:0") and "let_go 1:0" not in MOVE[:steps]:
        assert (await store.close_partition(ref())).state == "draining"
        with pytest.raises(NotDrained, match="1 moving"):
            await completed(1)
    # A worker runs it wherever it may be claimed, before anybody goes on.
    ran = await run_everything(store, await stored_topology(store))
    await move_jobs(store, ref(), LEADER)
    await tidy_arrivals(store, ref(0, 2), LEADER)
    ran += await run_everything(store, await stored_topology(store))
    assert ran == ["a"]
    assert (await completed(1)).older == ()
    assert await sizes(store, ref(0, 2)) == {}


async def test_V7_a_version_with_jobs_that_may_still_be_aside_elsewhere_is_not_completed(
    store: Store, completed: Complete
) -> None:
    """Else its successor would adopt anew what ran there before the source has let it go."""
    await created(store)
    await enqueue(store, "a")
    await drained_into(store)
    steps = MOVE.index("let_go 1:0")
    assert await killed_after(store, steps, lambda through: move_jobs(through, ref(), LEADER)) == MOVE[:steps]
    third = await promote(store, QUEUE, 3, 1)
    assert await run_everything(store, third) == ["a"]
    with pytest.raises(NotDrained, match="1 arrived"):
        await completed(2)
    assert (await store.close_partition(ref(0, 2))).state == "draining"
    for _ in range(2):
        await move_jobs(store, ref(), LEADER)
        await tidy_arrivals(store, ref(0, 2), LEADER)
        assert await run_everything(store, await stored_topology(store)) == []
    for version in (1, 2):
        await completed(version)
    assert set((await stored_topology(store)).versions) == {3}


@pytest.mark.parametrize("pause", ["set_aside 1:0", "adopt 2:0", "let_go 1:0", "forget_arrived 2:0"])
async def test_V8_the_target_is_superseded_and_the_job_lands_once_in_the_newest(
    store: Store, completed: Complete, pause: str
) -> None:
    await created(store)
    await enqueue(store, "a")
    await drained_into(store)
    async with standing_before_move(store, pause):
        await promote(store, QUEUE, 3, 2)
    for source in (ref(), ref(0, 2)):
        for _ in range(2):  # the first round may only find a newer target
            await move_jobs(store, source, LEADER)
            for number in (2, 3):
                await tidy_arrivals(store, ref(0, number), LEADER)
    home = ref((await Producer(store).enqueue(QUEUE, "send", id="a")).partition, 3)
    assert await sizes(store, home) == {"ready": 1}
    assert await sizes(store) == {}
    assert await sizes(store, ref(0, 2)) == {}
    assert (await completed(1)).older == (2,)
    assert (await completed(2)).older == ()
    assert await run_everything(store, await stored_topology(store)) == ["a"]


def standing_before_move(store: Store, pause: str) -> Any:
    return standing_before(Gate(store), pause, lambda through: move_jobs(through, ref(), LEADER))


@pytest.mark.parametrize("pause", ["set_aside 1:0", "let_go 1:0"])
async def test_V9_a_leader_of_the_past_is_refused(store: Store, pause: str) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await drained_into(store)
    async with standing_before_move(store, pause) as former:
        await store.fence(ref(), Fence(2, "second"))
    with pytest.raises(Fenced, match=r"partition 1:0 obeys the leader of epoch 2, not that of 1; stop leading"):
        former.result()
    await move_jobs(store, ref(), Fence(2, "second"))
    assert sorted(await run_everything(store, await stored_topology(store))) == ["a", "b"]


async def test_V9_L9_every_step_of_a_former_leader_is_refused_and_changes_nothing(store: Store) -> None:
    await created(store)
    await enqueue(store, "dies")
    await store.fail(ref(), failures(await Worker(store).claim(), None))
    (letter,) = await store.dead_letters(ref())
    await enqueue(store, "a", "b")
    await drained_into(store)
    await enqueue(store, "p", "q", at=ref(0, 2))
    await store.park(ref(0, 2), [Unknown(*each, "rare") for each in settled(await Worker(store).claim(at=ref(0, 2)))])
    now, few = Fence(7, "now"), ParkedLimits(jobs=1)
    (job,) = await store.set_aside(ref(), now, 2, 1)
    assert await store.adopt(ref(0, 2), 1, now, ref(), [job]) == [True]
    before = [await counts(store), await counts(store, ref(0, 2))]
    stored = [job.stored_id]
    for fence in (Fence(6, "then"), Fence(7, "minted twice")):
        for attempt in (
            store.fence(ref(), fence),
            store.set_aside(ref(), fence, 2, 1),
            store.adopt(ref(0, 2), 1, fence, ref(), [job]),
            store.retarget(ref(), fence, stored, 3),
            store.let_go(ref(), fence, stored),
            store.forget_arrived(ref(0, 2), fence, ref(), stored),
            store.bury_waiting(ref(), "drained too long", fence=fence),
            store.adopt_dead(ref(0, 2), [letter], fence=fence),
            store.trim(ref(0, 2), fence=fence),
            store.trim_parked(ref(0, 2), "rare", few, fence=fence),
        ):
            with pytest.raises(Fenced):
                await attempt
    after = [await counts(store), await counts(store, ref(0, 2))]
    assert [each._replace(now=0) for each in after] == [each._replace(now=0) for each in before]
    assert await store.set_aside(ref(), now, 9, 1) == [job]
    assert await store.bury_waiting(ref(), "drained too long", fence=now) == 1
    assert await store.adopt_dead(ref(0, 2), [letter], fence=now)
    assert await store.trim(ref(0, 2), fence=now) == (0, 0)
    assert (await store.trim_parked(ref(0, 2), "rare", few, fence=now)).dead == 1


async def test_V7_a_job_that_is_adopted_twice_runs_once(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await drained_into(store)
    aside = await store.set_aside(ref(), LEADER, 2, 100)
    target = ref(0, 2)
    assert await store.adopt(target, 1, LEADER, ref(), aside) == [True]
    claim = await Worker(store).claim(at=target)
    assert await store.ack(target, settled(claim)) == []
    assert await store.adopt(target, 1, LEADER, ref(), aside) == [True]
    assert (await Worker(store, "two").claim(at=target)).jobs == []


async def test_V8_a_job_is_adopted_by_an_active_partition_of_that_count_only(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await drained_into(store)
    aside = await store.set_aside(ref(), LEADER, 2, 100)
    for at, partitions in ((ref(), 1), (ref(0, 2), 2), (ref(0, 9), 1)):
        assert await store.adopt(at, partitions, LEADER, ref(), aside) == [False]
    assert await store.adopt(ref(0, 2), 1, LEADER, ref(), aside) == [True]


async def test_V4_an_id_on_its_way_is_live(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await drained_into(store, 2)
    await store.set_aside(ref(), LEADER, 2, 100)
    assert (await Producer(store).enqueue(QUEUE, "send", id="a")).existing


async def test_a_partition_holds_a_bounded_number_of_jobs_aside(store: Store) -> None:
    await created(store)
    await enqueue(store, *(f"job-{n}" for n in range(250)))
    await drained_into(store)
    assert len(await store.set_aside(ref(), LEADER, 2, 100)) == 100
    assert len(await store.set_aside(ref(), LEADER, 2, 100)) == 100
    assert await sizes(store) == {"ready": 150, "moving": 100}
    with pytest.raises(InvalidInput, match="move 0 to 100"):
        await store.set_aside(ref(), LEADER, 2, 101)
    rounds = [await move_jobs(store, ref(), LEADER) for _ in range(4)]
    assert rounds == [100, 100, 50, 0]


async def test_large_jobs_move_few_at_a_time(store: Store) -> None:
    await created(store)
    for n in range(5):
        await enqueue(store, new(f"large-{n}", payload="x" * (200 << 10)))
    await drained_into(store)
    aside = await store.set_aside(ref(), LEADER, 2, 100)
    assert len(aside) == 2  # about 256 KiB
    moved = 0
    while taken := await move_jobs(store, ref(), LEADER):
        moved += taken
    assert moved == 5


async def test_moved_jobs_are_hinted(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await Worker(store).claim(0)
    await drained_into(store)
    while await store.wait_hint([QUEUE], 0.01):
        pass
    assert await move_jobs(store, ref(), LEADER) == 1
    hints = {await store.wait_hint([QUEUE], 5) for _ in range(2)}
    assert ref(0, 2) in hints


async def test_marks_of_arrival_keep_a_version_until_they_are_tidied(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await drained_into(store)
    aside = await store.set_aside(ref(), LEADER, 2, 100)
    target = ref(0, 2)
    await store.adopt(target, 1, LEADER, ref(), aside)
    await store.let_go(ref(), LEADER, [key("a")[1:]])
    assert sorted(await store.arrivals(target)) == [(b"a", ref()), (b"b", ref())]
    assert await store.still_aside(ref(), [b"a", b"b"]) == [False, True]
    assert await tidy_arrivals(store, target, LEADER) == 1
    assert await store.arrivals(target) == [(b"b", ref())]
    await store.forget_arrived(target, LEADER, ref(3), [b"b"])  # from elsewhere: not this one
    assert await tidy_arrivals(store, target, LEADER) == 0


async def test_only_the_leader_claims_where_only_a_leader_may(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    (first,) = settled(await Worker(store, "before").claim(1))
    await configure(store, QUEUE, QueueSettings(mode="leader_only"))
    worker = Worker(store)
    refused = await worker.claim()
    assert (refused.jobs, refused.fenced) == ([], True)
    await store.fence(ref(), Fence(2, "two"))
    zombie = await worker.claim(fence=Fence(1, "one"))
    assert (zombie.jobs, zombie.fenced) == ([], True)
    led = await worker.claim(1, fence=Fence(2, "two"))
    assert (ids(led), led.fenced) == (["b"], False)
    later = await worker.claim(1, fence=Fence(3, "three"))
    assert ids(later) == ["c"]
    # What the others hold already is theirs to finish.
    assert (await worker.claim(0, acks=[first], fence=Fence(2, "two"))).refused == []
    await configure(store, QUEUE, QueueSettings())
    await enqueue(store, "d")
    assert ids(await worker.claim()) == ["d"]


async def test_a_fenced_claim_gives_the_hint_back(store: Store, advance: Advance) -> None:
    await created(store)
    await configure(store, QUEUE, QueueSettings(mode="leader_only"))
    await enqueue(store, "a")
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert (await Worker(store, "standby").claim()).fenced
    await advance(1_000)
    await store.tick(QUEUE, "standby")
    assert ref() in {await store.wait_hint([QUEUE], 5) for _ in range(2)}


async def test_a_new_leader_hints_at_what_is_ready(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    while await store.wait_hint([QUEUE], 0.01):
        pass
    await store.fence(ref(), LEADER)
    assert ref() in {await store.wait_hint([QUEUE], 5) for _ in range(2)}
    await store.fence(ref(4), LEADER)  # absent: nothing to guard


async def test_an_aside_job_names_itself() -> None:
    assert Aside(b"1a", 2, "ready", 0, "", b"", b"").stored_id == b"a"


async def test_a_drain_that_has_timed_out_makes_dead_letters_of_what_waits(store: Store, completed: Complete) -> None:
    await created(store)
    await enqueue(store, "parked", "leased")
    worker = Worker(store)
    parked, leased = settled(await worker.claim())
    await store.park(ref(), [Unknown(*parked, "rare")])
    await enqueue(store, "ready", new("later", -LONG_MS))
    drain = DrainSettings(timeout_ms=60_000, on_timeout="dead_letter")
    assert await bury_jobs(store, ref(), drain) == 0  # it does not drain
    await drained_into(store)
    assert await bury_jobs(store, ref(), drain, limit=2) == 2
    assert await bury_jobs(store, ref(), drain) == 1
    assert await sizes(store) == {"leased": 1, "dead": 3}
    assert await store.parked_partitions(QUEUE) == {}
    assert await store.ack(ref(), [leased]) == []
    await completed(1)
    dead = [letter.job async for letter in dead_jobs(store, QUEUE) if letter.job]
    assert {job.id for job in dead} == {"parked", "ready", "later"}
    assert {job.last_error for job in dead} == {"drain timed out: version 1 drains for 60 s"}
    assert {job.attempt for job in dead} == {0}


@pytest.mark.parametrize(
    ("drain", "age", "action"),
    [
        (DrainSettings(), 10**9, "wait"),
        (DrainSettings(policy="migrate"), 0, "migrate"),
        (DrainSettings(timeout_ms=5_000, on_timeout="migrate"), 4_999, "wait"),
        (DrainSettings(timeout_ms=5_000, on_timeout="migrate"), 5_000, "migrate"),
        (DrainSettings(timeout_ms=5_000, on_timeout="dead_letter"), 5_000, "dead_letter"),
        (DrainSettings(timeout_ms=5_000), 5_000, "wait"),
        (DrainSettings(timeout_ms=5_000, on_timeout="dead_letter"), None, "wait"),
    ],
)
def test_what_becomes_of_waiting_jobs_follows_from_the_settings(
    drain: DrainSettings, age: int | None, action: str
) -> None:
    marked = None if age is None else 1_000_000 - age
    held = Counts("draining", 1, 0, 0, 0, 0, 0, 0, 0, None, None, marked, 1_000_000)
    assert drain_action(drain, held) == action


async def test_jobs_find_their_partition_in_the_new_version(store: Store) -> None:
    await created(store)
    names = [id_of(partition, 4) for partition in range(4)]
    await enqueue(store, *names)
    await drained_into(store, 4)
    assert await move_jobs(store, ref(), LEADER) == 4
    for partition, name in enumerate(names):
        claim = await Worker(store, f"w{partition}").claim(at=ref(partition, 2))
        assert ids(claim) == [name]


async def test_V7_a_mark_of_arrival_is_forgotten_for_the_source_that_it_names_only(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await drained_into(store)
    aside = await store.set_aside(ref(), LEADER, 2, 10)
    target = ref(0, 2)
    assert await store.adopt(target, 1, LEADER, ref(), aside) == [True]
    await store.forget_arrived(target, LEADER, ref(1), [b"a"])
    assert await store.arrivals(target) == [(b"a", ref())]
    await store.let_go(ref(), LEADER, [b"a"])
    await store.forget_arrived(target, LEADER, ref(), [b"a"])
    assert await store.arrivals(target) == []
