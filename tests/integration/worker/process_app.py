"""The application that worker processes of the tests run: its handlers leave notes in a folder and wait for files."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from headrace import App, Context
from headrace.job import Job

FOLDER = Path(os.environ.get("TEST_FOLDER", "."))
WORKER = os.environ.get("TEST_WORKER", "?")

app = App()


def note(ctx: Context, what: str) -> None:
    line = f"{WORKER} {what} {ctx.job.id} {ctx.job.version}:{ctx.job.partition} {ctx.attempt}\n"
    # One write of a short line in append mode is never mixed with another process's.
    with (FOLDER / "notes").open("ab", buffering=0) as notes:
        notes.write(line.encode())


@app.on_lost_job
async def lost(job: Job, outcome: str) -> None:
    with (FOLDER / "lost").open("ab", buffering=0) as lines:
        lines.write(f"{WORKER} {outcome} {job.id} {job.expiries} {job.crashes}\n".encode())


@app.handler("note")
async def leave_a_note(ctx: Context, payload: Any) -> None:
    note(ctx, "ran")
    if payload:
        await asyncio.sleep(payload)


@app.handler("stamp")
async def leave_the_time(ctx: Context, payload: Any) -> None:
    """Note when it ran, by a clock that all processes of the machine share; fail as often as the payload says."""
    with (FOLDER / "stamps").open("ab", buffering=0) as stamps:
        stamps.write(f"{ctx.job.id} {time.monotonic()}\n".encode())
    if ctx.attempt < (payload or 0):
        raise RuntimeError("told to fail")


@app.handler("wait")
async def wait_for_a_file(ctx: Context, payload: Any) -> None:
    """End once the file go-<worker> is there: well, or with an error if fail-<worker> is there too."""
    note(ctx, "began")
    while not (FOLDER / f"go-{WORKER}").exists():
        await asyncio.sleep(0.01)
    note(ctx, "ended")
    if (FOLDER / f"fail-{WORKER}").exists():
        raise RuntimeError("told to fail")


@app.handler("deaf")
def ignore_everything(ctx: Context, payload: Any) -> None:
    note(ctx, "began")
    while True:
        time.sleep(1)


@app.handler("kill")
async def kill_the_worker(ctx: Context, payload: Any) -> None:
    note(ctx, "began")
    os.kill(os.getpid(), signal.SIGKILL)


@app.handler("devour")
async def take_memory(ctx: Context, payload: Any) -> None:
    """Take memory until the kernel says no, unless the file go-<worker> is there."""
    note(ctx, "began")
    taken = []
    while not (FOLDER / f"go-{WORKER}").exists():
        taken.append(os.urandom(8 << 20))
    note(ctx, "ended")
