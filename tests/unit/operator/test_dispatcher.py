"""The dispatcher: a Queue whose event comes at an awkward moment is looked at all the same."""

from __future__ import annotations

import asyncio
from typing import cast

from headrace_operator.api.names import QueueKey
from headrace_operator.dispatcher import Dispatcher
from headrace_operator.kube import Kube
from headrace_operator.recent import Recent
from headrace_operator.reconciler import Reconciler
from tests.unit.operator.api_in_memory import ApiInMemory

KEY = QueueKey("ns", "mail")


class Passes:
    """Finds the Queue gone at first; it is created again before that pass has ended."""

    def __init__(self) -> None:
        self.number = 0
        self.second = asyncio.Event()
        self.dispatcher: Dispatcher | None = None

    async def reconcile(self, key: QueueKey) -> float | None:
        assert self.dispatcher is not None
        self.number += 1
        if self.number == 1:
            self.dispatcher.add(key)
            return None
        self.second.set()
        return 1000.0


async def test_a_queue_that_is_created_again_while_its_removal_is_noted_is_looked_at() -> None:
    passes = Passes()
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(
        cast(Kube, ApiInMemory()), cast(Reconciler, passes), Recent(loop.time), clock=loop.time, concurrency=2
    )
    passes.dispatcher = dispatcher
    dispatcher.add(KEY)
    running = asyncio.create_task(dispatcher.run())
    try:
        async with asyncio.timeout(10):
            await passes.second.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
