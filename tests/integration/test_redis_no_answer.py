"""Why a server gave no answer is told: where to look differs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.errors import StoreRefused
from headrace.redis.client import RedisClient
from tests.cluster.certificates import Authority

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def told(url: str, *, timeout: float = 5.0) -> str:
    """Return the error of a call that found no connection: it is certain that it was not sent."""
    client = RedisClient(url, call_timeout=timeout, connect_timeout=timeout)
    try:
        with pytest.raises(StoreRefused, match="does not answer: ") as caught:
            await client.check()
    finally:
        await client.close()
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def speaks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_a_host_that_does_not_exist_is_told_from_a_port_that_nobody_listens_on() -> None:
    assert "its host name is unknown" in await told("redis://:hunter2@no-such-host.invalid:6379/0")
    assert "connection refused; check host and port" in await told("redis://:hunter2@127.0.0.1:1/0")


@pytest.mark.parametrize(
    ("answer", "scheme", "reason"),
    [
        (closes, "redis", "the connection was closed; a server with TLS needs rediss instead of redis"),
        (speaks_http, "redis", "something there does not speak the Redis protocol"),
        (speaks_http, "rediss", "the TLS handshake failed; a server without TLS needs redis instead of rediss"),
        (is_silent, "redis", "no answer in time; check host, port and network"),
        (is_silent, "rediss", "no answer in time; check host, port and network; a server without TLS needs redis"),
    ],
)
async def test_what_listens_there_is_told_by_how_it_answers(answer: Answer, scheme: str, reason: str) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert reason in await told(f"{scheme}://:hunter2@127.0.0.1:{port}/0", timeout=0.3 if answer is is_silent else 5.0)
    server.close()
    await server.wait_closed()


async def test_a_certificate_that_is_not_trusted_is_told(tmp_path: Path) -> None:
    certificate, key = Authority().server("redis", ["127.0.0.1"]).write(tmp_path, "redis")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(closes, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    assert "its certificate is not trusted (" in await told(f"rediss://:hunter2@127.0.0.1:{port}/0")
    server.close()
    await server.wait_closed()
