"""Store.enqueue: what is inserted, what exists already, and who is refused."""

from __future__ import annotations

from uuid import uuid4

import pytest

from headrace.errors import InvalidInput
from headrace.ids import encode_id
from headrace.lifecycle import promote
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import MAX_ENQUEUE, Accepted, Failure, Moved, Release, Settled, Store, Success, Unknown
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    claim_when_due,
    counts,
    created,
    enqueue,
    failures,
    fresh_nonce,
    ids,
    key,
    new,
    opened,
    ref,
    settled,
    sizes,
)

NOTHING = Accepted(frozenset())


async def test_a_job_for_now_is_ready(store: Store) -> None:
    await created(store)
    before = (await counts(store)).now
    assert await enqueue(store, new("a", payload={"to": "x"})) == NOTHING
    assert await sizes(store) == {"ready": 1}
    job = opened((await Worker(store).claim()).jobs[0])
    assert (job.id, job.payload, job.type) == ("a", {"to": "x"}, "send")
    assert before <= job.created_at == job.run_at


async def test_a_job_for_a_past_time_is_ready_and_keeps_the_time(store: Store) -> None:
    await created(store)
    await enqueue(store, new("a", when=1_000))
    assert await sizes(store) == {"ready": 1}
    assert opened((await Worker(store).claim()).jobs[0]).run_at == 1_000


async def test_a_job_for_a_later_time_is_scheduled_for_it(store: Store) -> None:
    await created(store)
    at = (await counts(store)).now + LONG_MS
    await enqueue(store, new("a", when=at))
    found = await counts(store)
    assert found.nonempty() == {"scheduled": 1}
    assert found.next_due_at == at


async def test_a_delay_counts_from_the_servers_time(store: Store) -> None:
    await created(store)
    before = (await counts(store)).now
    await enqueue(store, new("a", when=-LONG_MS))
    found = await counts(store)
    assert found.nonempty() == {"scheduled": 1}
    assert found.next_due_at is not None
    assert before + LONG_MS <= found.next_due_at <= found.now + LONG_MS


async def test_M1_a_delayed_job_never_runs_before_its_time(store: Store, advance: Advance) -> None:
    await created(store)
    worker = Worker(store)
    before = (await counts(store)).now
    await enqueue(store, new("late", when=-150), new("later", when=-LONG_MS))
    claim = await claim_when_due(worker, advance, 150, not_before=before + 150)
    assert ids(claim) == ["late"]
    assert before + 150 <= opened(claim.jobs[0]).run_at <= claim.now
    assert await sizes(store) == {"leased": 1, "scheduled": 1}


async def test_J9_an_id_that_is_live_is_reported_and_left_alone(store: Store, advance: Advance) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "leased", "retried")
    claim = await worker.claim()
    await store.fail(ref(), [f for f in failures(claim, LONG_MS) if f.key == key("retried")])
    await enqueue(store, "ready", new("scheduled", when=-LONG_MS))
    expected = {"leased": 1, "retry": 1, "ready": 1, "scheduled": 1}
    assert await sizes(store) == expected

    states = ["leased", "retried", "ready", "scheduled", "other"]
    answer = await enqueue(store, *(new(state, payload="overwritten") for state in states))
    assert answer == Accepted(frozenset({0, 1, 2, 3}))
    assert await sizes(store) == {**expected, "ready": 2}
    again = await worker.claim()
    assert [opened(job).payload for job in again.jobs] == [None, "overwritten"]


async def test_J9_an_id_twice_in_one_call_is_inserted_once(store: Store) -> None:
    await created(store)
    answer = await enqueue(store, new("a", payload=1), new("b"), new("a", payload=2), new("a", when=-LONG_MS))
    assert answer == Accepted(frozenset({2, 3}))
    assert await sizes(store) == {"ready": 2}
    assert opened((await Worker(store).claim(1)).jobs[0]).payload == 1


