"""Actors of a scenario: whoever uses a store through a `Gate` can be stopped before a step, killed, or lose a reply.

A step is one call of the store, named ``method`` or ``method version:partition``, for example ``write_topology`` or
``mark 1:0``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from headrace.errors import StoreUnavailable
from headrace.lifecycle import complete, configure, promote
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE

Actor = Callable[[Store], Awaitable[Topology]]

LIMIT = 60.0


LOOKS = {"replicated", "successor"}
"""Calls that change nothing and are no steps here."""


class Killed(BaseException):
    """The actor died before its next step. Not an Exception: nothing that an actor does may catch it."""


class Gate:
    """Passes an actor's calls on to a store, step by step. Hand ``store`` of it to the actor."""

    def __init__(self, store: Store) -> None:
        self._inner = store
        self.steps: list[str] = []
        self.kill_after: int | None = None
        self._stop: str | None = None
        self._all_that_follow = False
        self._lose: set[str] = set()
        self.lost = asyncio.Event()
        self._stopped = asyncio.Event()
        self._go = asyncio.Event()

    @property
    def store(self) -> Store:
        return cast(Store, self)

    def stop_before(self, step: str, *, all_that_follow: bool = False) -> None:
        """Stop the actor before its next step of that name.

        ``all_that_follow``: also before those that it asks for at the same time, as if it slept.
        """
        self._stop = step
        self._all_that_follow = all_that_follow
        self._stopped.clear()
        self._go.clear()

    async def stopped(self) -> None:
        """Wait until the actor stands before that step."""
        async with asyncio.timeout(LIMIT):
            await self._stopped.wait()

    def go_on(self) -> None:
        self._go.set()

    def lose_reply(self, step: str) -> None:
        """Apply the next step of that name, and tell the actor that the store gave no answer."""
        self._lose.add(step)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        call: Callable[..., Awaitable[Any]] = getattr(self._inner, method)
        if method in LOOKS:
            return call

        async def step(*args: Any, **options: Any) -> Any:
            place = args[0].label if args and isinstance(args[0], PartitionRef) else ""
            name = f"{method} {place}".rstrip()
            if self.kill_after is not None and len(self.steps) >= self.kill_after:
                raise Killed(name)
            stops = self._stop == name
            if stops:
                self._stop = None
                self._stopped.set()
            if stops or (self._all_that_follow and self._stopped.is_set()):
                async with asyncio.timeout(LIMIT):
                    await self._go.wait()
            self.steps.append(name)
            reply = await call(*args, **options)
            if name in self._lose:
                self._lose.discard(name)
                self.lost.set()
                raise StoreUnavailable("the reply was lost")
            return reply

        return step


@asynccontextmanager
async def standing_before(
    gate: Gate, step: str, actor: Callable[[Store], Awaitable[Any]]
) -> AsyncIterator[asyncio.Future[Any]]:
    """Run ``actor`` until it stands before ``step``; within the block it stands there, afterwards it goes on.

    The future yields what the actor returns; it is done when the block has been left. An error of the actor is left
    in the future.
    """
    gate.stop_before(step, all_that_follow=True)
    task = asyncio.ensure_future(actor(gate.store))
    try:
        await gate.stopped()
        yield task
        gate.go_on()
        async with asyncio.timeout(LIMIT):
            await asyncio.wait([task])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def killed_after(store: Store, steps: int, actor: Callable[[Store], Awaitable[Any]]) -> list[str] | None:
    """Run ``actor`` and kill it after so many steps; the steps it did, None if it ended before."""
    gate = Gate(store)
    gate.kill_after = steps
    try:
        await actor(gate.store)
    except Killed:
        return gate.steps
    return None


def promoting(version: int, partitions: int, queue: str = QUEUE) -> Actor:
    return lambda through: promote(through, queue, version, partitions)


def completing(version: int, queue: str = QUEUE, *, after_ms: int = 0) -> Actor:
    """Complete a version; by default without regard for clients that may retry, where a scenario has none."""
    return lambda through: complete(through, queue, version, client_retry_ms=after_ms)


def configuring(settings: QueueSettings, queue: str = QUEUE) -> Actor:
    return lambda through: configure(through, queue, settings)


PROMOTION = [
    "read_topology",
    "install 2:0",
    "install 2:1",
    "install 2:2",
    "write_topology",
    "settle 2:0",
    "settle 2:1",
    "settle 2:2",
    "mark 1:0",
]
"""The steps of promoting version 2 with 3 partitions over version 1 with one."""

COMPLETION = [
    "read_topology",
    "mark 1:0",
    "mark 1:1",
    "close_partition 1:0",
    "close_partition 1:1",
    "write_topology",
    "remove 1:0",
    "remove 1:1",
    "write_topology",
]
"""The steps of completing version 1 with 2 partitions."""
