"""What the workers of the tests run: each job counts its runs, outside the queue's keys."""

from __future__ import annotations

import asyncio
import os
from functools import cache

import redis.asyncio as redis

from headrace.app import App
from headrace.connection import ConnectionSettings
from headrace.context import Context
from headrace.control import Dead

app = App()


_connected = cache(redis.Redis.from_url)


def connection() -> redis.Redis:
    """A client for the URL as it is now: the file that holds it may change."""
    client: redis.Redis = _connected(ConnectionSettings().store_url())
    return client


later_app = App()
"""Knows one type more than `app`: what is deployed when jobs of that type have come too early."""


async def started(ctx: Context) -> None:
    """Note a run that begins, if it ends or not."""
    await connection().incr(f"starts:{ctx.job.queue}")


@later_app.handler("later")
@later_app.handler("count")
@app.handler("count")
async def count(ctx: Context, payload: object) -> None:
    await connection().hincrby(f"runs:{ctx.job.queue}", f"{ctx.job.id}@v{ctx.job.version}", 1)


@app.handler("nothing")
async def nothing(ctx: Context, payload: object) -> None:
    """Leaves no trace: for a Redis that lets only the queue's keys be written."""


@app.handler("gated")
async def gated(ctx: Context, payload: object) -> None:
    """Runs until the test opens the gate of the queue."""
    while not await connection().exists(f"gate:{ctx.job.queue}"):
        await asyncio.sleep(0.05)
    await count(ctx, payload)


@app.handler("nap")
async def nap(ctx: Context, payload: object) -> None:
    """Runs for a third of a second."""
    await started(ctx)
    await asyncio.sleep(0.35)
    await count(ctx, payload)


@app.handler("held")
async def held(ctx: Context, payload: object) -> None:
    """Runs until the test lets this very job end."""
    await started(ctx)
    while not await connection().exists(f"gate:{ctx.job.queue}:{ctx.job.id}"):
        await asyncio.sleep(0.05)
    await count(ctx, payload)


@app.handler("led")
async def led(ctx: Context, payload: object) -> None:
    """Notes that it begins: under which epoch this process leads, and which process it is. May wait for the gate."""
    note = f"{ctx.leader_epoch()} {os.environ['POD_NAME']}/{os.getpid()} {ctx.job.id}"
    await connection().rpush(f"led:{ctx.job.queue}", note)
    if payload == "gated":
        await gated(ctx, None)
    else:
        await count(ctx, None)


@app.handler("poison")
async def poison(ctx: Context, payload: object) -> None:
    raise Dead("as asked")
