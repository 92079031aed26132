"""Lets long work on a store leave it time for others."""

from __future__ import annotations

import asyncio
import time

from headrace.errors import InvalidInput
from headrace.stores.base import Pause

DEFAULT_LOAD = 0.25


def paced(load: float) -> Pause:
    """Return a pause after which the store has been kept busy for at most ``load`` of the time since the last one."""
    if not 0 < load <= 1:
        raise InvalidInput("load", f"is {load}", "give a share of the time above 0 and at most 1")
    began = time.monotonic()

    async def pause() -> None:
        nonlocal began
        await asyncio.sleep((time.monotonic() - began) * (1 / load - 1))
        began = time.monotonic()

    return pause
