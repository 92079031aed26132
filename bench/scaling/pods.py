"""What the jobs of our worker Pods do: they say in Redis when they began, by the clock that all processes share."""

from __future__ import annotations

import asyncio
import time
from functools import cache
from typing import Any

import redis
import redis.asyncio

from headrace.app import App
from headrace.connection import ConnectionSettings
from headrace.context import Context

LOADED, RAN = "bench:loaded:", "bench:ran:"
"""Lists, by queue: when the program of each Pod had loaded, and when each job began."""
STARTS, ENDS, BURNED = "bench:starts:", "bench:ends:", "bench:burned:"
"""Hashes, by queue: how often each job began and ended, and how many attempts and leases it had lost by then."""

app = App()


def say_loaded(url: str, name: str) -> None:
    """Write down that the program of a Pod has been loaded."""
    at = time.monotonic()
    with redis.Redis.from_url(url) as client:
        client.rpush(LOADED + name, at)


@cache
def _client() -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(ConnectionSettings().store_url())


@app.handler("stamp")
async def stamp(ctx: Context, payload: Any) -> None:
    """Write down when it began."""
    await _client().rpush(RAN + ctx.job.queue, time.monotonic())


@app.handler("count")
async def count(ctx: Context, seconds: float) -> None:
    """Run for ``seconds``, and count beginning, end and what had been lost until then."""
    job, client = ctx.job, _client()
    await client.hincrby(STARTS + job.queue, job.id, 1)
    await asyncio.sleep(seconds)
    async with client.pipeline(transaction=True) as pipeline:
        pipeline.hincrby(ENDS + job.queue, job.id, 1)
        pipeline.hincrby(BURNED + job.queue, job.id, job.attempt + job.expiries)
        await pipeline.execute()