async def test_J9_the_same_call_again_changes_nothing_even_if_the_job_ran(store: Store) -> None:
    await created(store)
    nonce = fresh_nonce()
    assert await enqueue(store, "a", "b", nonce=nonce) == NOTHING
    assert await enqueue(store, "a", "b", nonce=nonce) == NOTHING
    assert await sizes(store) == {"ready": 2}
    claim = await Worker(store).claim()
    await store.ack(ref(), settled(claim))
    assert await enqueue(store, "a", "b", nonce=nonce) == NOTHING
    assert await sizes(store) == {}


async def test_QI1_a_finished_or_dead_id_may_be_enqueued_again(store: Store) -> None:
    await created(store)
    worker = Worker(store)
    await enqueue(store, "done", "dead")
    claim = await worker.claim()
    await store.ack(ref(), settled(claim)[:1])
    await store.fail(ref(), failures(claim, None)[1:])
    assert await enqueue(store, "done", "dead") == NOTHING
    assert await sizes(store) == {"ready": 2, "dead": 1}
    assert all(not opened(job).history for job in (await worker.claim()).jobs)


async def test_QI1_an_id_is_taken_in_every_state_of_a_live_job_and_free_in_every_end(
    store: Store, advance: Advance
) -> None:
    """The scope of uniqueness is: while it lives, wherever; also where results of it are kept."""
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
    worker = Worker(store)
    await enqueue(store, "leased", "retried", "snoozed", "parked", "lost")
    claim = await worker.claim()
    leases = {opened(job).id: job.key for job in claim.jobs}

    def lease(name: str) -> tuple[bytes, bytes]:
        return leases[name], claim.token

    await store.fail(ref(), [Failure(*lease("retried"), LONG_MS, "boom")])
    await store.release(ref(), [Release(*lease("snoozed"), LONG_MS, "snoozed")])
    await store.park(ref(), [Unknown(*lease("parked"), "send")])
    await store.renew(ref(), [Settled(*lease("lost"))], 1)
    await advance(3)
    assert await store.recover(ref()) == 1  # a suspect now
    await enqueue(store, "ready", new("scheduled", when=-LONG_MS))
    live = ("leased", "retried", "snoozed", "parked", "lost", "ready", "scheduled")
    before = await sizes(store)
    for name in live:
        assert await enqueue(store, new(name, payload="another")) == Accepted(frozenset({0})), name
    assert await sizes(store) == before

    await store.ack(ref(), [Settled(*lease("leased"))], [Success("send", 0, b"\x00result")])
    await store.bury_parked(ref(), "send")
    await store.withdraw(ref(), [leases["retried"][1:]], running=True)
    for name in ("leased", "parked", "retried"):  # succeeded with its result kept, dead, cancelled
        assert await enqueue(store, new(name, payload="another")) == NOTHING, name
        assert await enqueue(store, name) == Accepted(frozenset({0})), name
    (kept,) = [job for batch in await store.finished(ref()) for job in batch.jobs]
    assert (kept.stored_id, kept.result) == (b"leased", b"\x00result")
    again = {opened(job).id: opened(job).payload for job in (await worker.claim()).jobs}
    assert again.items() >= dict.fromkeys(("leased", "parked", "retried"), "another").items()


async def test_an_absent_partition_refuses_and_knows_no_successor(store: Store) -> None:
    assert await enqueue(store, "a") == Moved("absent", None)
    assert (await counts(store)).state == "absent"


async def test_T3_P4_a_draining_closed_or_removed_partition_refuses(store: Store, advance: Advance) -> None:
    await created(store)
    await enqueue(store, "old")
    second = await promote(store, QUEUE, 2, 1)
    assert await enqueue(store, "a") == Moved("draining", second)
    claim = await Worker(store).claim()
    assert ids(claim) == ["old"]
    await store.ack(ref(), settled(claim))
    assert (await store.close_partition(ref())).state == "closed"
    assert await enqueue(store, "a") == Moved("closed", second)
    assert await store.remove(ref())
    assert await enqueue(store, "a") == Moved("tombstone", None)
    assert await sizes(store) == {}


