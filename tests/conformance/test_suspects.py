"""Lost leases: who is suspected, who is charged, and who is not."""

from headrace.lifecycle import configure
from headrace.settings import QueueSettings
from headrace.stores.base import Claimed, Store
from headrace.stores.bounds import ROOM_MS
from headrace.stores.memory import MemoryStore
from headrace.stores.protocols.working import LEASE_LOST
from tests.conformance.conftest import Advance, ManualClock
from tests.conformance.steps import (
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    ids,
    key,
    opened,
    ref,
    releases,
    settled,
    sizes,
)

LEASE_MS = 20


async def lose(store: Store, advance: Advance, limit: int = 100, name: str = "doomed") -> list[str]:
    """A worker takes jobs and is never heard of again."""
    taken = ids(await Worker(store, f"{name}-{lose.calls}").claim(limit, LEASE_MS, suspects=limit))  # type: ignore[attr-defined]
    lose.calls += 1  # type: ignore[attr-defined]
    await advance(LEASE_MS)
    return taken


lose.calls = 0  # type: ignore[attr-defined]


async def lose_alone(store: Store, advance: Advance) -> list[str]:
    """A worker that runs nothing else takes what must run alone, and is never heard of again."""
    worker = Worker(store, f"doomed-{lose.calls}")  # type: ignore[attr-defined]
    lose.calls += 1  # type: ignore[attr-defined]
    taken = ids(await worker.claim(lease_ms=LEASE_MS, alone=True))
    await advance(LEASE_MS)
    return taken


