"""What producers send: few steps of bounded size, priorities, and an answer for every single job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.dead_letters import dead_jobs, retry_dead
from headrace.errors import HeadraceError, InvalidInput, PayloadTooLarge, QueueFull
from headrace.ids import partition_of
from headrace.job_fields import Priority
from headrace.lifecycle import configure, promote
from headrace.placement import ROUND_BYTES
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.stores.bounds import MAX_ENQUEUE, MAX_STEP_BYTES
from headrace.stores.redis import RedisStore
from tests.conformance.actors import Gate
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    QUEUE,
    Worker,
    created,
    failures,
    id_of,
    opened,
    ref,
    run_everything,
    settled,
    sizes,
    stored_topology,
)


class Weighing(Gate):
    """Notes of each enqueue step how many jobs and bytes it carries, and the bytes that are on their way at once."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.carried: list[tuple[int, int]] = []
        self.on_their_way = self.most_on_their_way = 0

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        call = super().__getattr__(method)

        async def step(*args: Any, **options: Any) -> Any:
            if method != "enqueue":
                return await call(*args, **options)
            size = sum(len(job.body) for job in args[3])
            self.carried.append((len(args[3]), size))
            self.on_their_way += size
            self.most_on_their_way = max(self.most_on_their_way, self.on_their_way)
            try:
                return await call(*args, **options)
            finally:
                self.on_their_way -= size

        return step


async def test_P4_M17_enqueueing_reads_the_topology_once(store: Store) -> None:
    """Afterwards a call is one step: the partition itself says whether it is still right."""
    await created(store, 4)
    gate = Gate(store)
    producer = Producer(gate.store)
    placed = [await producer.enqueue(QUEUE, "send") for _ in range(20)]
    assert gate.steps == ["read_topology", *(f"enqueue 1:{job.partition}" for job in placed)]
    assert len({job.id for job in placed}) == 20
    await promote(store, QUEUE, 2, 1)
    gate.steps.clear()
    for _ in range(20):
        await producer.enqueue(QUEUE, "send")
    assert gate.steps.count("enqueue 2:0") == 20
    assert len(gate.steps) <= 22  # one refusal more, and at most one look at the topology


