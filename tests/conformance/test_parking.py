"""Jobs of a type that nobody here knows wait for a worker that does."""

import pytest

from headrace.dead_letters import dead_jobs, retry_dead
from headrace.envelope import encode_body
from headrace.errors import InvalidInput
from headrace.producer import Producer
from headrace.stores.base import MAX_CLAIM, MAX_ENQUEUE, Claim, ParkedLimits, Store, Unknown
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef
from headrace.worker.parking import Unparker
from tests.conformance.conftest import Advance
from tests.conformance.steps import Worker, created, enqueue, ids, new, opened, ref, settled, sizes

QUEUE = "emails"


def unknown(claim: Claim, kind: str = "send") -> list[Unknown]:
    return [Unknown(job.key, claim.token, kind) for job in claim.jobs]


async def test_J15_QK1_a_parked_job_waits_and_costs_no_attempt(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    worker = Worker(store)
    assert await store.park(ref(), unknown(await worker.claim())) == []
    assert await sizes(store) == {"parked": 1}
    assert await store.parked(ref()) == {"send": 1}
    assert ids(await worker.claim()) == []
    assert await store.unpark(ref(), ["send"]) == 1
    claim = await worker.claim()
    job = opened(claim.jobs[0])
    assert (job.id, job.attempt, job.expiries) == ("a", 0, 0)


async def test_J15_only_the_types_asked_for_are_taken_out(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    for job, kind in (("a", "x"), ("b", "x"), ("c", "xy"), ("d", "y")):
        await enqueue(store, job)
        await store.park(ref(), unknown(await worker.claim(), kind))
    assert await store.parked(ref()) == {"x": 2, "xy": 1, "y": 1}
    assert await store.unpark(ref(), ["x", "nobody"]) == 2
    assert sorted(ids(await worker.claim())) == ["a", "b"]
    assert await store.parked(ref()) == {"xy": 1, "y": 1}


async def test_J15_unparking_gives_a_hint(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    assert await store.wait_hint([QUEUE], 5) == ref()
    await store.park(ref(), unknown(await Worker(store).claim()))
    await store.unpark(ref(), ["send"])
    assert await store.wait_hint([QUEUE], 5) == ref()


async def test_J2_a_job_that_is_not_ours_is_not_parked(store: Store) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    worker = Worker(store)
    claim = await worker.claim(1)
    wrong = [Unknown(claim.jobs[0].key, b"other:1", "send"), Unknown(b"1zzz", claim.token, "send")]
    assert await store.park(ref(), wrong) == [0, 1]
    assert await sizes(store) == {"ready": 1, "leased": 1}


async def test_J15_QD5_parked_jobs_of_a_type_become_dead_letters_and_nothing_is_lost(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    for job, kind in (("a", "x"), ("b", "x"), ("c", "xy"), ("d", "x")):
        await enqueue(store, new(job, payload=job))
        await store.park(ref(), unknown(await worker.claim(), kind))
    assert await store.bury_parked(ref(), "x", 2) == 2
    assert await sizes(store) == {"parked": 2, "dead": 2}
    assert ref() in await store.parked_partitions(QUEUE)
    assert await store.bury_parked(ref(), "x", 2) == 1
    assert await store.bury_parked(ref(), "x", 2) == 0
    assert await store.bury_parked(ref(), "nobody") == 0
    assert await store.parked(ref()) == {"xy": 1}
    letters = [each async for each in dead_jobs(store, QUEUE)]
    assert sorted(each.id for each in letters) == ["a", "b", "d"]
    first = letters[0].job
    assert first is not None
    assert (first.payload, first.attempt, first.last_error) == (first.id, 0, "no worker knows type x")
    assert [entry.status for entry in first.history] == ["unknown type"]
    assert await store.bury_parked(ref(), "xy") == 1
    assert await store.parked_partitions(QUEUE) == {}
    assert await sizes(store) == {"dead": 4}
    await enqueue(store, "a")  # the id is free
    assert ids(await worker.claim()) == ["a"]


async def test_QD5_a_parked_job_that_became_a_dead_letter_can_be_put_back(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    await store.park(ref(), unknown(await Worker(store).claim()))
    await store.bury_parked(ref(), "send")
    (letter,) = [each async for each in dead_jobs(store, QUEUE)]
    assert await retry_dead(Producer(store), store, letter) is True
    assert await sizes(store) == {"ready": 1}


async def parked(store: Store, *jobs: str, kind: str = "send") -> None:
    await enqueue(store, *jobs)
    await store.park(ref(), unknown(await Worker(store).claim(), kind))


async def test_J15_of_too_many_parked_jobs_of_a_type_the_first_ids_become_dead_letters(store: Store) -> None:
    await created(store)
    await parked(store, "d", "b", "a", "c", "e")
    await parked(store, "x", "y", "z", kind="other")
    limits = ParkedLimits(jobs=2)
    first = await store.trim_parked(ref(), "send", limits, limit=2)
    assert (first.dead, first.after) == (2, b"1b")
    second = await store.trim_parked(ref(), "send", limits, first.after, 2)
    assert (second.dead, second.after) == (1, b"1d")
    assert await store.trim_parked(ref(), "send", limits, second.after, 2) == (0, b"")
    assert await store.parked(ref()) == {"other": 3, "send": 2}
    letters = {each.id: each.job async for each in dead_jobs(store, QUEUE)}
    assert sorted(letters) == ["a", "b", "c"]
    job = letters["a"]
    assert job is not None
    assert job.attempt == 0
    assert job.last_error == "no worker knows type send, and more than 2 jobs of it waited in the partition"
    assert [entry.status for entry in job.history] == ["unknown type"]


async def test_J15_parked_jobs_become_dead_letters_by_their_age_since_they_were_due(
    store: Store, advance: Advance
) -> None:
    await created(store)
    await parked(store, "old")
    assert await store.trim_parked(ref(), "send", ParkedLimits(jobs=1, age_ms=600_000)) == (0, b"")
    await advance(60)
    assert await store.trim_parked(ref(), "send", ParkedLimits(age_ms=50)) == (1, b"")
    assert await store.parked_partitions(QUEUE) == {}
    await parked(store, "young")
    assert await store.trim_parked(ref(), "send", ParkedLimits(age_ms=600_000)) == (0, b"")
    assert await sizes(store) == {"parked": 1, "dead": 1}
    (letter,) = [each async for each in dead_jobs(store, QUEUE)]
    assert letter.id == "old"
    assert letter.job is not None
    assert letter.job.last_error == "no worker knows type send, and the job waited for longer than 0.05 s"


@pytest.mark.parametrize("limits", [ParkedLimits(jobs=0), ParkedLimits(age_ms=0)])
async def test_a_step_on_parked_jobs_looks_at_256_KiB_or_at_one_larger_job(
    store: Store, advance: Advance, limits: ParkedLimits
) -> None:
    await created(store)
    for name, kib in (("a", 100), ("b", 100), ("c", 100), ("d", 700), ("e", 1)):
        await enqueue(store, new(name, payload="x" * (kib << 10)))
        await store.park(ref(), unknown(await Worker(store).claim(), "send"))
    await advance(1)
    after, died = b"", list[int]()
    while trimmed := await store.trim_parked(ref(), "send", limits, after):
        died.append(trimmed.dead)
        if not (after := trimmed.after):
            break
    assert died == [2, 1, 1, 1]
    assert await sizes(store) == {"dead": 5}


async def test_J15_without_a_limit_parked_jobs_wait_for_ever(store: Store, advance: Advance) -> None:
    await created(store)
    await parked(store, "a", "b")
    await advance(50)
    assert await store.trim_parked(ref(), "send", ParkedLimits()) == (0, b"")
    assert await store.trim_parked(ref(), "nobody", ParkedLimits(jobs=1)) == (0, b"")
    assert await store.trim_parked(ref(5), "send", ParkedLimits(jobs=1)) == (0, b"")
    assert await sizes(store) == {"parked": 2}


async def test_nothing_is_parked_where_there_is_no_partition(store: Store) -> None:
    assert await store.bury_parked(ref(5), "send") == 0


async def test_V21_ten_thousand_unknown_jobs_do_not_hold_others_back(store: Store) -> None:
    await created(store)
    for start in range(0, 10_000, MAX_ENQUEUE):
        await enqueue(store, *(new(f"unknown-{start + n}") for n in range(MAX_ENQUEUE)))
    await enqueue(store, "known")
    worker = Worker(store)
    calls = 0
    while True:
        calls += 1
        claim = await worker.claim(MAX_CLAIM)
        if "known" in (found := ids(claim)):
            break
        await store.park(ref(), unknown(claim))
    assert calls <= 10_000 // MAX_CLAIM + 1
    await store.park(ref(), [job for job, name in zip(unknown(claim), found, strict=True) if name != "known"])
    assert (
        await store.ack(ref(), [each for each, name in zip(settled(claim), found, strict=True) if name == "known"])
        == []
    )
    assert await sizes(store) == {"parked": 10_000}
    freed = 0
    while part := await store.unpark(ref(), ["send"]):
        assert part <= 1000
        freed += part
    assert freed == 10_000


@pytest.mark.parametrize("name", ["late\0x", "a\nb", "\x7f"])
def test_J15_types_with_control_characters_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="type: contains control characters"):
        encode_body(name, None)


async def test_QH3_a_parked_suspect_comes_back_as_any_other_job(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "a", "b")
    await Worker(store, "doomed").claim(lease_ms=20)
    await advance(20)
    worker = Worker(store)
    for _ in range(2):
        await store.park(ref(), unknown(await worker.claim()))
    await store.unpark(ref(), ["send"])
    claim = await worker.claim()
    assert sorted(ids(claim)) == ["a", "b"]
    assert not any(opened(job).suspect for job in claim.jobs)


async def test_parked_jobs_of_which_no_hint_tells_are_found_by_a_worker_that_starts_in_a_cluster(
    store: Store, backend: str
) -> None:
    """There the hint is lost with a worker that dies right after it has parked a job."""
    await created(store)
    await enqueue(store, "a")
    await store.park(ref(), unknown(await Worker(store).claim(1)))
    if isinstance(store, RedisStore):
        await store._client.command("DEL", store._keys.queue(QUEUE, "parked"))
    freed: list[PartitionRef] = []
    looked = Unparker(QUEUE, store, ["send"], freed.append)
    if backend in ("cluster", "memory"):
        assert await looked.look() == 1
        assert freed == [ref()]
    else:  # one script parks the job and gives the hint: only a foreign hand takes it away
        assert await looked.look() == 0
        await store.hint_parked(ref(), 1)
        assert await looked.look() == 1
    assert await store.parked_partitions(QUEUE) == {}
    assert await sizes(store) == {"ready": 1}


@pytest.mark.parametrize("step", ["unpark", "bury_parked", "trim_parked"])
async def test_a_hint_of_parked_jobs_that_was_given_too_late_goes_with_the_next_look(store: Store, step: str) -> None:
    """An audit gives it that saw the jobs before they were taken; it must not lead workers there for ever."""
    await created(store)
    await store.hint_parked(ref(), 1)
    if step == "trim_parked":
        await store.trim_parked(ref(), "send", ParkedLimits(0))
    elif step == "bury_parked":
        await store.bury_parked(ref(), "send")
    else:
        await store.unpark(ref(), ["send"])
    assert await store.parked_partitions(QUEUE) == {}
