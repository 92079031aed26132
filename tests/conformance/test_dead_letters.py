"""Dead letters: listed page by page, put back, deleted; none is lost and none blocks its id."""

from itertools import count

from headrace.dead_letters import dead_jobs, delete_dead, open_letter, retry_dead
from headrace.ids import encode_id
from headrace.known_queue import topology_of
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.stores.base import DeadLetter, Store
from headrace.topology import PartitionRef
from tests.conformance.actors import completing, killed_after
from tests.conformance.conftest import Complete
from tests.conformance.steps import (
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    ids,
    new,
    opened,
    ref,
    run_everything,
    settled,
)


async def kill(store: Store, *names: str, error: str = "boom") -> None:
    """Let jobs be enqueued, run once, and die."""
    await enqueue(store, *names)
    claim = await Worker(store, f"killer-{error}").claim()
    assert await store.fail(ref(), failures(claim, None, error)) == []


async def test_QD5_dead_letters_come_in_pages_oldest_first(store: Store) -> None:
    await created(store)
    for n in range(7):
        await kill(store, f"job-{n}", error=f"e{n}")
    first = await store.dead_letters(ref(), None, 3)
    second = await store.dead_letters(ref(), first[-1], 3)
    third = await store.dead_letters(ref(), second[-1], 3)
    letters = [*first, *second, *third]
    assert [letter.order for letter in letters] == sorted(letter.order for letter in letters)
    assert len(letters) == 7
    assert await store.dead_letters(ref(), third[-1], 3) == []


async def test_QD5_paging_goes_on_where_letters_were_removed(store: Store) -> None:
    await created(store)
    names = [f"job-{n}" for n in range(9)]
    await enqueue(store, *names)
    claim = await Worker(store).claim()
    await store.fail(ref(), failures(claim, None))  # all in one millisecond
    seen: list[bytes] = []
    after = None
    while page := await store.dead_letters(ref(), after, 2):
        after = page[-1]
        seen += [letter.stored_id for letter in page]
        assert await store.remove_dead(ref(), [letter.letter for letter in page]) == len(page)
    assert sorted(seen) == sorted(name.encode() for name in names)
    assert (await counts(store)).dead == 0


async def test_J19_a_dead_letter_is_put_back_with_all_its_runs(store: Store) -> None:
    await created(store)
    await kill(store, "a")
    (dead,) = [each async for each in dead_jobs(store, QUEUE)]
    assert (dead.id, dead.error, dead.job and dead.job.attempt) == ("a", "boom", 1)
    assert await retry_dead(Producer(store), store, dead) is True
    job = opened((await Worker(store).claim()).jobs[0])
    assert (job.id, job.type, job.attempt) == ("a", "send", 0)
    assert (await counts(store)).dead == 0


async def test_V10_a_dead_letter_goes_to_the_active_version_and_the_old_one_completes(
    store: Store, completed: Complete
) -> None:
    await created(store)
    await kill(store, "a")
    await promote(store, QUEUE, 2, 4)
    (dead,) = [each async for each in dead_jobs(store, QUEUE)]
    await retry_dead(Producer(store), store, dead)
    topology = await completed(1)
    assert await run_everything(store, topology) == ["a"]


async def test_V10_a_letter_and_a_new_job_of_its_id_outlive_the_version_wherever_its_completion_stops(
    store: Store, completed: Complete
) -> None:
    """Each kill is tried on a queue of its own: x is dead in v1, enqueued again in v2, and v1 is completed."""
    for steps in count():
        queue = f"queue-{steps}"
        old, home = PartitionRef(queue, 1, 0), PartitionRef(queue, 2, 0)
        await promote(store, queue, 1, 1)
        await enqueue(store, new("x", payload="dies"), at=old)
        worker = Worker(store)
        assert await store.fail(old, failures(await worker.claim(at=old), None)) == []
        await promote(store, queue, 2, 1)
        again = await Producer(store).enqueue(queue, "send", "lives", id="x")
        assert (again.version, again.existing) == (2, False)
        done = await killed_after(store, steps, completing(1, queue))
        if done is not None:
            (letter,) = {each.letter.letter: each async for each in dead_jobs(store, queue)}.values()
            assert (letter.id, letter.error) == ("x", "boom")
            await completed(1, queue=queue)
        assert set((await topology_of(store, queue)).versions) == {2}
        (dead,) = [each async for each in dead_jobs(store, queue)]
        assert (dead.ref, dead.id, dead.job and dead.job.payload) == (home, "x", "dies")
        claim = await worker.claim(at=home)
        assert [opened(job, home).payload for job in claim.jobs] == ["lives"]
        assert await store.ack(home, settled(claim)) == []
        assert await retry_dead(Producer(store), store, dead) is True
        assert [opened(job, home).payload for job in (await worker.claim(at=home)).jobs] == ["dies"]
        if done is None:
            break
    assert steps > 8