async def test_P4_an_enqueue_sends_its_step_and_nothing_that_reads_the_topology(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted below the store, so that nothing it does by itself is missed. In a Cluster hints follow, see QC1."""
    if not isinstance(store, RedisStore):
        return  # nothing is sent
    await created(store, 4)
    producer = Producer(store)
    await producer.enqueue(QUEUE, "warm")
    sent, client = list[str](), store._client

    class Listening:
        def __getattr__(self, name: str) -> Any:
            call = getattr(client, name)

            def note(what: Any, *args: Any, **options: Any) -> Any:
                sent.append(getattr(what, "name", what))
                return call(what, *args, **options)

            return note if callable(call) else call

    monkeypatch.setattr(store, "_client", Listening())
    if store._hints is not None:
        monkeypatch.setattr(store._hints, "_client", Listening())
    for _ in range(20):
        await producer.enqueue(QUEUE, "send")
    assert sent.count("enqueue") == 20
    assert set(sent) <= {"enqueue", "hint", "wake"}
    assert store._hints is not None or set(sent) == {"enqueue"}


async def test_calls_of_one_moment_travel_together(store: Store) -> None:
    await created(store, 4)
    gate = Gate(store)
    producer = Producer(gate.store)
    await producer.enqueue(QUEUE, "warm")
    gate.steps.clear()
    placed = await asyncio.gather(*(producer.enqueue(QUEUE, "send", n) for n in range(200)))
    assert len({job.id for job in placed}) == 200
    assert sorted(gate.steps) == [f"enqueue 1:{partition}" for partition in range(4)]


@pytest.mark.parametrize("singly", [False, True])
async def test_QD6_large_payloads_are_sent_in_steps_of_bounded_size(store: Store, singly: bool) -> None:
    await created(store, 2)
    weighing = Weighing(store)
    producer = Producer(weighing.store)
    payload = b"x" * ((1 << 18) - 1000)
    if singly:
        placed = await asyncio.gather(*(producer.enqueue(QUEUE, "send", payload) for _ in range(96)))
    else:
        placed = await producer.enqueue_many(QUEUE, [JobSpec("send", payload)] * 96)
    assert sum(jobs for jobs, _ in weighing.carried) == 96
    assert max(size for _, size in weighing.carried) <= MAX_STEP_BYTES
    assert weighing.most_on_their_way <= ROUND_BYTES
    assert sorted(await run_everything(store, await stored_topology(store))) == sorted(job.id for job in placed)


async def test_a_payload_above_the_size_of_a_step_travels_alone(store: Store) -> None:
    await created(store)
    weighing = Weighing(store)
    producer = Producer(weighing.store, max_payload_bytes=4 << 20)
    large, small = JobSpec("send", b"x" * (3 << 20)), JobSpec("send", b"x")
    placed = await producer.enqueue_many(QUEUE, [small, large, small])
    assert [jobs for jobs, _ in weighing.carried] == [1, 1, 1]
    assert sorted(await run_everything(store, await stored_topology(store))) == sorted(job.id for job in placed)


async def test_many_small_jobs_are_few_steps(store: Store) -> None:
    await created(store, 2)
    weighing = Weighing(store)
    placed = await Producer(weighing.store).enqueue_many(QUEUE, [JobSpec("send", n) for n in range(1500)])
    assert len(placed) == 1500
    assert max(jobs for jobs, _ in weighing.carried) <= MAX_ENQUEUE
    assert len(weighing.carried) <= 5


async def test_QD6_QD5_each_job_of_a_bulk_gets_its_own_answer(store: Store) -> None:
    await created(store, 2)
    await configure(store, QUEUE, QueueSettings(max_length=2))
    await Producer(store).enqueue(QUEUE, "send", id=id_of(1, 2))
    other = next(name for n in range(100) if partition_of(name := f"other-{n}", 2) == 1)
    jobs = [
        JobSpec("send", id=id_of(0, 2)),
        JobSpec("send", delay=-1),
        JobSpec("send", id=other),
        JobSpec("send", b"x" * 200),
        JobSpec("send", id=id_of(1, 2)),
    ]
    answers = await Producer(store, max_payload_bytes=100).enqueue_each(QUEUE, jobs)
    placed, wrong, full, large, existing = answers
    assert isinstance(placed, Enqueued)
    assert (placed.id, placed.existing) == (id_of(0, 2), False)
    assert isinstance(wrong, InvalidInput)
    assert wrong.field == "jobs[1].delay"
    assert isinstance(full, QueueFull)
    assert isinstance(large, PayloadTooLarge)
    assert (large.field, large.limit) == ("jobs[3].payload", 100)
    # It travels with one that has no place any more: a step is applied whole or not at all.
    assert isinstance(existing, QueueFull)
    assert await sizes(store, ref(0)) == await sizes(store, ref(1)) == {"ready": 1}
    with pytest.raises(InvalidInput, match="jobs"):
        await Producer(store).enqueue_each(QUEUE, None)  # type: ignore[arg-type]
    with pytest.raises(HeadraceError, match="Nope"):
        await Producer(store).enqueue_each("Nope", [])


@pytest.mark.parametrize(
    ("given", "lane"), [("high", 0), ("default", 1), ("low", 2), (0, 0), (1, 1), (2, 2), (None, 1)]
)
async def test_a_priority_is_a_lane(store: Store, advance: Advance, given: Priority | None, lane: int) -> None:
    """Also after a delay, a failure, and as a dead letter that is put back."""
    await created(store)
    producer, worker = Producer(store), Worker(store)
    await producer.enqueue(QUEUE, "send", priority=given, delay=0.03)
    await advance(30)
    for delay_ms in (0, None):
        claim = await worker.claim()
        (job,) = claim.jobs
        assert (job.key[:1], opened(job).priority) == (b"%d" % lane, lane)
        assert await store.fail(ref(), failures(claim, delay_ms)) == []
        await advance(1)
    async for dead in dead_jobs(store, QUEUE):
        assert await retry_dead(producer, store, dead)
    (job,) = (await worker.claim()).jobs
    assert job.key[:1] == b"%d" % lane


async def test_of_ready_jobs_most_of_the_high_and_some_of_each_are_taken(store: Store) -> None:
    await created(store)
    producer, worker = Producer(store), Worker(store)
    kinds: tuple[Priority, ...] = ("low", "default", "high")
    await producer.enqueue_many(QUEUE, [JobSpec("send", priority=kind) for kind in kinds for _ in range(20)])
    for _ in range(2):
        claim = await worker.claim(10)
        lanes = [opened(job).priority for job in claim.jobs]
        assert [lanes.count(lane) for lane in range(3)] == [7, 2, 1]
        assert await store.ack(ref(), settled(claim)) == []
