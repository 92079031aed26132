"""A server that is too old is named at the start. None is installed, so one is played: it answers INFO and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace import App, Context, StoreUnavailable, UnsupportedServer, Worker, WorkerSettings
from headrace.cli.main import app as command_line
from headrace.stores import open_store

OLD = "6.0.16"


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    parts = int((await reader.readline())[1:])
    words = []
    for _ in range(parts):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


@asynccontextmanager
async def server_of_version(version: str) -> AsyncIterator[str]:
    """Play a server of that version on the loopback; yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not reader.at_eof():
                name, *_ = await _command(reader)
                info = f"# Server\r\nredis_version:{version}\r\n".encode()
                match name.upper():
                    case b"INFO":
                        writer.write(b"$%d\r\n%b\r\n" % (len(info), info))
                    case b"CLIENT" | b"SELECT":
                        writer.write(b"+OK\r\n")
                    case _:
                        writer.write(b"-ERR unknown command\r\n")
                await writer.drain()
        except (ValueError, asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    server.close()
    await server.wait_closed()


def application() -> App:
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None: ...

    return app


async def ended(call: Callable[[], Coroutine[Any, Any, object]]) -> object:
    async with asyncio.timeout(60):
        return await call()


@pytest.mark.parametrize("version", [OLD, "5.9", "unknown"])
async def test_a_worker_does_not_start_on_a_server_that_is_too_old(version: str) -> None:
    async with server_of_version(version) as url:
        store = open_store(url)
        worker = Worker(application(), store, WorkerSettings(queues=("emails",)))
        with pytest.raises(UnsupportedServer, match=rf"has version {version}; Headrace needs 6\.2 or newer"):
            await ended(worker.run)
        await store.close()


@pytest.mark.parametrize("version", ["6.2", "7.4-rc1", "10.0.1"])
async def test_newer_servers_pass(version: str) -> None:
    async with server_of_version(version) as url:
        store = open_store(url)
        await store.check()
        await store.close()


async def test_a_worker_starts_while_no_server_answers(caplog: pytest.LogCaptureFixture) -> None:
    async with server_of_version(OLD) as url:
        pass
    store = open_store(url)
    with pytest.raises(StoreUnavailable):
        await store.check()
    worker = Worker(application(), store, WorkerSettings(queues=("emails",)))
    running = asyncio.create_task(worker.run())
    await ended(worker.started.wait)
    await worker.stop(at_once=True)
    assert (await running).clean
    await store.close()


@pytest.mark.parametrize("command", [["status", "emails"], ["topology", "show", "emails"]])
async def test_commands_say_that_a_server_is_too_old(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server_of_version(OLD) as url:
        monkeypatch.setenv("HEADRACE_REDIS_URL", url)

        def call() -> int:
            with pytest.raises(SystemExit) as left:
                command_line(command)
            return int(left.value.code or 0)

        assert await asyncio.to_thread(call) == 1
    shown = capsys.readouterr().err
    assert shown == f"Error: redis {url.removeprefix('redis://')} has version {OLD}; Headrace needs 6.2 or newer\n"