async def test_V10_letters_of_one_id_and_one_time_in_two_versions_stay_two(store: Store) -> None:
    """Clocks of two masters of a Cluster, or one millisecond, may give both the same name."""
    await created(store)
    await promote(store, QUEUE, 2, 1)
    first, second = (DeadLetter(b"x@1000", 1000, record, b"") for record in (b"of v1", b"of v2"))
    target = ref(0, 2)
    assert await store.adopt_dead(target, [second])
    for _ in range(2):  # the copy may be repeated
        assert await store.adopt_dead(target, [first])
    found = await store.dead_letters(target)
    assert [(letter.stored_id, letter.record) for letter in found] == [(b"x", b"of v2"), (b"x", b"of v1")]
    assert (await counts(store, target)).dead == 2


async def test_V10_two_letters_of_one_id_that_holds_zero_bytes_stay_two(store: Store) -> None:
    stored = encode_id("00000000-0000-4000-8000-000000000001")
    assert b"\x00" in stored
    await created(store)
    await promote(store, QUEUE, 2, 1)
    target = ref(0, 2)
    for record in (b"of v1", b"of v2", b"of v1", b"of v2"):  # the copy may be repeated
        assert await store.adopt_dead(target, [DeadLetter(stored + b"@1000", 1000, record, b"")])
    found = await store.dead_letters(target)
    assert [(each.letter, each.died_at, each.record) for each in found] == [
        (stored + b"@1000", 1000, b"of v1"),
        (stored + b"@1001", 1001, b"of v2"),
    ]


async def test_V10_QD5_a_live_job_of_the_same_id_is_not_disturbed_and_the_letter_stays(store: Store) -> None:
    await created(store)
    await kill(store, "a")
    await enqueue(store, new("a", payload="other work"))
    (dead,) = [each async for each in dead_jobs(store, QUEUE)]
    assert await retry_dead(Producer(store), store, dead) is False
    worker = Worker(store)
    live = await worker.claim()
    assert [opened(job).payload for job in live.jobs] == ["other work"]
    assert (await counts(store)).dead == 1
    assert await store.ack(ref(), settled(live)) == []
    assert await retry_dead(Producer(store), store, dead) is True
    assert ids(await worker.claim()) == ["a"]
    assert (await counts(store)).dead == 0


async def test_QI1_QD5_of_two_letters_of_one_id_one_comes_back_at_a_time(store: Store) -> None:
    await created(store)
    for _ in range(2):
        await kill(store, "a")
    letters = [each async for each in dead_jobs(store, QUEUE)]
    assert [await retry_dead(Producer(store), store, dead) for dead in letters] == [True, False]
    left = [each.letter.letter async for each in dead_jobs(store, QUEUE)]
    assert left == [letters[1].letter.letter]


async def test_QI1_two_deaths_of_one_id_are_two_letters(store: Store) -> None:
    await created(store)
    for _ in range(2):
        await kill(store, "a")
    assert (await counts(store)).dead == 2
    dead = [each async for each in dead_jobs(store, QUEUE)]
    assert await delete_dead(store, dead[:1]) == 1
    assert await delete_dead(store, dead) == 1
    assert await delete_dead(store, dead) == 0
    assert (await counts(store)).dead == 0


async def test_QD5_a_bulk_action_leaves_out_what_died_later(store: Store) -> None:
    await created(store)
    await kill(store, "a")
    (first,) = [each async for each in dead_jobs(store, QUEUE)]
    found = [each.id async for each in dead_jobs(store, QUEUE, died_before=first.letter.died_at)]
    assert found == []
    assert [each.id async for each in dead_jobs(store, QUEUE, died_before=first.letter.died_at + 1)] == ["a"]


async def test_QD5_a_letter_that_cannot_be_read_is_shown_and_stays(store: Store) -> None:
    await created(store)
    await enqueue(store, "a")
    claim = await Worker(store).claim()
    await store.fail(ref(), failures(claim, None))
    (letter,) = await store.dead_letters(ref())
    dead = open_letter(ref(), letter._replace(record=b"garbage"))
    assert dead.job is None
    assert "cannot be read" in dead.error
    assert await retry_dead(Producer(store), store, dead) is None
    assert (await counts(store)).dead == 1
