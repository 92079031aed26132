"""Calls the application's functions for the begin and the end of a term."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable


async def call_hook(hook: Callable[..., object], *given: object) -> None:
    """Call ``hook``: a coroutine function here, a plain function in a thread, so that it cannot block the worker.

    Cancelled, it waits for that thread nevertheless: others may act only when nobody does here.
    """
    kind = hook if inspect.isroutine(hook) else getattr(hook, "__call__", hook)  # noqa: B004
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(kind):
        await hook(*given)  # type: ignore[misc]
        return
    thread = asyncio.create_task(_in_thread(lambda: hook(*given)))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise


async def _in_thread(call: Callable[[], object]) -> None:
    """Run ``call`` in a thread that does not keep the process alive."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def run() -> None:
        failure: BaseException | None = None
        try:
            call()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, failure)
        except RuntimeError:  # the worker has ended meanwhile
            return

    threading.Thread(target=run, name="leader-hook", daemon=True).start()
    await ended