async def test_a_caller_with_another_partition_count_is_refused(store: Store) -> None:
    await created(store, 2)
    assert await enqueue(store, "a", partitions=3) == Moved("resized", None)
    assert await sizes(store) == {}
    assert await enqueue(store, "a", partitions=2) == NOTHING


async def test_a_call_that_was_refused_may_be_made_again_under_its_nonce(store: Store) -> None:
    await created(store, 2)
    nonce = fresh_nonce()
    await enqueue(store, "a", partitions=3, nonce=nonce)
    assert await enqueue(store, "a", partitions=2, nonce=nonce) == NOTHING
    assert await sizes(store) == {"ready": 1}


async def test_a_nonce_belongs_to_one_partition(store: Store) -> None:
    await created(store, 2)
    nonce = fresh_nonce()
    await enqueue(store, "a", partitions=2, nonce=nonce)
    await enqueue(store, "b", at=ref(1), partitions=2, nonce=nonce)
    assert [await sizes(store, ref(p)) for p in (0, 1)] == [{"ready": 1}, {"ready": 1}]


@pytest.mark.parametrize(
    ("job_id", "stored_bytes"),
    [
        (str(uuid4()), 16),
        (str(uuid4()).upper(), 36),
        ("exactly-16-bytes", 17),
        ("ünïcödé ☃ 任务 🚀", None),
        ("ü" * 100, 200),
        ("x", 1),
        ("-1", 2),
        ("@", 1),
        ("a:b:c", 5),
    ],
)
async def test_every_kind_of_id_comes_back_as_it_was_given(store: Store, job_id: str, stored_bytes: int | None) -> None:
    assert stored_bytes is None or len(encode_id(job_id)) == stored_bytes
    await created(store)
    worker = Worker(store)
    assert await enqueue(store, job_id) == NOTHING
    assert await enqueue(store, job_id) == Accepted(frozenset({0}))
    claim = await worker.claim()
    assert ids(claim) == [job_id]
    assert await store.fail(ref(), failures(claim, 0)) == []
    again = await worker.claim()
    assert ids(again) == [job_id]
    assert await store.ack(ref(), settled(again)) == []
    assert await sizes(store) == {}


async def test_a_uuid_and_the_text_of_its_bytes_are_two_ids(store: Store) -> None:
    await created(store)
    text = "0123456789abcdef"
    uuid = "30313233-3435-3637-3839-616263646566"
    assert encode_id(uuid) == text.encode()
    assert await enqueue(store, text, uuid) == NOTHING
    assert ids(await Worker(store).claim()) == [text, uuid]


@pytest.mark.parametrize("payload", [bytes(range(256)), b"", b"\x00", {"ü": ["☃", 1.5, None, True]}, "", 0, None])
async def test_every_kind_of_payload_comes_back_as_it_was_given(store: Store, payload: object) -> None:
    await created(store)
    await enqueue(store, new("a", payload=payload))
    found = opened((await Worker(store).claim()).jobs[0]).payload
    assert found == payload
    assert type(found) is type(payload)


async def test_a_call_takes_up_to_the_batch_limit(store: Store) -> None:
    await created(store)
    assert await enqueue(store, *(f"job-{n}" for n in range(MAX_ENQUEUE))) == NOTHING
    assert await sizes(store) == {"ready": MAX_ENQUEUE}
    waiting = [new(f"late-{n}", when=-LONG_MS) for n in range(MAX_ENQUEUE)]
    assert await enqueue(store, *waiting) == NOTHING
    with pytest.raises(InvalidInput, match="at most 500"):
        await enqueue(store, *(f"more-{n}" for n in range(MAX_ENQUEUE + 1)))
    assert await sizes(store) == {"ready": MAX_ENQUEUE, "scheduled": MAX_ENQUEUE}


async def test_a_call_without_jobs_changes_nothing(store: Store) -> None:
    await created(store)
    assert await enqueue(store) == NOTHING
    assert await sizes(store) == {}
