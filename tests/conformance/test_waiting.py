"""Where a job is, what became of it, and waiting for it: over all versions, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from headrace.envelope import encode_result, no_result
from headrace.errors import (
    HeadraceError,
    InvalidInput,
    JobFailed,
    ResultNotKept,
    RetentionOff,
    StoreUnavailable,
    UnknownQueue,
    WaitTimeout,
)
from headrace.ids import partition_of
from headrace.inquiry import Inquiry
from headrace.job_status import JobStatus
from headrace.lifecycle import configure, promote
from headrace.migration import move_jobs
from headrace.producer import JobSpec, Producer
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import Failure, Fence, Settled, Store, Success, Unknown
from headrace.topology import PartitionRef
from tests.conformance.actors import Gate
from tests.conformance.conftest import Advance
from tests.conformance.steps import LONG_MS, QUEUE, Worker, ref, releases

LIMIT = 60.0
KEEPING = QueueSettings(retention=Retention())


async def keeping(store: Store, partitions: int = 1, version: int = 1) -> Producer:
    await promote(store, QUEUE, version, partitions, settings=KEEPING)
    return Producer(store)


class Runner:
    """Takes jobs by id, one at a time, wherever they are ready, and ends them as told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.worker = Worker(store, "host-1")

    async def lease(self, id: str) -> tuple[PartitionRef, Settled]:
        topology = await self.store.read_topology(QUEUE)
        assert topology is not None
        for version in topology.versions:
            at = PartitionRef(QUEUE, version, partition_of(id, topology.versions[version].partitions))
            claim = await self.worker.claim(256, at=at)
            mine = [job for job in claim.jobs if job.key[1:].decode() == id]
            others = [each for each in releases(claim) if each.key[1:].decode() != id]
            assert await self.store.release(at, others) == []
            if mine:
                return at, Settled(mine[0].key, claim.token)
        raise AssertionError(f"{id} is not ready")

    async def succeed(self, *ids: str, result: bytes = b"") -> None:
        for id in ids:
            at, lease = await self.lease(id)
            assert await self.store.ack(at, [lease], [Success("send", 0, result)]) == []

    async def fail(self, id: str, delay_ms: int | None, error: str = "boom") -> None:
        at, lease = await self.lease(id)
        assert await self.store.fail(at, [Failure(*lease, delay_ms, error)]) == []


async def put(producer: Producer, *ids: str, **given: Any) -> None:
    await producer.enqueue_many(QUEUE, [JobSpec("send", id, id, **given) for id in ids])


async def state(producer: Producer, id: str) -> str:
    return (await producer.status(QUEUE, id)).state


