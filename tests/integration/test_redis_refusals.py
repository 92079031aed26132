"""Real servers that refuse for a while: replicas, loading, failing disks, too few replicas, busy, no connection left.

Each refusal is typed and named, nothing of the call is applied, and the same store works again afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headrace import App, Context, Producer, Worker, WorkerSettings
from headrace.errors import StoreRefused, StoreUnavailable, UnsupportedServer
from headrace.lifecycle import promote
from headrace.stores import Store, open_store
from tests.cluster.guard import Guard
from tests.conformance.steps import QUEUE, enqueue, ids, ref, settled, sizes
from tests.conformance.steps import Worker as Claimer
from tests.services.redis import Flavour, RedisServer, flavours
from tests.services.redis_access import Login

pytestmark = pytest.mark.parametrize("flavour", flavours())


@contextlib.asynccontextmanager
async def prepared(server: RedisServer) -> AsyncIterator[Store]:
    """A store with one ready job ``a``."""
    store = open_store(server.url)
    try:
        await first_job(store)
        yield store
    finally:
        await store.close()


async def first_job(store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    await enqueue(store, "a")


async def refuses(store: Store, words: str) -> None:
    """Every kind of write is refused for that reason."""
    worker = Claimer(store)
    for call in (enqueue(store, "b"), worker.claim(), store.write_marker("x"), store.hint(ref())):
        with pytest.raises(StoreRefused, match=words):
            await call


async def works(store: Store, *jobs: str) -> None:
    """Nothing of what was refused has been applied, and the job can be run."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(StoreUnavailable):
                claim = await Claimer(store, "after").claim()
                break
            await asyncio.sleep(0.05)
    assert sorted(ids(claim)) == sorted(jobs)
    assert await store.ack(ref(), settled(claim)) == []
    assert await sizes(store) == {}