async def test_V15_suspects_are_taken_a_few_at_a_time(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c", "d")
    assert await lose(store, advance) == ["a", "b", "c", "d"]
    await enqueue(store, "fresh")
    worker = Worker(store, "alive")
    first = await worker.claim(suspects=2)
    assert ids(first) == ["fresh", "a", "b"]
    assert [opened(job).suspect for job in first.jobs] == [False, True, True]
    assert not any(opened(job).alone for job in first.jobs)
    assert ids(await worker.claim(suspects=0)) == []
    assert ids(await worker.claim(suspects=1)) == ["c"]
    assert ids(await worker.claim(limit=1, suspects=9)) == ["d"]
    assert await sizes(store) == {"leased": 5}


async def test_V15_a_suspect_that_is_lost_again_runs_alone(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    for _ in range(2):
        assert await lose(store, advance) == ["a", "b"]
    await enqueue(store, "fresh")
    assert await store.recover(ref()) == 2
    assert await sizes(store) == {"ready": 3}
    idle = Worker(store, "idle")
    first = await idle.claim(alone=True)
    assert ids(first) == ["a"]
    job = opened(first.jobs[0])
    assert (job.suspect, job.alone, job.crashes, job.expiries, job.attempt) == (True, True, 0, 2, 0)
    assert not first.make_room
    assert ids(await Worker(store, "second").claim(alone=True)) == ["b"]
    assert ids(await Worker(store, "third").claim(alone=True)) == ["fresh"]


async def test_V15_one_worker_at_a_time_is_asked_to_make_room(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    for _ in range(2):
        await lose(store, advance)
    await enqueue(store, "x", "y")
    asked, other = Worker(store, "asked"), Worker(store, "other")
    answer = await asked.claim(limit=1)
    assert (answer.make_room, ids(answer)) == (True, [])
    answer = await other.claim(limit=1)
    assert (answer.make_room, ids(answer)) == (False, ["x"])
    # It says that it still does; one that wants nothing is not asked.
    assert (await asked.claim(limit=0)).make_room
    assert not (await other.claim(limit=0)).make_room
    # When it has taken one, another one is asked for the next.
    answer = await asked.claim(alone=True)
    assert (answer.make_room, ids(answer)) == (False, ["a"])
    answer = await other.claim(limit=1)
    assert (answer.make_room, ids(answer)) == (True, [])
    assert ids(await Worker(store, "idle").claim(alone=True)) == ["b"]
    assert not (await other.claim(limit=0)).make_room
    assert ids(await other.claim(limit=1)) == ["y"]


async def test_V15_a_worker_that_no_longer_makes_room_is_replaced(store: Store, clock: ManualClock) -> None:
    if not isinstance(store, MemoryStore):
        return  # ten seconds of a server's time; the same rule is compared in twins/

    async def turn(ms: int) -> None:
        clock.now += ms

    await created(store)
    await enqueue(store, "a")
    for _ in range(2):
        await lose(store, turn)
    await enqueue(store, "x", "y")
    assert (await Worker(store, "gone").claim(limit=1)).make_room
    other = Worker(store, "other")
    assert ids(await other.claim(limit=1)) == ["x"]
    await turn(ROOM_MS)
    assert (await other.claim(limit=1)).make_room


async def test_J7_QH1_a_job_that_always_takes_its_worker_down_is_dead_at_the_limit(
    store: Store, advance: Advance
) -> None:
    await created(store)
    await enqueue(store, "poison")
    for _ in range(2):
        assert await lose(store, advance) == ["poison"]
    for _ in range(2):
        assert await lose_alone(store, advance) == ["poison"]
    last = Worker(store, "last")
    job = opened((await last.claim(lease_ms=LEASE_MS, alone=True)).jobs[0])
    assert (job.attempt, job.expiries, job.crashes) == (0, 4, 2)
    await advance(LEASE_MS)
    assert ids(await last.claim()) == []
    assert await sizes(store) == {"dead": 1}
    (letter,) = await store.dead_letters(ref())
    dead = opened(Claimed(b"1" + letter.stored_id, letter.record, letter.changes))
    assert dead.last_error == "worker lost: its process ended or froze 3 times while it ran only this job"
    assert [entry.status for entry in dead.history] == ["lease expired"] * 5 + ["worker lost"]


async def test_QH2_crashes_are_counted_by_job_whatever_it_goes_through(store: Store, advance: Advance) -> None:
    """Handed back, and delivered under other tokens and to other workers, it keeps its count."""
    await created(store)
    await enqueue(store, "poison")
    for _ in range(2):
        await lose(store, advance)
    for crashes in range(2):
        worker = Worker(store, f"polite-{crashes}")
        claim = await worker.claim(alone=True)
        assert opened(claim.jobs[0]).crashes == crashes
        await store.release(ref(), releases(claim, note="interrupted"))
        assert await lose_alone(store, advance) == ["poison"]
    claim = await Worker(store, "last").claim(alone=True)
    assert (ids(claim), opened(claim.jobs[0]).crashes) == (["poison"], 2)


async def test_V15_neighbours_of_a_poison_job_are_not_charged(store: Store, advance: Advance) -> None:
    await created(store)
    innocent = [f"job-{n}" for n in range(9)]
    await enqueue(store, *innocent[:4], "poison", *innocent[4:])
    done: list[str] = []
    for turn in range(40):
        if await sizes(store) == {"dead": 1}:
            break
        worker = Worker(store, f"w-{turn}")
        claim = await worker.claim(lease_ms=LEASE_MS, suspects=3, alone=True)
        if "poison" in ids(claim):  # the worker dies, and whatever it holds with it
            await advance(LEASE_MS)
            continue
        for claimed in claim.jobs:
            assert opened(claimed).crashes == 0
        done += ids(claim)
        await worker.claim(0, acks=settled(claim))
    assert await sizes(store) == {"dead": 1}
    assert sorted(done) == innocent


async def test_QH1_the_crash_limit_is_a_setting_of_the_queue(store: Store, advance: Advance) -> None:
    await created(store)
    await configure(store, QUEUE, QueueSettings(crash_limit=1))
    await enqueue(store, "poison")
    for _ in range(2):
        assert await lose(store, advance) == ["poison"]
    assert await lose_alone(store, advance) == ["poison"]
    assert ids(await Worker(store).claim()) == []
    assert await sizes(store) == {"dead": 1}


async def test_QH3_a_suspect_that_fails_by_itself_is_suspected_no_longer(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    await lose(store, advance)
    worker = Worker(store)
    claim = await worker.claim()
    await store.fail(ref(), failures(claim, 0))
    job = opened((await worker.claim(suspects=0)).jobs[0])
    assert (job.attempt, job.expiries, job.crashes, job.suspect) == (1, 1, 0, False)


async def test_QH3_a_suspect_handed_back_stays_one_and_costs_nothing(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await lose(store, advance)
    worker = Worker(store)
    claim = await worker.claim()
    assert ids(claim) == ["a"]
    await store.release(ref(), releases(claim, note="interrupted"))
    assert ids(await worker.claim(suspects=0)) == []
    again = await worker.claim()
    assert ids(again) == ["a"]
    job = opened(again.jobs[0])
    assert (job.suspect, job.crashes, job.attempt) == (True, 0, 0)


async def test_V11_suspects_are_hinted_to_other_workers(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await lose(store, advance)
    claim = await Worker(store, "one").claim()
    assert ids(claim) == ["a"]
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert ids(await Worker(store, "two").claim()) == ["b"]


async def test_QH3_a_suspect_that_puts_itself_off_is_suspected_no_longer(store: Store, advance: Advance) -> None:
    """A poller whose every run is fine must not be charged for the workers that it happens to be on."""
    await created(store)
    await enqueue(store, "poller")
    for _ in range(5):
        assert await lose(store, advance) == ["poller"]
        worker = Worker(store, f"alive-{lose.calls}")  # type: ignore[attr-defined]
        claim = await worker.claim()
        await store.release(ref(), releases(claim, delay_ms=1, note="snoozed"))
        await advance(1)
    job = opened((await Worker(store, "last").claim()).jobs[0])
    assert (job.id, job.suspect, job.crashes, job.expiries) == ("poller", False, 0, 5)


async def test_QH3_a_job_that_runs_alone_and_is_handed_back_or_fails(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    for _ in range(2):
        await lose(store, advance)
    worker = Worker(store, "alive")
    claim = await worker.claim(alone=True)
    await store.release(ref(), releases(claim))
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert ids(await worker.claim(suspects=9)) == []
    claim = await worker.claim(alone=True)
    assert (ids(claim), opened(claim.jobs[0]).alone) == (["a"], True)
    await store.fail(ref(), failures(claim, 0))
    job = opened((await worker.claim(suspects=0)).jobs[0])
    assert (job.suspect, job.alone, job.attempt) == (False, False, 1)


async def test_V12_a_held_queue_asks_nobody_to_make_room(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    for _ in range(2):
        await lose(store, advance)
    await configure(store, QUEUE, QueueSettings(stop="hold"))
    worker = Worker(store, "alive")
    assert not (await worker.claim()).make_room
    assert ids(await worker.claim(alone=True)) == []
    await configure(store, QUEUE, QueueSettings())
    assert await store.wait_hint([QUEUE], 5) == ref()
    assert ids(await worker.claim(alone=True)) == ["a"]


async def test_QK6_QB9_a_claim_tells_what_it_took_back_and_whose_it_was(store: Store, advance: Advance) -> None:
    await created(store)
    await configure(store, QUEUE, QueueSettings(crash_limit=1))
    await enqueue(store, "poison")
    for _ in range(2):
        await lose(store, advance)
    lasting = 500  # neither ends before the other begins, however slow the machine
    doomed = Worker(store, "doomed-at-last")
    claim = await doomed.claim(lease_ms=lasting, alone=True)
    assert [(each.dead, each.worker.partition("-")[0]) for each in claim.lost] == [(False, "doomed")]
    await enqueue(store, "innocent")
    await Worker(store, "other").claim(lease_ms=lasting, suspects=0)
    await advance(lasting)
    claim = await Worker(store, "finder").claim(0)
    found = {each.worker: each for each in claim.lost}
    assert found.keys() == {"doomed-at-last", "other"}
    assert all(each.ended_at <= claim.now for each in claim.lost)
    assert not found["other"].dead
    assert (found["doomed-at-last"].dead, found["doomed-at-last"].key) == (True, key("poison"))
    (letter,) = await store.dead_letters(ref())
    history = opened(Claimed(b"1" + letter.stored_id, letter.record, letter.changes)).history
    assert [(entry.status, entry.error) for entry in history[:-1]] == [("lease expired", LEASE_LOST)] * 3
    assert (await Worker(store, "later").claim(0)).lost == []
