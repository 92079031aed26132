"""The application of B11's workers: every run is written down, with its time."""

from __future__ import annotations

import asyncio
import time
from functools import cache

import redis.asyncio as redis

from headrace.app import App
from headrace.connection import ConnectionSettings
from headrace.context import Context

JOB_SECONDS = 0.2
"""Every job takes so long."""
DONE = "bench:done"
"""List of runs: id, and milliseconds of the system-wide monotonic clock at its end."""

app = App()


@cache
def connection() -> redis.Redis:
    """A connection beside the store's."""
    return redis.Redis.from_url(ConnectionSettings().store_url())


@app.handler("timed")
async def timed(ctx: Context, payload: object) -> None:
    """Take a while, and note it down."""
    await asyncio.sleep(JOB_SECONDS)
    await connection().rpush(DONE, f"{ctx.job.id} {time.monotonic_ns() // 1_000_000}")
