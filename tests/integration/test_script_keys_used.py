"""What scripts do on a real server, as its MONITOR shows it: they touch the keys that they were given, and no other."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import App, Producer, Worker, WorkerSettings
from headrace.lifecycle import promote
from headrace.redis.client import RedisClient
from headrace.redis.scripts import Script
from headrace.settings import QueueSettings, Retention
from headrace.stores import open_store
from tests.cluster.guard import Guard
from tests.conformance.steps import QUEUE, ref
from tests.conformance.test_cut_connections import OPERATIONS
from tests.services.redis import Flavour, RedisServer, flavours

_LINE = re.compile(rb'^\+[\d.]+ \[\d+ (\S+)\] ("(?:[^"\\]|\\.)*"(?: "(?:[^"\\]|\\.)*")*)$')
_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Seen:
    """The commands of a server, in their order: who sent them (``lua``: a script), and their words."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, list[bytes]]] = []

    async def read(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            if found := _LINE.match(line.rstrip(b"\r\n")):
                words = [ast.literal_eval(f"b{word.decode('ascii')}") for word in _WORD.findall(found[2])]
                self.commands.append((found[1].decode(), words))


@asynccontextmanager
async def watched(server: RedisServer) -> AsyncIterator[Seen]:
    """Watch whatever the server does within the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 26)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    seen = Seen()
    reading = asyncio.create_task(seen.read(reader))
    yield seen
    with server.client() as client:
        client.echo("the end")
    async with asyncio.timeout(60):
        while not any(words == [b"ECHO", b"the end"] for _, words in seen.commands[-3:]):
            await asyncio.sleep(0.01)
    reading.cancel()
    writer.close()


async def everything(server: RedisServer, prefix: str) -> None:
    """Every operation that there is, and a worker that is elected, leads and works."""
    for number, operation in enumerate(OPERATIONS.values()):
        store = open_store(server.url, f"{prefix}-{number}")
        await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
        await operation(store)
        await store.close()
    store = open_store(server.url, prefix)
    await promote(store, QUEUE, 1, 2)
    app = App()

    @app.handler("send")
    async def send(ctx: Any, payload: object) -> None: ...

    worker = Worker(app, store, WorkerSettings(queues=(QUEUE,), leader_profile="fast"))
    running = asyncio.create_task(worker.run())
    await Producer(store).enqueue(QUEUE, "send")
    async with asyncio.timeout(60):
        while not worker.is_leader() or any(each.live for each in await store.counts([ref(0), ref(1)])):
            await asyncio.sleep(0.01)
    await worker.stop()
    await running
    await store.close()


@pytest.mark.parametrize("flavour", flavours())
async def test_QE5_no_script_touches_a_key_that_it_was_not_given(
    flavour: Flavour, process_guard: Guard, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[bytes, str] = {}
    run = RedisClient.run

    def noting(self: RedisClient, script: Script, *args: Any, **options: Any) -> Any:
        names[script.sha.encode()] = script.name
        return run(self, script, *args, **options)

    monkeypatch.setattr(RedisClient, "run", noting)
    with RedisServer(flavour, guard=process_guard) as server:
        async with watched(server) as seen:
            await everything(server, prefix)
        given: set[bytes] = set()
        name, inside = "", 0
        with server.client() as client:
            for source, words in seen.commands:
                if source != "lua":
                    if words[0].upper() in (b"EVALSHA", b"EVAL"):
                        name = names.get(words[1], "")
                        given = set(words[3 : 3 + int(words[2])])
                    continue
                if words[0].upper() == b"TIME":
                    continue
                touched = client.execute_command("COMMAND GETKEYS", *words)
                assert {key.encode() for key in touched} <= given, f"{name}: {words[0].decode()} {touched}"
                inside += 1
    assert inside > 1000
    assert len(names) >= 60
    assert {"claim", "enqueue", "adopt", "bury_queue", "purge"} <= set(names.values())