@asynccontextmanager
async def waiting(producer: Producer, ids: Sequence[str], **given: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """Wait for jobs beside the block; then its end."""
    task = asyncio.create_task(producer.wait(QUEUE, ids, timeout=LIMIT, **given))
    try:
        yield task
        async with asyncio.timeout(LIMIT):
            await asyncio.wait([task])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_M15_each_status_is_told(store: Store, advance: Advance) -> None:
    producer, runner = await keeping(store, 3), Runner(store)
    await put(producer, "ready", "leased", "retried", "parked", "dead", "succeeded")
    await put(producer, "later", delay=3600)
    at, _ = await runner.lease("leased")
    await runner.fail("retried", LONG_MS)
    await runner.fail("dead", None, "no such address")
    await runner.succeed("succeeded", result=encode_result({"sent": 3}))
    home, lease = await runner.lease("parked")
    await store.park(home, [Unknown(*lease, "send")])
    found = await producer.statuses(QUEUE, ["ready", "leased", "retried", "parked", "dead", "succeeded", "later", "no"])
    assert {id: status.state for id, status in found.items()} == {
        "ready": "ready", "leased": "leased", "retried": "retry_wait", "parked": "parked", "dead": "dead",
        "succeeded": "succeeded", "later": "scheduled", "no": "unknown",
    }  # fmt: skip
    assert {id for id, status in found.items() if status.ended} == {"dead", "succeeded", "no"}
    assert (found["leased"].worker, found["leased"].partition) == ("host-1", at.partition)
    dead, succeeded = found["dead"], found["succeeded"]
    assert (dead.type, dead.attempt, dead.error, dead.worker) == ("send", 1, "no such address", "host-1")
    assert (succeeded.type, succeeded.attempt, succeeded.worker, succeeded.version) == ("send", 0, "host-1", 1)
    assert succeeded.result == {"sent": 3}
    assert succeeded.at is not None


async def test_M13_a_job_is_described_with_payload_and_history(store: Store) -> None:
    producer, runner = await keeping(store, 2), Runner(store)
    await put(producer, "live", "dead", "gone")
    await runner.fail("live", LONG_MS, "first")
    await runner.fail("dead", None, "last")
    await runner.succeed("gone")
    inquiry = Inquiry(store, QUEUE)
    live, dead, gone, unknown = [await inquiry.describe(id) for id in ("live", "dead", "gone", "never")]
    assert live.job is not None
    assert (live.status.state, live.job.payload, live.job.attempt) == ("retry_wait", "live", 1)
    assert [entry.error for entry in live.job.history] == ["first"]
    assert dead.job is not None
    assert (dead.status.state, dead.job.payload, dead.job.last_error) == ("dead", "dead", "last")
    assert [(entry.status, entry.worker) for entry in dead.job.history] == [("failed", "host-1")]
    assert (gone.status.state, gone.job) == ("succeeded", None)
    assert (unknown.status.state, unknown.job) == ("unknown", None)


async def test_QI1_an_id_that_is_used_again_is_told_by_its_last_use(store: Store, advance: Advance) -> None:
    producer, runner = await keeping(store), Runner(store)
    for number in range(2):
        await put(producer, "again")
        assert await state(producer, "again") == "ready"
        await runner.succeed("again", result=encode_result(number))
        await advance(2)
    assert (await producer.status(QUEUE, "again")).result == 1
    await put(producer, "again")
    await runner.fail("again", None)
    await advance(2)
    assert await state(producer, "again") == "dead"
    await put(producer, "again")
    await runner.succeed("again")
    assert await state(producer, "again") == "succeeded"


async def test_M15_waiting_ends_when_every_job_has(store: Store) -> None:
    producer, runner = await keeping(store, 4), Runner(store)
    ids = [f"job-{number}" for number in range(8)]
    await put(producer, *ids)
    async with waiting(producer, ids) as wait:
        await runner.succeed(*ids[:6])
        await runner.fail(ids[6], 0)  # it runs again
        await runner.fail(ids[6], None)
        assert not wait.done()
        await runner.succeed(ids[7])
    states = {id: status.state for id, status in wait.result().items()}
    assert states == dict.fromkeys(ids, "succeeded") | {ids[6]: "dead"}
    assert list(states) == ids


async def test_M15_waiting_for_what_has_ended_or_never_was_ends_at_once(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "a")
    await runner.succeed("a")
    found = await producer.wait(QUEUE, ["never", "a", "a"], timeout=0)
    assert {id: status.state for id, status in found.items()} == {"never": "unknown", "a": "succeeded"}
    assert await producer.wait(QUEUE, [], timeout=0) == {}


async def test_M15_the_end_of_the_time_is_an_error_of_its_own_that_tells_what_was_seen(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "a", "b")
    await runner.succeed("a")
    with pytest.raises(WaitTimeout, match="1 succeeded, 1 ready") as over:
        await producer.wait(QUEUE, ["a", "b"], timeout=0.05)
    assert isinstance(over.value, TimeoutError)
    assert {id: status.state for id, status in over.value.statuses.items()} == {"a": "succeeded", "b": "ready"}


async def test_M15_waiting_for_a_state_ends_when_it_was_seen_or_cannot_come(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "a", "b")
    async with waiting(producer, ["a", "b"], status="retry_wait") as wait:
        await runner.fail("a", LONG_MS)
        await runner.succeed("b")
    assert {id: status.state for id, status in wait.result().items()} == {"a": "retry_wait", "b": "succeeded"}
    with pytest.raises(InvalidInput, match="status: is 'done'"):
        await producer.wait(QUEUE, ["a"], status="done")  # type: ignore[arg-type]


async def test_M15_observers_see_the_changes_of_a_job(store: Store, advance: Advance) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "a", delay=timedelta(milliseconds=5))
    seen: list[str] = []
    async with asyncio.timeout(LIMIT):
        async for change in producer.watch(QUEUE, ["a"]):
            seen.append(change.state)
            if change.state == "scheduled":
                await advance(6)
                await store.promote_due(ref())
            elif change.state == "ready":
                at, lease = await runner.lease("a")
            elif change.state == "leased":
                await store.fail(at, [Failure(*lease, LONG_MS, "boom")])
            elif change.state == "retry_wait":
                await put(producer, "a")  # it lives, so nothing changes
                await configure(store, QUEUE, KEEPING)
                break
    assert seen == ["scheduled", "ready", "leased", "retry_wait"]


