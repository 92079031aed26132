"""How a handler is called: whatever is around it is put together once, when the worker starts.

From the outside in: middleware, the change of place (a thread), the check of the payload, the function itself with its
dependencies. Where none of it is registered, the function itself is what a run awaits.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import replace
from typing import Any, cast

from headrace.app import App, Middleware
from headrace.context import Context
from headrace.handler import Handler
from headrace.worker.leases import Execution

Call = Callable[[Any, Any], Any]


def composed(app: App, values: Mapping[str, Any], threads: Pool) -> dict[str, Handler]:
    """Return the handlers by type, each ``call`` to be awaited as ``call(execution, payload)``.

    ``values``: the dependencies by name.
    """
    return {type: _composed(handler, app.middlewares, values, threads) for type, handler in app.handlers.items()}


def _composed(handler: Handler, middlewares: Sequence[Middleware], values: Mapping[str, Any], threads: Pool) -> Handler:
    call = _bound(handler, values)
    if not handler.is_async:
        call = _in_thread(call, threads)
    for middleware in reversed(middlewares):
        call = _around(middleware, call)
    return replace(handler, call=call)


def _bound(handler: Handler, values: Mapping[str, Any]) -> Call:
    """Return the function with its payload checked and its dependencies given."""
    call, validate = handler.call, handler.arguments.validate
    given = {parameter: values[name] for parameter, name in handler.arguments.injected.items()}
    if validate is None:
        return (lambda ctx, payload: call(ctx, payload, **given)) if given else call
    return lambda ctx, payload: call(ctx, validate(payload), **given)


def _around(middleware: Middleware, call_next: Call) -> Call:
    return lambda ctx, payload: middleware(ctx, payload, call_next)


# ---- plain functions -------------------------------------------------------------------------------------------------


def _in_thread(call: Call, threads: Pool) -> Call:
    async def run(ctx: Execution, payload: Any) -> Any:
        context = contextvars.copy_context()
        ended = threads.submit(context.run, _call_plain, call, ctx, payload)
        while True:
            try:
                error, value = await asyncio.wrap_future(ended)
                break
            except asyncio.CancelledError:
                if ended.cancelled():  # it had not begun
                    raise
                # Code in a thread cannot be interrupted, and its slot stays taken until it ends. Only if it was not the
                # worker who cancelled does nobody wait for its result.
                if not ctx.withdrawn:
                    await _ended(ended)
                    raise
                ctx.unaware = True
        if error is not None:
            raise error
        return value

    return run


async def _ended(running: Any) -> None:
    while not running.done():
        try:
            await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            continue


def _call_plain(call: Call, ctx: Context, payload: Any) -> tuple[BaseException | None, Any]:
    """Run a plain handler in its thread; an error is returned, since a future cannot hold every kind of it."""
    try:
        returned = call(ctx, payload)
    except BaseException as error:
        return error, None
    if inspect.iscoroutine(returned):
        cast(Coroutine[Any, Any, Any], returned).close()
        wrong = "the handler returned a coroutine and is not an async def; register the async def itself"
        return TypeError(wrong), None
    return None, returned
