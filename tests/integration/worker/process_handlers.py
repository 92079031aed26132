"""Handlers that run in processes of their own; what they find out stands in the file that a payload names."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace import App, BatchContext, CallNext, Context, Dead, Retry, RetryPolicy, Snooze, current_run

app = App()
once = RetryPolicy(max_retries=0)


@dataclass
class Told:
    path: str
    text: str = ""


def note(path: str, **facts: Any) -> None:
    """Add a line; one write in append mode is never mixed with another process's."""
    with Path(path).open("ab", buffering=0) as file:
        file.write(json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n")


def about(ctx: Context) -> dict[str, Any]:
    job = ctx.job
    return {
        "id": job.id,
        "headers": job.headers,
        "attempt": ctx.attempt,
        "place": [job.queue, job.version, job.partition],
        "left": ctx.remaining(),
        "current": current_run() is ctx,
    }


@app.handler("plain", process=True)
def plain(ctx: Context, payload: dict[str, Any]) -> None:
    note(payload["path"], payload=payload, **about(ctx))


@app.handler("async", process=True)
async def on_loop(ctx: Context, payload: Told) -> None:
    await asyncio.sleep(0)
    note(payload.path, payload=payload.text, **about(ctx))


@app.handler("raw", process=True)
def raw(ctx: Context, payload: bytes) -> None:
    note(payload.decode(), payload=repr(payload))


@app.handler("wait", process=True)
def wait_for_a_file(ctx: Context, payload: Told) -> None:
    """Run until the file ``<path>.go`` is there."""
    note(payload.path, what="began")
    while not Path(f"{payload.path}.go").exists():
        time.sleep(0.01)
    note(payload.path, what="ended")


@app.handler("busy", process=True, retry=once)
def busy(ctx: Context, payload: Told) -> None:
    """Run for ever, with a process of its own."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    note(payload.path, what="began", child=child.pid)
    while True:
        pass


@app.handler("die", process=True, retry=once)
def die(ctx: Context, payload: Told) -> None:
    note(payload.path, what="dies")
    if payload.text.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[payload.text])
        time.sleep(60)
    os._exit(int(payload.text))


@app.handler("fork", process=True, retry=once)
def fork_and_die(ctx: Context, payload: Told) -> None:
    """Leave a process behind that holds all that this one has open, and end."""
    if os.fork() == 0:
        note(payload.path, what="forked")
        time.sleep(3600)
    while not Path(payload.path).exists():
        time.sleep(0.01)
    os._exit(5)


@app.handler("raise", process=True, retry=once)
def raises(ctx: Context, payload: Any) -> Any:
    match payload:
        case "value":
            raise ValueError("no luck")
        case "local":

            class Local(Exception):
                def __reduce__(self) -> Any:
                    raise TypeError("cannot be pickled")

            raise Local("of a class that nobody else knows")
        case "exit":
            sys.exit(3)
        case "retry":
            raise Retry(after=3600, reason="the other side is busy")
        case "dead":
            raise Dead("there is no such address")
        case "snooze":
            raise Snooze(timedelta(hours=1))
        case "forgotten":
            return asyncio.sleep(0)
    return None


@app.handler("limited", process=True, retry=once)
def limited(ctx: Context, payload: Told) -> None:
    """Take more memory than the process may have."""
    size, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), size))
    try:
        bytearray(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


@app.handler("devour", process=True, retry=once)
def devour(ctx: Context, payload: Told) -> None:
    """Take memory until the kernel says no."""
    note(payload.path, what="began")
    taken = []
    while True:
        taken.append(os.urandom(8 << 20))


@app.handler("report", process=True, retry=once)
def report(ctx: Context, payload: Told) -> None:
    """Report more than is told, then wait for the file ``<path>.go``, then report once more and fail."""
    for page in range(10_000):
        ctx.progress(page, f"page {page}")
    note(payload.path, fence=ctx.fencing_token)
    ctx.heartbeat()
    while not Path(f"{payload.path}.go").exists():
        time.sleep(0.01)
    ctx.progress(10_000, "the end")
    raise ValueError("to be looked at")


@app.handler("log", process=True)
def logs(ctx: Context, payload: Any) -> None:
    log = logging.getLogger("shop.orders")
    log.info("order %s is placed", 7, extra={"customer": "ada", "items": [1, 2]})
    log.debug("not wanted")
    try:
        raise ValueError("no luck")
    except ValueError:
        log.exception("it went wrong")
    print("printed by a handler")


@app.handler("return", process=True)
def returns(ctx: Context, payload: str) -> Any:
    return {"json": {"n": [1, None]}, "bytes": b"\x00\xff", "object": object(), "large": "x" * 100_000}.get(payload)


@app.batch_handler("many", max_size=3, max_wait=0.1, process=True, retry=once)
async def many(ctx: BatchContext, payloads: list[Told]) -> list[Any]:
    """What each job asks for by its text; the whole of it may be told to die."""
    path = payloads[0].path
    note(path, ids=[job.id for job in ctx.jobs], texts=[told.text for told in payloads], left=ctx.remaining())
    if any(told.text == "die" for told in payloads):
        os._exit(3)
    outcomes = {"dead": Dead("gone"), "snooze": Snooze(timedelta(hours=1)), "fail": ValueError("no luck")}
    return [outcomes.get(told.text) for told in payloads]


spreading = App()
spreading.handler("plain", process=True)(plain)


@spreading.middleware
async def marks(ctx: Context, payload: Any, call_next: CallNext) -> Any:
    note(payload["path"], what="middleware", left=ctx.remaining())
    return await call_next(ctx, payload | {"marked": True})