async def test_a_result_is_what_the_handler_returned(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "value", "bytes", "none", "lost", "dead")
    await runner.succeed("value", result=encode_result([1, {"a": None}]))
    await runner.succeed("bytes", result=encode_result(b"\x00\xff"))
    await runner.succeed("none")
    await runner.succeed("lost", result=no_result("has 99 bytes, the limit is 9"))
    await runner.fail("dead", None, "no such address")
    assert await producer.result(QUEUE, "value") == [1, {"a": None}]
    assert await producer.result(QUEUE, "bytes") == b"\x00\xff"
    assert await producer.result(QUEUE, "none") is None
    with pytest.raises(ResultNotKept, match="has 99 bytes"):
        await producer.result(QUEUE, "lost")
    with pytest.raises(JobFailed, match=r"job dead is dead after 1 failed run\(s\): no such address") as failed:
        await producer.result(QUEUE, "dead")
    assert failed.value.status.error == "no such address"
    with pytest.raises(JobFailed, match="job never is unknown"):
        await producer.result(QUEUE, "never")


async def test_without_retention_waiting_is_refused_and_a_status_is_told_as_far_as_it_is_known(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    producer, runner = Producer(store), Runner(store)
    await put(producer, "a", "b")
    await runner.succeed("a")
    for call in (producer.wait(QUEUE, ["a"]), producer.result(QUEUE, "a")):
        with pytest.raises(RetentionOff, match=r"set spec\.retention"):
            await call
    assert await state(producer, "a") == "unknown"
    assert await state(producer, "b") == "ready"


async def test_wrong_names_are_refused(store: Store) -> None:
    producer = Producer(store)
    with pytest.raises(UnknownQueue):
        await producer.status(QUEUE, "a")
    with pytest.raises(UnknownQueue):
        await producer.wait(QUEUE, ["a"])
    with pytest.raises(UnknownQueue):
        await producer.wait_until_empty(QUEUE)
    await keeping(store)
    with pytest.raises(InvalidInput, match="id: is not"):
        await producer.status(QUEUE, "")
    with pytest.raises(InvalidInput, match="queue"):
        await producer.wait("No Queue", ["a"])
    with pytest.raises(InvalidInput, match="timeout"):
        await producer.wait(QUEUE, ["a"], timeout=-1)


async def test_M15_jobs_of_older_versions_are_waited_for_too(store: Store) -> None:
    producer, runner = await keeping(store, 3), Runner(store)
    await put(producer, "old-1", "old-2")
    await promote(store, QUEUE, 2, 2)
    await put(producer, "new")
    async with waiting(producer, ["old-1", "old-2", "new"]) as wait:
        await runner.succeed("new", "old-1", "old-2")
    found: dict[str, JobStatus] = wait.result()
    assert {id: (status.state, status.version) for id, status in found.items()} == {
        "old-1": ("succeeded", 1), "old-2": ("succeeded", 1), "new": ("succeeded", 2),
    }  # fmt: skip


async def test_M15_a_job_that_moves_to_another_version_is_not_lost_sight_of(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "a")
    await put(producer, "later", delay=3600)
    fence = Fence(1, "leader")
    async with waiting(producer, ["a"]) as wait:
        newer = await promote(store, QUEUE, 2, 1)
        for at in (ref(0, 1), ref(0, 2)):
            await store.fence(at, fence)
        aside = await store.set_aside(ref(0, 1), fence, newer.active, 10)
        assert {job.stored_id for job in aside} == {b"a", b"later"}
        assert await state(producer, "a") == "ready"  # it waits as before
        assert await state(producer, "later") == "scheduled"
        assert (await producer.status(QUEUE, "later")).at == next(job.at for job in aside if job.place == "scheduled")
        assert await move_jobs(store, ref(0, 1), fence) == 2
        assert (await producer.status(QUEUE, "a")).version == 2
        await runner.succeed("a")
    assert wait.result()["a"].state == "succeeded"


async def test_M15_a_look_costs_a_step_per_partition_whatever_the_number_of_jobs(store: Store) -> None:
    producer = await keeping(store, 4)
    ids = [f"job-{number}" for number in range(400)]
    await put(producer, *ids)
    gate = Gate(store)
    found = await Inquiry(gate.store, QUEUE).look(ids)
    assert {status.state for status in found.values()} == {"ready"}
    assert sorted(step.partition(" ")[0] for step in gate.steps) == ["read_topology", *["statuses"] * 4]


async def test_M15_who_saw_a_job_live_looks_only_at_what_ended_since(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "old", "a")
    await runner.succeed("old")
    calls: list[tuple[str, Any]] = []

    class Watched(Gate):
        def __getattr__(self, method: str) -> Any:
            call = super().__getattr__(method)

            async def step(*args: Any, **options: Any) -> Any:
                calls.append((method, options.get("newer", options.get("since"))))
                return await call(*args, **options)

            return step

    inquiry = Inquiry(Watched(store).store, QUEUE)
    assert (await inquiry.look(["a"]))["a"].state == "ready"
    newest, now = (await store.statuses(ref(), []))[1::-1]
    await runner.succeed("a")
    calls.clear()
    assert (await inquiry.look(["a"]))["a"].state == "succeeded"
    bounds = dict(calls)
    assert bounds["find_finished"] == newest
    assert now - 60_000 < bounds["find_dead"] <= now


async def test_M15_an_outage_while_waiting_is_lived_through(store: Store) -> None:
    producer, runner = await keeping(store), Runner(store)
    await put(producer, "a")

    class Away(Gate):
        away = 3

        def __getattr__(self, method: str) -> Any:
            call = super().__getattr__(method)

            async def step(*args: Any, **options: Any) -> Any:
                if method == "statuses" and self.away:
                    self.away -= 1
                    raise StoreUnavailable("away")
                return await call(*args, **options)

            return step

    away = Away(store)
    async with waiting(Producer(away.store), ["a"]) as wait:
        while away.away:
            await asyncio.sleep(0.005)
        await runner.succeed("a")
    assert wait.result()["a"].state == "succeeded"


async def test_a_producer_that_is_closed_ends_its_waits(store: Store) -> None:
    producer = await keeping(store)
    await put(producer, "a")
    other = Producer(store)
    async with waiting(other, ["a"]) as wait:
        await asyncio.sleep(0)
        other._closed = True
    assert isinstance(wait.exception(), HeadraceError)


async def test_M15_waiting_for_a_queue_ends_when_nothing_of_it_is_live(store: Store) -> None:
    await promote(store, QUEUE, 1, 2)
    producer, runner = Producer(store), Runner(store)
    await producer.wait_until_empty(QUEUE, timeout=0)
    await put(producer, "a", "b")
    with pytest.raises(WaitTimeout, match=r"2 job\(s\) left") as over:
        await producer.wait_until_empty(QUEUE, timeout=0.03)
    assert over.value.live == 2
    wait = asyncio.create_task(producer.wait_until_empty(QUEUE, timeout=LIMIT))
    await runner.succeed("a")
    await runner.fail("b", 0)
    assert not wait.done()
    await runner.fail("b", None)  # a dead letter is not live
    await wait
