"""Hears which queues of a store were woken."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from headrace.errors import HeadraceError
from headrace.stores.base import Store

LISTEN_SECONDS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0

log = logging.getLogger("headrace.operator.scaling")


async def listen(
    store: Store,
    heard: Callable[[Collection[str] | None], None],
    uniform: Callable[[float, float], float] = random.uniform,
) -> None:
    """Call ``heard`` with the queues that were woken, until cancelled.

    None: any of them may have been, for nobody listened before; so it begins, and so it goes on after an outage.
    """
    pause, cursor = FIRST_PAUSE, b""
    while True:
        try:
            if not cursor:
                cursor = await store.last_wake()
                heard(None)
            wakes = await store.wait_wakes(cursor, LISTEN_SECONDS)
        except HeadraceError as error:
            log.debug("wakes are not heard: %s", error)
            cursor = b""
            await asyncio.sleep(pause * uniform(0.75, 1.0))
            pause = min(LONGEST_PAUSE, pause * 2)
            continue
        pause, cursor = FIRST_PAUSE, wakes.cursor
        if wakes.queues:
            heard(wakes.queues)
