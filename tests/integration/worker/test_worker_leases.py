"""Leases: kept as long as a job is here in any form, given up only for code that hangs, and lost with grace."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest

from headrace import App, Context, RetryPolicy, Store, StoreUnavailable
from headrace.stores.base import Release, Settled
from headrace.topology import PartitionRef
from tests.integration.worker.support import (
    QUEUE,
    Faulty,
    HeldAcks,
    Running,
    ThreadWorker,
    empty,
    eventually,
    put,
    queue,
    sizes,
    working,
)

SHORT = 500


def another(runs: list[str]) -> App:
    """An app whose handler notes that it ran the job."""
    app = App()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(ctx.job.id)

    return app


async def test_J5_a_lease_is_renewed_until_the_acknowledgement_is_confirmed(store: Store) -> None:
    app, runs, elsewhere = App(), 0, list[str]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        nonlocal runs
        runs += 1

    producer = await queue(store)
    held = HeldAcks(store)
    async with working(app, cast(Store, held), lease_ms=SHORT) as first:
        await put(producer, "job", [None])
        await eventually(lambda: held.sent)  # the handler is done, its acknowledgement is under way
        async with working(another(elsewhere), store, lease_ms=SHORT):
            held_from = time.monotonic()
            await eventually(lambda: time.monotonic() > held_from + 3 * SHORT / 1000)
            assert await sizes(store) == {"leased": 1}
            held.gate.set()
            await eventually(lambda: empty(store))
        assert (runs, elsewhere, first.told.lost) == (1, [], 0)
        await eventually(lambda: first.told.outcomes == {"succeeded": 1})


async def test_J6_leases_of_jobs_that_wait_here_are_renewed_too(store: Store) -> None:
    app, runs = App(), list[str]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        await asyncio.sleep(0.1)
        runs.append(ctx.job.id)

    producer = await queue(store)
    ids = await put(producer, "job", range(25))
    async with working(app, store, concurrency=1, queue_buffer=128, lease_ms=SHORT) as first:
        await eventually(lambda: runs)
        assert (await sizes(store)).get("leased", 0) >= 20  # they wait in this process, not in the store
        async with working(another(runs), store, lease_ms=SHORT) as second:
            await eventually(lambda: empty(store))
            assert second.told.outcomes == {}
        assert first.told.lost == 0
    assert sorted(runs) == sorted(ids)


async def test_J6_a_waiting_job_whose_lease_is_gone_does_not_start(store: Store) -> None:
    app, runs, may_end = App(), list[Any](), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(payload)
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "job", ["first", "second"])
    async with working(app, store, concurrency=1, queue_buffer=1, lease_ms=SHORT) as running:
        await eventually(lambda: runs)
        waiting = next(each for each in running.worker._executor._waiting)
        # Somebody ends the lease behind the worker's back.
        at = PartitionRef(QUEUE, 1, 0)
        assert await store.ack(at, [waiting.settled]) == []
        await eventually(lambda: running.told.lost == 1)
        may_end.set()
        await eventually(lambda: empty(store))
        await eventually(lambda: running.told.outcomes["succeeded"] == 1)
    assert len(runs) == 1


async def test_J4_a_handler_whose_lease_is_lost_is_told_to_stop(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headrace.worker")
    app, told, started = App(), list[Any](), list[Context]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(ctx)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.append((ctx.lost, ctx.cancelled))
            raise

    producer = await queue(store)
    (job_id,) = await put(producer, "job", [None])
    async with working(app, store, lease_ms=SHORT) as running:
        await eventually(lambda: started)
        execution = next(iter(running.worker._executor.running))
        assert await store.ack(PartitionRef(QUEUE, 1, 0), [execution.settled]) == []
        await eventually(lambda: told == [(True, True)])
        await eventually(lambda: not running.worker._executor.running)
        assert running.told.lost == 1
        assert running.told.outcomes == {}
    assert job_id in caplog.text


async def test_J4_a_plain_handler_sees_that_its_lease_is_lost(store: Store) -> None:
    app, told = App(), list[Any]()

    @app.handler("job")
    def job(ctx: Context, payload: Any) -> None:
        while not ctx.cancelled:
            time.sleep(0.005)
        told.append(ctx.lost)

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store, lease_ms=SHORT) as running:
        await eventually(lambda: running.worker.started.is_set() and running.worker._executor.running)
        execution = next(iter(running.worker._executor.running))
        assert await store.ack(PartitionRef(QUEUE, 1, 0), [execution.settled]) == []
        await eventually(lambda: told == [True])
        await eventually(lambda: not running.worker._executor.running)
        assert (running.told.lost, running.told.outcomes) == (1, {})


async def test_QB3_QB8_a_job_much_longer_than_its_lease_runs_once(store: Store) -> None:
    app, runs = App(), 0

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(4 * SHORT / 1000)

    producer = await queue(store)
    await put(producer, "job", [None])
    elsewhere = list[str]()
    async with working(app, store, lease_ms=SHORT) as running:
        await eventually(lambda: runs)
        async with working(another(elsewhere), store, lease_ms=SHORT):
            await eventually(lambda: empty(store))
        assert (runs, elsewhere, running.told.lost) == (1, [], 0)


async def test_QB5_a_handler_that_blocks_the_loop_loses_no_lease_and_is_named(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, runs, elsewhere = App(), 0, list[str]()

    @app.handler("job")
    async def blocks(ctx: Context, payload: Any) -> None:
        nonlocal runs
        runs += 1
        ends = time.monotonic() + 5 * SHORT / 1000
        while time.monotonic() < ends:
            time.sleep(0.01)

    producer = await queue(store)
    async with working(app, store, lease_ms=SHORT) as running:
        await put(producer, "job", [None])
        await eventually(lambda: running.told.claims)
        with ThreadWorker(another(elsewhere), store, lease_ms=SHORT):
            await eventually(lambda: empty(store))
        assert (runs, elsewhere, running.told.lost) == (1, [], 0)
    assert "the handler of 'job' has blocked the event loop for" in caplog.text
    assert "in blocks" in caplog.text


async def test_QA4_code_that_hangs_past_its_timeout_is_given_up_and_the_job_runs_elsewhere(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, elsewhere = App(), list[str]()

    @app.handler("job")
    async def hangs(ctx: Context, payload: Any) -> None:
        ends = time.monotonic() + 60
        while not elsewhere and time.monotonic() < ends:
            time.sleep(0.01)

    producer = await queue(store)
    async with working(app, store, lease_ms=SHORT, timeout_grace_ms=200) as running:
        (job_id,) = await put(producer, "job", [None], timeout=0.2)
        with ThreadWorker(another(elsewhere), store, lease_ms=SHORT) as other:
            # Both wait for the hint; whoever blocks is the first if it gets the job.
            await eventually(lambda: elsewhere)
            await eventually(lambda: empty(store))
            await eventually(lambda: other.told.outcomes == {"succeeded": 1})
        if running.told.claims:
            assert running.told.outcomes == {}
            await eventually(lambda: running.told.lost == 1)
            assert "the handler of 'job' has blocked the event loop" in caplog.text
    assert elsewhere == [job_id]


async def test_QA4_what_cannot_begin_behind_code_that_hangs_is_given_up_too_and_runs_elsewhere(store: Store) -> None:
    app, elsewhere, ran = App(), list[str](), list[Any]()

    @app.handler("job")
    async def hangs(ctx: Context, payload: Any) -> None:
        ran.append(payload)
        ends = time.monotonic() + 60
        while len(elsewhere) < 3 and time.monotonic() < ends:
            time.sleep(0.01)

    producer = await queue(store)
    ids = await put(producer, "job", range(3), timeout=0.2)
    with ThreadWorker(app, store, lease_ms=SHORT, timeout_grace_ms=200) as hung:
        await eventually(lambda: ran)
        assert await sizes(store) == {"leased": 3}
        async with working(another(elsewhere), store, lease_ms=SHORT) as running:
            await eventually(lambda: empty(store))
            assert running.told.outcomes == {"succeeded": 3}
        await eventually(lambda: hung.told.lost == 3)
    assert sorted(elsewhere) == sorted(ids)
    assert ran == [0]  # the others are asked for before they begin, and are not granted any more


async def test_QB5_what_cannot_begin_behind_code_that_computes_within_its_time_keeps_its_lease(store: Store) -> None:
    app, elsewhere, ran = App(), list[str](), list[Any]()

    @app.handler("long", timeout=60)
    async def long(ctx: Context, payload: Any) -> None:
        ran.append(payload)
        ends = time.monotonic() + 2.5  # longer than it takes until the loop is seen to be blocked
        while time.monotonic() < ends:
            time.sleep(0.01)

    @app.handler("job", timeout=0.2)
    async def job(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    await put(producer, "long", [0])
    await put(producer, "job", [1, 2])
    with ThreadWorker(app, store, lease_ms=SHORT, timeout_grace_ms=200) as computing:
        await eventually(lambda: ran)
        async with working(another(elsewhere), store, lease_ms=SHORT):
            await eventually(lambda: empty(store))
        assert computing.told.lost == 0
    assert (ran, elsewhere) == ([0, 1, 2], [])


async def test_V14_the_batch_of_a_claim_whose_answer_is_lost_is_resumed(store: Store) -> None:
    app, runs = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(payload)

    producer = await queue(store)
    await put(producer, "job", range(8))
    faulty = Faulty(store)
    faulty.after["claim"] = [StoreUnavailable("the answer is lost"), StoreUnavailable("the answer is lost")]
    faulty.before["resume"] = [StoreUnavailable("still away")]
    # The lease is far longer than the test: without resume the jobs would be out of reach.
    async with working(app, cast(Store, faulty), concurrency=8, lease_ms=600_000) as running:
        await eventually(lambda: empty(store))
        await eventually(lambda: running.worker._executor._leases.held == 0)
        assert running.told.lost == 0
        assert faulty.calls["resume"] >= 2
    assert sorted(runs) == list(range(8))


async def test_V14_acknowledgements_that_are_sent_again_are_no_lost_leases(store: Store) -> None:
    app, runs = App(), 0

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        nonlocal runs
        runs += 1

    @app.handler("fails", retry=RetryPolicy(max_retries=0))
    async def fails(ctx: Context, payload: Any) -> None:
        raise ValueError

    producer = await queue(store)
    await put(producer, "job", range(4))
    await put(producer, "fails", range(4))
    faulty = Faulty(store)
    # Acknowledgements go alone or along with the next claim: the answer is lost either way.
    faulty.after["ack"] = [StoreUnavailable("the answer is lost")]
    faulty.after["claim"] = [None, StoreUnavailable("the answer is lost")]
    faulty.after["fail"] = [StoreUnavailable("the answer is lost")]
    async with working(app, cast(Store, faulty), concurrency=8) as running:
        await eventually(lambda: running.worker._executor._leases.held == 0 and faulty.calls["fail"] >= 2)
        assert await sizes(store) == {"dead": 4}
        assert running.told.lost == 0
        assert running.told.unavailable >= 2
    assert runs == 4


async def test_J2_a_late_result_is_refused_by_token_and_counted_once(store: Store) -> None:
    app, started, may_end = App(), list[Any](), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        started.append(ctx)
        await may_end.wait()

    producer = await queue(store)
    await put(producer, "job", [None])
    # A lease of 30 s, so no renewal comes in between; one slot, so that it does not take the job again itself.
    async with working(app, store, concurrency=1) as running:
        await eventually(lambda: started)
        execution = next(iter(running.worker._executor.running))
        at = PartitionRef(QUEUE, 1, 0)
        # Another worker has taken the job over: its lease is under another token now.
        assert await store.release(at, [Release(*execution.settled)]) == []
        taken = await store.claim(at, "other", 1, 1, 60_000)
        assert len(taken.jobs) == 1
        may_end.set()
        await eventually(lambda: running.told.lost)
        assert await sizes(store) == {"leased": 1}
        assert await store.ack(at, [Settled(taken.jobs[0].key, taken.token)]) == []
        ending = await running.stop()
    assert (running.told.lost, running.told.outcomes["succeeded"]) == (1, 0)
    assert ending.clean


async def test_waiting_jobs_of_a_process_that_stood_still_are_checked_before_they_start(store: Store) -> None:
    """A process that was frozen for longer than its leases must not start what another one may have taken."""
    app, runs = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(payload)
        if payload == 0:
            # Stand still as a whole: pretend that the leases ended meanwhile, and that one was taken over.
            for execution in running.worker._executor._waiting:
                execution.batch.held_until = 0.0
            lost = running.worker._executor._waiting[0]
            assert await store.ack(PartitionRef(QUEUE, 1, 0), [lost.settled]) == []
            not_to_run.append(lost.job.payload)

    not_to_run: list[Any] = []
    producer = await queue(store)
    await put(producer, "job", range(4))
    running = Running(app, store, concurrency=1, queue_buffer=10)
    await eventually(lambda: empty(store))
    assert running.told.lost == 1
    await running.stop()
    assert sorted([*runs, *not_to_run]) == [0, 1, 2, 3]
    assert len(not_to_run) == 1


async def test_runs_that_others_hold_up_for_longer_than_their_leases_are_checked_before_they_begin(
    store: Store,
) -> None:
    app, runs = App(), list[Any]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append(payload)
        if len(runs) == 1:  # the others have their slots, and begin later
            for execution in running.worker._executor.running:
                execution.batch.held_until = 0.0
            time.sleep(0.01)

    producer = await queue(store)
    await put(producer, "job", range(4))
    counted = Faulty(store)
    async with working(app, cast(Store, counted), concurrency=4, lease_ms=3_600_000) as running:
        await eventually(lambda: running.told.outcomes == {"succeeded": 4})
        assert counted.calls["renew"] == 3
        assert running.told.lost == 0
    assert sorted(runs) == [0, 1, 2, 3]


async def test_a_run_that_times_out_after_its_lease_was_lost_is_not_recorded(store: Store) -> None:
    app, may_end, started = App(), threading.Event(), list[Context]()

    @app.handler("job")
    def job(ctx: Context, payload: Any) -> None:
        started.append(ctx)
        may_end.wait(60)

    producer = await queue(store)
    await put(producer, "job", [None], timeout=0.6)
    faulty = Faulty(store)
    async with working(app, cast(Store, faulty), lease_ms=SHORT) as running:
        await eventually(lambda: started)
        execution = next(iter(running.worker._executor.running))
        assert await store.ack(PartitionRef(QUEUE, 1, 0), [execution.settled]) == []
        await eventually(lambda: running.told.lost == 1)
        await eventually(lambda: execution.check_at == float("inf"))  # its time is over
        may_end.set()
        await eventually(lambda: not running.worker._executor.running)
        assert (running.told.outcomes, faulty.calls["fail"]) == ({}, 0)
