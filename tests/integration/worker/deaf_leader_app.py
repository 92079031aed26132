"""The application of a worker whose work as leader cannot be ended."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

from headrace import App, Context, LeaderTerm

FOLDER = Path(os.environ.get("TEST_FOLDER", "."))

app = App()


@app.handler("job")
async def job(ctx: Context, payload: object) -> None: ...


@app.on_elected
def ignores_everything(term: LeaderTerm) -> None:
    threading.Event().wait()


@app.on_elected
async def resigns(term: LeaderTerm) -> None:
    while not (FOLDER / "resign").exists():
        await asyncio.sleep(0.01)
    raise RuntimeError("cannot go on")
