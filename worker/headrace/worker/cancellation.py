"""Ends tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

ASK_AGAIN_SECONDS = 0.1


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all have ended, whatever they end with.

    Asked again while one goes on: `asyncio.wait_for` of Python 3.11, which the Redis client uses to send, drops a
    cancellation that meets the end of what it waits for, and the task would go on for ever.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=ASK_AGAIN_SECONDS)