async def test_QF1_a_primary_becomes_a_replica_under_a_blocked_reader(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as other, RedisServer(flavour, guard=process_guard) as server:
        async with prepared(server) as store:
            await store.wait_hint([QUEUE], 1)
            waiting = asyncio.create_task(store.wait_hint([QUEUE], 30))
            await asyncio.to_thread(until_blocked, server)
            with server.client() as client:
                client.execute_command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
                client.execute_command("REPLICAOF", "127.0.0.1", 1)  # nobody is there: it keeps what it has
                with pytest.raises(StoreUnavailable, match=r"changed its role|read-only replica"):
                    await waiting
                await refuses(store, "is a read-only replica now; waiting for the primary")
                client.execute_command("REPLICAOF", "NO", "ONE")
            await works(store, "a")
        assert other.answers()


def until_blocked(server: RedisServer) -> None:
    with server.client() as client:
        while client.info("clients")["blocked_clients"] == 0:
            pass


async def test_a_server_that_loads_its_data(flavour: Flavour, process_guard: Guard) -> None:
    slowly = ("--save", "900", "1", "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    with RedisServer(flavour, options=slowly, guard=process_guard) as server:
        async with prepared(server) as store:
            with server.client() as client:
                for number in range(150):
                    client.set(f"other-{number}", os.urandom(1000))
                client.execute_command("SAVE")
            server.kill()
            server.launch()  # it takes three seconds to load that
            async with asyncio.timeout(60):
                while True:
                    with pytest.raises(StoreUnavailable) as told:
                        await enqueue(store, "b")
                    if "is loading its data set" in str(told.value):
                        break
            await refuses(store, "is loading its data set")
            await asyncio.to_thread(server.wait)
            await works(store, "a")


async def test_a_server_that_cannot_save(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, options=("--save", "900", "1"), guard=process_guard) as server:
        async with prepared(server) as store:
            with server.client() as client:
                shutil.rmtree(server.folder)
                client.execute_command("BGSAVE")
                while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
                    await asyncio.sleep(0.01)
                await refuses(store, "cannot save its data and refuses writes; see to its disk")
                server.folder.mkdir()
                client.execute_command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
            await works(store, "a")


async def test_a_primary_with_too_few_replicas(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with prepared(server) as store:
            with server.client() as client:
                client.config_set("min-replicas-to-write", 1)
                await refuses(store, "has fewer replicas than its min-replicas-to-write")
                client.config_set("min-replicas-to-write", 0)
            await works(store, "a")


async def test_a_server_that_is_busy_with_somebody_elses_script(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, options=("--busy-reply-threshold", "50"), guard=process_guard) as server:
        async with prepared(server) as store:
            with server.client() as client, server.client() as killer:
                spinning = asyncio.create_task(asyncio.to_thread(spin, client))
                async with asyncio.timeout(60):
                    while True:
                        try:
                            await store.read_marker()
                        except StoreUnavailable as told:
                            if "busy with a script" in str(told):
                                break
                await refuses(store, "is busy with a script of somebody else; SCRIPT KILL ends it")
                killer.script_kill()
                await spinning
            await works(store, "a")


def spin(client: object) -> None:
    with contextlib.suppress(Exception):
        client.eval("while true do end", 0)  # type: ignore[attr-defined]


async def test_a_server_without_a_connection_left(flavour: Flavour, process_guard: Guard) -> None:
    with RedisServer(flavour, guard=process_guard) as server:
        async with prepared(server) as store:
            with server.client() as client:
                client.config_set("maxclients", 2)
                third = open_store(server.url)
                with pytest.raises(StoreUnavailable, match=r"as many connections as it allows \(maxclients\)"):
                    await third.check()
                client.config_set("maxclients", 100)
                await third.check()
                await third.close()
            await works(store, "a")


async def test_a_server_that_has_a_command_switched_off(flavour: Flavour, process_guard: Guard) -> None:
    """As some that are hosted have; also inside of a script."""
    for command in ("EVALSHA", "ZADD"):
        with RedisServer(flavour, options=("--rename-command", command, ""), guard=process_guard) as server:
            store = open_store(server.url)
            await store.check()
            with pytest.raises(UnsupportedServer, match=r"lacks a command .* needs Redis 6\.2 or newer"):
                await first_job(store)
            await store.close()


async def test_QF4_workers_wait_through_refusals_and_go_on(flavour: Flavour, process_guard: Guard) -> None:
    app, ran, release = App(), list[str](), asyncio.Event()

    @app.handler("send")
    async def send(ctx: Context, payload: object) -> None:
        ran.append(ctx.job.id)
        if ctx.job.id == "long":
            await release.wait()

    refusals: list[tuple[Callable[[RedisServer], Awaitable[None]], Callable[[RedisServer], Awaitable[None]]]] = [
        (command("REPLICAOF", "127.0.0.1", 1), command("REPLICAOF", "NO", "ONE")),
        (command("CONFIG", "SET", "min-replicas-to-write", 1), command("CONFIG", "SET", "min-replicas-to-write", 0)),
    ]
    with RedisServer(flavour, login=Login("", "secret"), guard=process_guard) as server:
        store = open_store(server.url)
        await promote(store, QUEUE, 1, 2)
        producer = Producer(store)
        worker = Worker(app, store, WorkerSettings(queues=(QUEUE,), lease_ms=60_000))
        running = asyncio.create_task(worker.run())
        await producer.enqueue(QUEUE, "send", id="long")
        async with asyncio.timeout(60):
            for number, (begin, end) in enumerate(refusals):
                while f"before-{number}" not in ran:
                    await producer.enqueue(QUEUE, "send", id=f"before-{number}")
                    await asyncio.sleep(0.05)
                await begin(server)
                with pytest.raises(StoreRefused):
                    await Producer(store, retry_for=0.1).enqueue(QUEUE, "send", id=f"during-{number}")
                await end(server)
                await producer.enqueue(QUEUE, "send", id=f"after-{number}")
                while f"after-{number}" not in ran:
                    await asyncio.sleep(0.02)
            release.set()
            while sum([each.live for each in await store.counts([ref(0), ref(1)])]):
                await asyncio.sleep(0.02)
        await worker.stop()
        assert (await running).clean
        assert not [job for job in ran if job.startswith("during")]
        await store.close()


def command(*words: str | int) -> Callable[[RedisServer], Awaitable[None]]:
    async def send(server: RedisServer) -> None:
        with server.client() as client:
            client.execute_command(*words)

    return send
