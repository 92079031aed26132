"""What a store on Redis says and keeps when the server is away, frozen, full, restarted or refuses it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis.asyncio as redis

from headrace.errors import AccessDenied, StoreFull, StoreUnavailable
from headrace.lifecycle import promote
from headrace.stores.base import NewJob, Settled
from headrace.stores.redis import RedisStore
from tests.cluster.guard import Guard
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    created,
    enqueue,
    failures,
    fresh_nonce,
    ids,
    new,
    ref,
    releases,
    settled,
    sizes,
)
from tests.services.redis import Flavour, RedisServer, flavours

SECRET = "hunter2"

pytestmark = pytest.mark.parametrize("flavour", flavours())


@asynccontextmanager
async def opened_store(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[redis.Redis]:
    client = redis.Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


async def test_J12_a_server_that_is_away_is_named_and_found_again(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, persist=True, guard=process_guard) as server:
        async with opened_store(server.url) as store:
            await created(store)
            await enqueue(store, "a")
            server.kill()
            for call in (store.check(), store.read_topology(QUEUE), store.wait_hint([QUEUE], 1), enqueue(store, "b")):
                with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{server.port}/0 does not answer"):
                    await call
            server.start()
            assert await sizes(store) == {"ready": 1}
            assert ids(await Worker(store).claim()) == ["a"]


async def test_a_frozen_server_ends_calls_and_late_replies_meet_no_other_call(
    flavour: Flavour, process_guard: Guard
) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with opened_store(server.url) as store:
            await created(store)
            await store.write_marker("data")
            server.pause()
            lost = await asyncio.gather(
                store.read_topology(QUEUE), store.write_marker("other"), enqueue(store, "a"), return_exceptions=True
            )
            assert [type(each) for each in lost] == [StoreUnavailable] * 3
            server.resume()
            assert await store.read_marker() == "data"
            assert (await store.read_topology(QUEUE)) is not None
            assert set(await sizes(store)) <= {"ready"}  # the frozen server may have taken the call when it woke


async def test_scripts_that_the_server_forgot_are_sent_again_and_run_once(
    flavour: Flavour, process_guard: Guard
) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with opened_store(server.url) as store, connected(server.url) as client:
            await created(store)
            for n in range(5):
                await client.script_flush()
                await asyncio.gather(*(enqueue(store, f"{n}-{i}") for i in range(20)), store.recover(ref()))
            assert await sizes(store) == {"ready": 100}


async def test_of_calls_that_travel_together_only_those_are_sent_again_whose_script_was_forgotten(
    flavour: Flavour, process_guard: Guard
) -> None:
    """Counted by a script that is not idempotent: the others were run, and their replies stand."""
    with RedisServer(flavour, guard=process_guard) as server:
        async with opened_store(server.url) as store, connected(server.url) as client:
            await created(store)
            for _ in range(5):
                await client.script_flush()
                await store.count_work(QUEUE, {"claimed": 1})  # known to the server from here on
                counting = [store.count_work(QUEUE, {"claimed": 1}) for _ in range(3)]
                answers = await asyncio.gather(*counting, store.recover(ref()), enqueue(store, "a"))
                assert answers[:4] == [True, True, True, 0]
            stored = await store.read_stats(QUEUE)
            assert stored is not None
            assert stored.counters["claimed"] == 5 * 4
            assert await sizes(store) == {"ready": 1}


async def test_scripts_are_known_again_after_a_restart(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, persist=True, guard=process_guard) as server:
        async with opened_store(server.url) as store:
            await created(store)
            await enqueue(store, "before")
            server.kill()
            server.start()
            async with asyncio.timeout(60):
                while True:  # the first calls may meet connections of before
                    with contextlib.suppress(StoreUnavailable):
                        await store.read_topology(QUEUE)
                        break
            with server.client() as client:
                assert client.info("memory")["number_of_cached_scripts"] == 0
            assert ids(await Worker(store).claim()) == ["before"]
            await enqueue(store, "after")
            assert await sizes(store) == {"leased": 1, "ready": 1}


async def test_V19_a_full_server_refuses_new_jobs_and_lets_the_others_end(
    flavour: Flavour, process_guard: Guard
) -> None:
    options = ("--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
    with RedisServer(flavour, options=options, guard=process_guard) as server:
        async with opened_store(server.url) as store, connected(server.url) as client:
            await created(store)
            body = NewJob(b"1", 0, new("x", payload="x" * 20_000).body)
            accepted = 0
            with contextlib.suppress(StoreFull):
                for accepted in range(0, 1_000, 20):
                    batch = [body._replace(key=b"1job-%d" % (accepted + n)) for n in range(20)]
                    await store.enqueue(ref(), 1, fresh_nonce(), batch)
            assert 100 < accepted < 900
            assert await sizes(store) == {"ready": accepted}
            # Below what is in use now, so that nothing but the order of commands lets a call pass.
            await client.config_set("maxmemory", 1_000_000)
            with pytest.raises(StoreFull, match="maxmemory"):
                await enqueue(store, "small")

            worker = Worker(store)
            first = await worker.claim(10)
            assert len(first.jobs) == 10
            assert len((await store.resume(ref(), worker.name, worker.seq, LONG_MS)).jobs) == 10
            assert await store.renew(ref(), settled(first), LONG_MS) == []
            assert await store.fail(ref(), failures(first, 0)[:3]) == []
            assert await store.release(ref(), releases(first)[3:6]) == []
            assert await store.ack(ref(), settled(first)[6:]) == []
            done = 4
            leases: list[Settled] = []
            while done < accepted:
                claim = await worker.claim(100, acks=leases)
                assert claim.refused == []
                done += len(leases)
                leases = settled(claim)
                await store.tick(QUEUE, "w")
            assert await sizes(store) == {}

            await client.config_set("maxmemory", 0)
            await enqueue(store, "small")
            assert await sizes(store) == {"ready": 1}


async def test_wrong_credentials_are_said_and_not_shown(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, options=("--requirepass", "the-real-one"), guard=process_guard) as server:
        for login in (f"user:{SECRET}@", f":{SECRET}@", ""):
            async with opened_store(f"redis://{login}127.0.0.1:{server.port}/0") as store:
                for call in (store.check(), store.read_topology(QUEUE), store.wait_hint([QUEUE], 1)):
                    with pytest.raises(AccessDenied, match=f"127.0.0.1:{server.port}") as caught:
                        await call
                    assert SECRET not in "".join(traceback.format_exception(caught.value))
        async with opened_store(f"redis://:the-real-one@127.0.0.1:{server.port}/0") as store:
            await promote(store, QUEUE, 1, 1)


async def test_a_missing_permission_is_named(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with connected(server.url) as client:
            await client.acl_setuser(
                "reader", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], categories=["+@read", "+@connection"]
            )
        async with opened_store(f"redis://reader:{SECRET}@127.0.0.1:{server.port}/0") as store:
            assert await store.read_topology(QUEUE) is None
            with pytest.raises(AccessDenied, match="evalsha") as caught:
                await created(store)
            assert SECRET not in str(caught.value)


async def test_a_script_that_may_not_be_loaded_fails_its_own_call_only(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with connected(server.url) as client, opened_store(server.url) as store:
            await created(store)
            await client.acl_setuser(
                "worker", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], categories=["+@all"], commands=["-script"]
            )
            await client.script_flush()
            await store.recover(ref())  # known to the server from here on
            url = f"redis://worker:{SECRET}@127.0.0.1:{server.port}/0"
            async with opened_store(url) as limited:
                recovered, promoted = await asyncio.gather(
                    limited.recover(ref()), limited.promote_due(ref()), return_exceptions=True
                )
    assert recovered == 0
    assert isinstance(promoted, AccessDenied)


async def test_no_failure_of_a_call_for_many_partitions_goes_unread(flavour: Flavour, process_guard: Guard) -> None:
    unread: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context["message"]))
    with RedisServer(flavour, guard=process_guard) as server:
        async with opened_store(server.url) as store:
            server.kill()
            with pytest.raises(StoreUnavailable):
                await store.counts([ref(n) for n in range(8)])
            await asyncio.sleep(0)
            gc.collect()
    assert unread == []


async def test_a_cancelled_caller_disturbs_nobody(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with opened_store(server.url) as store:
            await created(store)
            calls = [asyncio.ensure_future(enqueue(store, f"job-{n}")) for n in range(50)]
            await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
            assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1::2])
            ready = (await sizes(store))["ready"]
            assert 25 <= ready <= 50  # a call that was on its way is applied, whoever waits for it
            assert await store.read_marker() is None
