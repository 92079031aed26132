"""The connection to Redis: no caller waits for an answer that cannot come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.errors import StoreUnavailable
from headrace.redis.client import RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.redis.pipeline import PIPELINE_CALLS, Command

URL = "redis://127.0.0.1:1/0"


class Broken(RedisClient):
    """Fails in a way that nobody foresaw, as often as told; then answers."""

    def __init__(self, times: int) -> None:
        super().__init__(URL)
        self.times = times

    async def round_trip(self, commands: Sequence[Command], *, wait_ms: int = 0) -> list[Any]:
        await asyncio.sleep(0)
        if self.times:
            self.times -= 1
            raise TypeError("a defect")
        return [b"OK"] * len(commands)


async def test_an_error_that_nobody_foresaw_reaches_every_caller_and_ends_nothing_else() -> None:
    client = Broken(2)
    calls = [client.command("GET", f"key-{n}") for n in range(2 * PIPELINE_CALLS + 1)]
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(each) for each in answers[: 2 * PIPELINE_CALLS]] == ["a defect"] * 2 * PIPELINE_CALLS
    assert answers[-1] == b"OK"
    assert await client.command("GET", "key") == b"OK"
    await client.close()


async def test_calls_under_way_and_those_that_follow_end_when_the_connection_is_closed() -> None:
    client = Broken(0)
    waiting = [client.command("GET", "key") for _ in range(2 * PIPELINE_CALLS)]
    await asyncio.sleep(0)
    await client.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(each) for each in answers} == {"redis 127.0.0.1:1/0: the connection was closed"}
    for call in (client.check, lambda: client.blocking(1, "BZPOPMIN", "key", 1), lambda: client.asking("GET", "key")):
        with pytest.raises(StoreUnavailable, match="the connection was closed"):
            await call()
    with pytest.raises(StoreUnavailable, match="the connection was closed"):
        await client.command("GET", "key")
    await client.close()


async def test_a_closed_cluster_connection_opens_no_new_one() -> None:
    client = ClusterClient("redis+cluster://127.0.0.1:1")
    await client.close()
    for call in (client.check(), client.command("GET", "key"), client.blocking(1, "BZPOPMIN", "key", 1)):
        with pytest.raises(StoreUnavailable, match="the connection was closed"):
            await call
    assert client._nodes == {}
