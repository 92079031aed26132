"""The event loop of a worker process: uvloop where it is installed, and no task but the worker's own can end it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger("headrace.worker")

T = TypeVar("T")


def run_to_its_end(
    work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Run ``work`` until it ends, and return its result or raise its error.

    asyncio passes the SystemExit or KeyboardInterrupt of any task on to whoever runs the loop, whose end would be the
    end of all handlers. One of a task that a handler has started (a ``sys.exit`` in a task group) is logged, and the
    loop goes on. ``loop_factory``: default `fastest_loop`.
    """
    with asyncio.Runner(loop_factory=loop_factory or fastest_loop()) as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done() or _by_a_person(error):
                    raise
                log.error(
                    "a task that a handler or a hook has started raised %s; the worker goes on",
                    type(error).__name__,
                    exc_info=error,
                )


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes an event loop of uvloop, None where that is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _by_a_person(error: BaseException) -> bool:
    """Whether it is a Ctrl-C that the worker does not handle itself, since it has not begun, or has ended."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
