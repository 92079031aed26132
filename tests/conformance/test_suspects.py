"""Lost leases: who is suspected, who is charged, and who is not."""

from headrace.lifecycle import configure
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    ids,
    opened,
    ref,
    releases,
    settled,
    sizes,
)

LEASE_MS = 20


async def lose(store: Store, advance: Advance, limit: int = 100, name: str = "doomed") -> list[str]:
    """A worker takes jobs and is never heard of again."""
    taken = ids(await Worker(store, f"{name}-{lose.calls}").claim(limit, LEASE_MS))  # type: ignore[attr-defined]
    lose.calls += 1  # type: ignore[attr-defined]
    await advance(LEASE_MS)
    return taken


lose.calls = 0  # type: ignore[attr-defined]


async def test_V15_suspects_are_taken_one_at_a_time(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    assert await lose(store, advance) == ["a", "b", "c"]
    await enqueue(store, "fresh")
    worker = Worker(store, "alive")
    first = await worker.claim()
    assert ids(first) == ["fresh", "a"]
    assert [opened(job).suspect for job in first.jobs] == [False, True]
    assert ids(await worker.claim(suspect=False)) == []
    assert ids(await worker.claim()) == ["b"]
    assert await sizes(store) == {"ready": 1, "leased": 3}


async def test_J7_QH1_a_job_that_always_takes_its_worker_down_is_dead_at_the_limit(
    store: Store, advance: Advance
) -> None:
    await created(store)
    await enqueue(store, "poison")
    for _ in range(3):
        assert await lose(store, advance) == ["poison"]
    last = Worker(store, "last")
    job = opened((await last.claim(lease_ms=LEASE_MS)).jobs[0])
    assert (job.attempt, job.expiries, job.crashes) == (0, 3, 2)
    await advance(LEASE_MS)
    assert ids(await last.claim()) == []
    assert await sizes(store) == {"dead": 1}


async def test_V15_neighbours_of_a_poison_job_are_not_charged(store: Store, advance: Advance) -> None:
    await created(store)
    innocent = [f"job-{n}" for n in range(9)]
    await enqueue(store, *innocent[:4], "poison", *innocent[4:])
    done: list[str] = []
    for turn in range(40):
        if await sizes(store) == {"dead": 1}:
            break
        worker = Worker(store, f"w-{turn}")
        claim = await worker.claim(lease_ms=LEASE_MS)
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
    assert ids(await Worker(store).claim()) == []
    assert await sizes(store) == {"dead": 1}


async def test_QH3_a_suspect_that_fails_by_itself_is_suspected_no_longer(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a")
    await lose(store, advance)
    worker = Worker(store)
    claim = await worker.claim()
    await store.fail(ref(), failures(claim, 0))
    job = opened((await worker.claim(suspect=False)).jobs[0])
    assert (job.attempt, job.expiries, job.crashes, job.suspect) == (1, 1, 0, False)


async def test_QH3_a_suspect_handed_back_stays_one_and_costs_nothing(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await lose(store, advance)
    worker = Worker(store)
    claim = await worker.claim()
    assert ids(claim) == ["a"]
    await store.release(ref(), releases(claim, note="interrupted"))
    assert ids(await worker.claim(suspect=False)) == []
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
