"""Batch handlers: how many jobs they are given and when, an outcome for each job, one time-out for all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import App, BatchContext, CallNext, Context, Dead, InvalidInput, Retry, RetryPolicy, Snooze, Store
from headrace.dead_letters import dead_jobs
from headrace.stores.base import Failure
from headrace.testing import TestQueue
from headrace.topology import PartitionRef
from headrace.worker.batches import item_results
from tests.integration.worker.support import QUEUE, empty, eventually, put, queue, sizes, sizes_are, working

ONCE = RetryPolicy(max_retries=0)
LONG = 3600.0


class Row(BaseModel):
    n: int


async def test_jobs_are_gathered_to_the_size_and_what_is_left_after_the_wait(store: Store) -> None:
    app, seen = App(), []

    @app.batch_handler("index", max_size=4, max_wait=0.2)
    async def index(ctx: BatchContext, payloads: list[Row]) -> None:
        assert [job.payload["n"] for job in ctx.jobs] == [row.n for row in payloads]
        assert [run.job for run in ctx.runs] == ctx.jobs
        assert (ctx.job, ctx.attempt, ctx.lost) == (ctx.jobs[0], 0, False)
        assert 0 < ctx.remaining() <= 30
        seen.append([row.n for row in payloads])

    producer = await queue(store)
    await put(producer, "index", [Row(n=n) for n in range(10)])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"succeeded": 10})
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert await empty(store)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_worker_of_batch_handlers_alone_claims_whole_batches_for_one_slot(
    store: Store, concurrency: int
) -> None:
    app, seen, may_end = App(), [], asyncio.Event()

    @app.batch_handler("index", max_size=50, max_wait=LONG)
    async def index(ctx: BatchContext, payloads: list[int]) -> None:
        seen.append(len(payloads))
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "index", range(50 * concurrency + 20))
    async with working(app, store, concurrency=concurrency) as running:
        await eventually(lambda: seen == [50] * concurrency)
        # No slot is free: nothing more is taken away from other workers.
        assert await sizes(store) == {"leased": 50 * concurrency, "ready": 20}
        may_end.set()
        await eventually(lambda: running.told.outcomes["succeeded"] == 50 * concurrency)
        await eventually(lambda: sizes_are(store, {"leased": 20}))
        await running.stop()
    assert seen == [50] * concurrency
    assert await sizes(store) == {"ready": 20}


async def test_beside_other_handlers_a_batch_is_filled_from_slots_and_buffer(store: Store) -> None:
    app, seen, ran = App(), [], []

    @app.batch_handler("index", max_size=6, max_wait=LONG)
    def index(ctx: BatchContext, payloads: list[int]) -> None:
        seen.append(payloads)

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    await put(producer, "index", range(5))
    await put(producer, "send", ["a", "b"])
    async with working(app, store, concurrency=2) as running:
        # Gathered jobs hold no slot: the others are not held up by a batch that is not full.
        await eventually(lambda: running.told.outcomes == {"succeeded": 2})
        assert sorted(ran) == ["a", "b"]
        await put(producer, "index", [5])
        await eventually(lambda: running.told.outcomes == {"succeeded": 8})
    assert seen == [[0, 1, 2, 3, 4, 5]]


async def test_each_job_has_an_outcome_of_its_own(store: Store) -> None:
    app, calls = App(), []

    @app.batch_handler("index", max_size=6, max_wait=LONG)
    async def index(ctx: BatchContext, payloads: Any) -> list[Any]:
        calls.append(list(payloads))
        outcomes = {
            "retry": Retry(after=3600),
            "dead": Dead("no such row"),
            "snooze": Snooze(_an_hour()),
            "fail": ValueError("no luck"),
        }
        return [outcomes.get(payload, "a result") for payload in payloads]

    producer = await queue(store)
    await put(producer, "index", ["well", "retry", "dead", "snooze", "fail", "well"])
    async with working(app, store) as running:
        await eventually(
            lambda: running.told.outcomes == {"succeeded": 2, "retried": 2, "dead": 1, "snoozed": 1},
        )
    assert len(calls) == 1
    (dead,) = [each.job async for each in dead_jobs(store, QUEUE) if each.job]
    assert (dead.payload, dead.last_error) == ("dead", "no such row")


def _an_hour() -> Any:
    from datetime import timedelta

    return timedelta(hours=1)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("raises", "ValueError: the database is away"),
        ([None], "TypeError: the batch handler returned a list of 1; return None, or a list with a result for each of"),
        ({"a": 1}, "TypeError: the batch handler returned a dict; return None, or a list with a result for each of"),
    ],
)
async def test_what_is_raised_is_raised_for_all(store: Store, returned: Any, told: str) -> None:
    app = App()

    @app.batch_handler("index", max_size=3, max_wait=LONG, retry=ONCE)
    def index(ctx: BatchContext, payloads: list[int]) -> Any:
        if returned == "raises":
            raise ValueError("the database is away")
        return returned

    producer = await queue(store)
    await put(producer, "index", range(3))
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 3})
    errors = [each.job.last_error async for each in dead_jobs(store, QUEUE) if each.job]
    assert all(error.startswith(told) for error in errors)


async def test_a_payload_that_does_not_fit_is_dead_and_the_others_run(store: Store) -> None:
    app, seen = App(), []

    @app.batch_handler("index", max_size=4, max_wait=LONG)
    async def index(ctx: BatchContext, payloads: list[Row]) -> list[Any]:
        seen.append((payloads, [job.payload for job in ctx.jobs]))
        return [Retry(after=3600) if row.n == 2 else None for row in payloads]

    @app.batch_handler("hopeless", max_size=1)
    def hopeless(ctx: BatchContext, payloads: list[Row]) -> None:
        raise AssertionError("called with nothing")

    producer = await queue(store)
    await put(producer, "index", [{"n": 1}, {"n": "x"}, {"n": 2}, {}])
    await put(producer, "hopeless", [{}])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"succeeded": 1, "retried": 1, "dead": 3})
    assert seen == [([Row(n=1), Row(n=2)], [{"n": 1}, {"n": 2}])]


async def test_a_batch_times_out_as_one_by_the_shortest_timeout(store: Store) -> None:
    app, cancelled = App(), []

    @app.batch_handler("index", max_size=3, max_wait=LONG, retry=ONCE)
    async def index(ctx: BatchContext, payloads: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append((ctx.cancelled, [run.cancelled for run in ctx.runs]))
            raise

    producer = await queue(store)
    await put(producer, "index", [1], timeout=0.2)
    await put(producer, "index", [2, 3], timeout=LONG)
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 3})
        await eventually(lambda: not running.worker._executor.running)
    assert cancelled == [(True, [True] * 3)]
    errors = {each.job.last_error async for each in dead_jobs(store, QUEUE) if each.job}
    assert errors == {"timed out after 200 ms"}


async def test_J16_a_batch_in_a_thread_is_told_of_its_timeout_and_keeps_its_slot(store: Store) -> None:
    app, may_end, order = App(), threading.Event(), []

    @app.batch_handler("index", max_size=2, max_wait=LONG, retry=ONCE)
    def index(ctx: BatchContext, payloads: Any) -> None:
        while not ctx.runs[1].cancelled:
            time.sleep(0.005)
        order.append("told")
        may_end.wait(60)

    @app.handler("next")
    async def following(ctx: Context, payload: Any) -> None:
        order.append("next")

    producer = await queue(store)
    await put(producer, "index", [1, 2], timeout=0.1)
    async with working(app, store, concurrency=1) as running:
        await eventually(lambda: running.told.outcomes == {"dead": 2})
        await put(producer, "next", [None])
        await eventually(lambda: order == ["told"])
        assert await sizes(store) == {"dead": 2, "ready": 1}
        may_end.set()
        await eventually(lambda: running.told.outcomes == {"dead": 2, "succeeded": 1})
    assert order == ["told", "next"]


async def test_leases_of_gathered_and_running_jobs_are_renewed(store: Store) -> None:
    app, running_now, may_end, ran = App(), asyncio.Event(), asyncio.Event(), []

    @app.batch_handler("index", max_size=2, max_wait=1.5)
    async def index(ctx: BatchContext, payloads: Any) -> None:
        running_now.set()
        ran.append(len(payloads))
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "index", [1])
    async with working(app, store, lease_ms=500) as running:
        await running_now.wait()  # it has been gathered for three leases
        began = time.monotonic()
        await eventually(lambda: time.monotonic() - began > 1.5)
        assert await store.recover(next(iter(running.worker._executor.running)).members[0].batch.ref) == 0
        may_end.set()
        await eventually(lambda: running.told.outcomes == {"succeeded": 1})
    assert (ran, running.told.lost) == ([1], 0)


async def test_J4_a_job_whose_lease_is_lost_leaves_the_others_alone(store: Store) -> None:
    app, began, may_end, seen = App(), asyncio.Event(), asyncio.Event(), []

    @app.batch_handler("index", max_size=2, max_wait=LONG)
    async def index(ctx: BatchContext, payloads: Any) -> None:
        began.set()
        await may_end.wait()
        seen.append((ctx.lost, [run.lost for run in ctx.runs]))

    @app.batch_handler("alone", max_size=1, max_wait=LONG)
    async def alone(ctx: BatchContext, payloads: Any) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            seen.append((ctx.lost, [run.lost for run in ctx.runs]))

    producer = await queue(store)
    await put(producer, "index", [1, 2])
    async with working(app, store, lease_ms=500) as running:
        await began.wait()
        (group,) = running.worker._executor.running
        await taken_away(store, group.members[0])
        await eventually(lambda: running.told.lost == 1)
        may_end.set()
        await eventually(lambda: running.told.outcomes == {"succeeded": 1})
        assert seen == [(False, [True, False])]
        began.clear()
        await put(producer, "alone", [3])
        await began.wait()
        (group,) = running.worker._executor.running
        await taken_away(store, group.members[0])
        await eventually(lambda: not running.worker._executor.running)
    assert seen[1:] == [(True, [True])]


async def taken_away(store: Store, execution: Any) -> None:
    key, token = execution.settled
    assert await store.fail(execution.batch.ref, [Failure(key, token, None, "as if it had been taken away")]) == []


async def test_a_job_whose_lease_was_lost_is_a_batch_of_its_own(store: Store) -> None:
    app, seen = App(), []

    @app.batch_handler("index", max_size=10, max_wait=0.3)
    async def index(ctx: BatchContext, payloads: list[int]) -> None:
        seen.append(payloads)

    producer = await queue(store)
    await put(producer, "index", [1])
    ref = PartitionRef(QUEUE, 1, 0)
    await store.claim(ref, "gone", 1, 1, 1)
    await eventually(lambda: store.recover(ref))
    await put(producer, "index", [2, 3])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"succeeded": 3})
    assert sorted(seen) == [[1], [2, 3]]


async def test_J17_QG1_a_stop_hands_back_what_is_gathered_and_gives_what_runs_the_grace_time(store: Store) -> None:
    app, began, may_end = App(), asyncio.Event(), asyncio.Event()

    @app.batch_handler("index", max_size=2, max_wait=LONG)
    async def index(ctx: BatchContext, payloads: Any) -> None:
        began.set()
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "index", [1, 2, 3])
    async with working(app, store, concurrency=2) as running:
        await began.wait()
        await eventually(lambda: sizes_are(store, {"leased": 3}))
        stopping = asyncio.create_task(running.stop())
        await eventually(lambda: sizes_are(store, {"leased": 2, "ready": 1}))
        may_end.set()
        assert (await stopping).clean
        assert running.told.outcomes == {"handed_back": 1, "succeeded": 2}
    assert await sizes(store) == {"ready": 1}


@pytest.mark.parametrize("stubborn", [False, True])
async def test_QG2_a_batch_that_outlives_the_grace_time_is_handed_back_at_no_cost(store: Store, stubborn: bool) -> None:
    app, began = App(), asyncio.Event()

    @app.batch_handler("index", max_size=2, max_wait=LONG)
    async def index(ctx: BatchContext, payloads: Any) -> list[Any]:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if not stubborn:
                raise
        return [ValueError("half done")] * 2

    producer = await queue(store)
    await put(producer, "index", [1, 2])
    async with working(app, store, grace_seconds=0) as running:
        await began.wait()
        assert (await running.stop()).clean
        assert running.told.outcomes == {"interrupted": 2}
    assert await sizes(store) == {"ready": 2}


async def test_middleware_is_around_the_whole_batch(store: Store) -> None:
    app, seen = App(), []

    @app.middleware
    async def around(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        assert isinstance(ctx, BatchContext)
        seen.append((payload, len(ctx.runs)))
        results = await call_next(ctx, [each | {"n": each["n"] + 1} for each in payload] if seen[1:] else payload[:1])
        seen.append((results, len(ctx.runs)))
        return results

    @app.batch_handler("index", max_size=2, max_wait=LONG, retry=ONCE)
    def index(ctx: BatchContext, payloads: list[Row]) -> list[int]:
        return [row.n for row in payloads]

    producer = await queue(store)
    async with working(app, store) as running:
        await put(producer, "index", [{"n": 1}, {"n": 2}])
        await eventually(lambda: running.told.outcomes == {"dead": 2})  # one payload is missing
        await put(producer, "index", [{"n": 1}, {"n": 2}])
        await eventually(lambda: running.told.outcomes == {"dead": 2, "succeeded": 2})
    assert seen == [([{"n": 1}, {"n": 2}], 2)] * 2 + [([2, 3], 2)]
    errors = {each.job.last_error.partition("\n")[0] async for each in dead_jobs(store, QUEUE) if each.job}
    assert errors == {"ValueError: 1 payloads were passed on for 2 jobs; pass on one for each"}


async def test_queues_and_types_are_not_mixed(store: Store) -> None:
    app, seen = App(), []

    @app.batch_handler("a", max_size=2, max_wait=LONG)
    async def a(ctx: BatchContext, payloads: Any) -> None:
        seen.append((ctx.job.queue, sorted(payloads)))

    @app.batch_handler("b", max_size=2, max_wait=LONG)
    async def b(ctx: BatchContext, payloads: Any) -> None:
        seen.append((ctx.job.queue, sorted(payloads)))

    producer = await queue(store)
    await queue(store, name="reports")
    for name in (QUEUE, "reports"):
        for type in ("a", "b"):
            await producer.enqueue(name, type, f"{name} {type} 1")
    async with working(app, store, queues=(QUEUE, "reports")) as running:
        await eventually(lambda: sizes_are(store, {"leased": 2}))
        for name in (QUEUE, "reports"):
            for type in ("a", "b"):
                await producer.enqueue(name, type, f"{name} {type} 2")
        await eventually(lambda: running.told.outcomes == {"succeeded": 8})
    assert sorted(seen) == sorted(
        (name, [f"{name} {type} 1", f"{name} {type} 2"]) for name in (QUEUE, "reports") for type in ("a", "b")
    )


async def test_the_testing_kit_runs_batches_with_dependencies() -> None:
    app, seen = App(), list[int]()

    @app.dependency
    def rows() -> list[int]:
        return seen

    @app.batch_handler("index", max_size=100, max_wait=0.05)
    async def index(ctx: BatchContext, payloads: list[Row], rows: list[int]) -> None:
        rows += [row.n for row in payloads]

    async with TestQueue(app) as kit:
        for n in range(5):
            await kit.enqueue("index", Row(n=n))
        assert {run.outcome for run in await kit.run_until_idle()} == {"succeeded"}
    assert seen == [0, 1, 2, 3, 4]


def test_limits_and_annotations_are_checked_at_registration() -> None:
    app = App()

    def index(ctx: BatchContext, payloads: list[int]) -> None: ...

    def single(ctx: BatchContext, payload: Row) -> None: ...

    for name, value in (("max_size", 0), ("max_size", 1001), ("max_size", 1.5), ("max_wait", -1), ("max_wait", "1")):
        options: dict[str, Any] = {name: value}
        with pytest.raises(InvalidInput, match=f"{name}: of 'index' is {value!r}"):
            app.batch_handler("index", **options)(index)
    with pytest.raises(InvalidInput, match=r"of 'index' is annotated with .*Row, and a batch handler is given a list"):
        app.batch_handler("index")(single)
    assert app.handlers == {}
    assert list(item_results(None, 2)) == [None, None]
