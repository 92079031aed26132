"""A coroutine of the real thing, let go one call of its store at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from headrace.errors import HeadraceError
from headrace.stores import base
from tests.simulation.comparison import Request, essence

PATIENCE = 60.0


class Stepped:
    """A sequence of steps whose every call of the store waits for its turn, in whatever order.

    What changes nothing is not a step of the model: what failovers need, of which there is none here, and `counts`,
    unless it is ``counted``.
    """

    def __init__(
        self, store: base.Store, sequence: Callable[[base.Store], Coroutine[Any, Any, Any]], *, counted: bool
    ) -> None:
        self._store = store
        self._passed = ("replicated", "successor", *(() if counted else ("counts",)))
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._waiting: list[Request] = []
        self._task = asyncio.ensure_future(sequence(cast(base.Store, self)))

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method in self._passed:
            passed: Callable[..., Awaitable[Any]] = getattr(self._store, method)
            return passed

        async def call(*arguments: Any, **options: Any) -> Any:
            request = Request(method, arguments, options, asyncio.get_running_loop().create_future())
            self._requests.put_nowait(request)
            return await request.reply

        return call

    async def next(self, expected: tuple[object, ...]) -> Request:
        """Return the expected call among those that it wants to make now; fail if it does not want it."""
        while True:
            for number, request in enumerate(self._waiting):
                if (request.method, *essence(request.arguments)) == expected:
                    return self._waiting.pop(number)
            wanted = [(request.method, *essence(request.arguments)) for request in self._waiting]
            assert self._requests.qsize() or not wanted, f"it wants {wanted}, the model {expected}"
            further = await self._wanted()
            assert further is not None, f"the sequence ended before the model's: {self._task}"
            self._waiting.append(further)

    async def _wanted(self) -> Request | None:
        wanted = asyncio.ensure_future(self._requests.get())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([wanted, self._task], return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            return wanted.result()
        wanted.cancel()
        return None

    async def ended(self) -> None:
        """Wait for its end, without another call; an error of Headrace is an end like any other."""
        request = self._waiting[0] if self._waiting else await self._wanted()
        assert request is None, f"the model's sequence ended before {request}"
        error = self._task.exception()
        if error is not None and not isinstance(error, HeadraceError):
            raise error

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
