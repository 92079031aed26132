"""Keeps the loops of a worker running: a failure that nobody foresaw is logged, and the loop starts again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.worker.outage import Backoff

log = logging.getLogger("headrace.worker")


async def keep_going(what: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``run`` until it returns or this task is cancelled; after any other end, start it again with backoff."""
    backoff = Backoff()
    task = asyncio.current_task()
    while True:
        try:
            await run()
            return
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            log.exception("%s was cancelled by nobody here and is started again", what)
        except Exception:
            log.exception("%s failed unexpectedly and is started again", what)
        await asyncio.sleep(backoff.next())
