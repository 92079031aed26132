"""Virtual time: one heap of events, and an event loop per pod whose clock runs at a rate of its own.

The electors run unchanged on these loops. A paused pod handles its events when it goes on, a crashed one never.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

Step = Callable[[], None]


class Handle:
    """A callback that is due at some time."""

    __slots__ = ("args", "callback", "cancelled", "context", "loop")

    def __init__(
        self,
        loop: PodLoop,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self.loop, self.callback, self.args = loop, callback, args
        self.context = context or copy_context()
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """All events of one run, in order of time and then of their making."""

    def __init__(self) -> None:
        self.now = 0.0
        self.after: Callable[[PodLoop], None] = lambda loop: None
        self._heap: list[tuple[float, int, Handle | Step]] = []
        self._ready: deque[Handle] = deque()
        self._count = 0

    def at(self, time: float, event: Handle | Step) -> None:
        """Let something happen at a time, now at the earliest."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, event))

    def soon(self, handle: Handle) -> None:
        """Let a pod's callback run now, behind those that wait already."""
        self._ready.append(handle)

    def run(self, until: float) -> None:
        """Go on to a time."""
        while True:
            if self._ready:
                self._handle(self._ready.popleft())
                continue
            if not self._heap or self._heap[0][0] > until:
                break
            self.now, _, event = heapq.heappop(self._heap)
            if isinstance(event, Handle):
                self._handle(event)
            else:
                event()
        self.now = until

    def _handle(self, handle: Handle) -> None:
        loop = handle.loop
        if handle.cancelled or loop.crashed:
            return
        if loop.paused_until > self.now:
            self.at(loop.paused_until, handle)
            return
        asyncio._set_running_loop(loop)
        try:
            handle.context.run(handle.callback, *handle.args)
        finally:
            asyncio._set_running_loop(None)
        self.after(loop)


class PodLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. ``rate``: seconds of its clock per second of the world."""

    def __init__(self, world: World, *, rate: float, offset: float) -> None:
        self.world, self.rate, self.offset = world, rate, offset
        self.paused_until = 0.0
        self.crashed = False
        self.errors: list[dict[str, Any]] = []
        self.wall_offset = 0.0

    def wall(self) -> int:
        """What this process takes for the wall time, in microseconds."""
        return int((self.world.now + self.wall_offset) * 1e6)

    def time(self) -> float:
        return self.world.now * self.rate + self.offset

    def world_time(self, local: float) -> float:
        """The world's time at which this clock shows ``local``."""
        return (local - self.offset) / self.rate

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = Handle(self, callback, args, context)
        self.world.soon(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = Handle(self, callback, args, context)
        self.world.at(self.world.now + delay / self.rate, handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **kwargs: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.crashed:
            self.errors.append(context)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine from outside."""
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(coroutine)
        finally:
            asyncio._set_running_loop(None)
        # A crash leaves it pending for ever, on purpose.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task
