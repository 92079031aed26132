"""Replies of steps that were applied are lost: each job is there once and runs once."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from headrace import App, Context, JobSpec, Producer, StoreUnavailable, Worker, WorkerSettings, lifecycle
from headrace.errors import OutcomeUnknown, StoreRefused
from headrace.stores import Store, open_store
from headrace.stores.base import Failure, Release, Settled
from tests.conformance.steps import LONG_MS, QUEUE, ids, new, ref, settled, sizes
from tests.conformance.steps import Worker as Claimer
from tests.services.lossy_wire import LossyWire
from tests.services.redis import RedisServer


@pytest.mark.parametrize("seed", range(4))
async def test_V5_V14_no_job_is_doubled_or_lost_by_lost_replies(
    redis_server: RedisServer, prefix: str, seed: int
) -> None:
    """One reply of twelve is lost, of whatever step: enqueue, claim, acknowledgement, renewal, tick."""
    dice = random.Random(seed)
    safe = open_store(redis_server.url, prefix)
    await lifecycle.promote(safe, QUEUE, 1, 3)
    app, runs, fails = App(), Counter[str](), Counter[str]()

    @app.handler("note")
    async def note(ctx: Context, payload: int) -> None:
        if payload % 5 == 0 and not fails[ctx.job.id]:
            fails[ctx.job.id] += 1
            raise RuntimeError("the first run fails")
        runs[ctx.job.id] += 1

    async with LossyWire(redis_server.port, lambda: dice.random() < 1 / 12) as wire:
        store = open_store(wire.url, prefix)
        settings = WorkerSettings(queues=(QUEUE,), concurrency=4, lease_ms=60_000)
        worker = Worker(app, store, settings)
        running = asyncio.create_task(worker.run())
        sending = open_store(wire.url, prefix)
        producer = Producer(sending)
        placed: set[str] = set()
        for number in range(0, 120, 6):
            specs = [JobSpec("note", n, max_retries=50) for n in range(number, number + 5)]
            while True:
                try:
                    placed |= {job.id for job in await producer.enqueue_many(QUEUE, specs)}
                    placed.add((await producer.enqueue(QUEUE, "note", number + 5, id=f"mine-{number}")).id)
                    break
                except StoreUnavailable:  # of a read: nothing was sent
                    continue
        async with asyncio.timeout(120):
            while runs.keys() != placed or await sizes(safe, ref(0)) or await sizes(safe, ref(1)):
                await asyncio.sleep(0.05)
        await worker.stop()
        await running
        assert wire.lost > 5
        await producer.aclose()
        await store.close()
    assert len(placed) == 120
    assert set(runs.values()) == {1}
    await safe.close()


async def test_V5_an_enqueue_whose_replies_are_all_lost_is_in_doubt_and_there_once(
    redis_server: RedisServer, prefix: str
) -> None:
    safe = open_store(redis_server.url, prefix)
    topology = await lifecycle.promote(safe, QUEUE, 1, 1)
    async with LossyWire(redis_server.port) as wire:
        store = open_store(wire.url, prefix)
        producer = Producer(store, retry_for=0.5)
        await producer.enqueue(QUEUE, "note", id="before")
        wire.loses = lambda: True
        with pytest.raises(OutcomeUnknown, match=r"job '\S+' may or may not be enqueued: .* the same id") as doubt:
            await producer.enqueue(QUEUE, "note")
        with pytest.raises(StoreRefused, match="does not answer"):  # the greeting of each connection is lost, too
            await producer.enqueue(QUEUE, "note", id="unsent")
        wire.loses = lambda: False
        named = re.search(r"job '(\S+)'", str(doubt.value))
        assert named is not None
        again = await producer.enqueue(QUEUE, "note", id=named[1])
        assert again.existing
        await store.close()
    (counts,) = await safe.counts(topology.refs(1))
    assert counts.ready == 2
    await safe.close()


Step = Callable[[Store, bytes], Awaitable[list[int]]]
"""A transition of the job ``a``, leased under that token; the refused indexes."""

STEPS: dict[str, tuple[Step, list[int], dict[str, int]]] = {
    "ack": (lambda store, token: store.ack(ref(), [Settled(b"1a", token)]), [0], {}),
    "fail": (lambda store, token: store.fail(ref(), [Failure(b"1a", token, None, "boom")]), [0], {"dead": 1}),
    "release": (lambda store, token: store.release(ref(), [Release(b"1a", token)]), [0], {"ready": 1}),
    "renew": (lambda store, token: store.renew(ref(), [Settled(b"1a", token)], LONG_MS), [], {"leased": 1}),
}
"""With what the second try is refused, and what is there in the end."""


@pytest.mark.parametrize("name", STEPS)
async def test_M20_a_transition_whose_reply_was_lost_may_be_asked_for_again(
    redis_server: RedisServer, prefix: str, name: str
) -> None:
    step, refused, left = STEPS[name]
    safe = open_store(redis_server.url, prefix)
    await lifecycle.promote(safe, QUEUE, 1, 1)
    await safe.enqueue(ref(), 1, b"nonce", [new("a")])
    token = (await Claimer(safe).claim()).token
    await step(safe, b"nobody:1")  # the server knows the script, else the lost reply would be that it does not
    async with LossyWire(redis_server.port) as wire:
        store = open_store(wire.url, prefix)
        await sizes(store)
        wire.loses = lambda: wire.lost == 0
        with pytest.raises(StoreUnavailable):
            await step(store, token)
        assert await sizes(safe) == left
        assert await step(store, token) == refused
        assert await sizes(safe) == left
        await store.close()
    await safe.close()


async def test_M4_a_claim_whose_reply_was_lost_is_resumed(redis_server: RedisServer, prefix: str) -> None:
    safe = open_store(redis_server.url, prefix)
    await lifecycle.promote(safe, QUEUE, 1, 1)
    await safe.enqueue(ref(), 1, b"nonce", [new("a")])
    async with LossyWire(redis_server.port) as wire:
        store = open_store(wire.url, prefix)
        await sizes(store)
        wire.loses = lambda: wire.lost == 0
        worker = Claimer(store)
        with pytest.raises(StoreUnavailable):
            await worker.claim()
        assert await sizes(safe) == {"leased": 1}
        resumed = await store.resume(ref(), worker.name, worker.seq, LONG_MS)
        assert ids(resumed) == ["a"]
        assert await store.ack(ref(), settled(resumed)) == []
        await store.close()
    await safe.close()
