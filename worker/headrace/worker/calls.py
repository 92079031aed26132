"""How a handler is called: whatever is around it is put together once, when the worker starts.

From the outside in: middleware, the change of place (thread or process), the check of the payload, the function itself
with its dependencies. Where none of it is registered, the function itself is what a run awaits.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import dataclass, replace
from typing import Any, cast

from headrace.app import App, Middleware
from headrace.arguments import Validate
from headrace.context import BatchContext, Context
from headrace.errors import ProcessFailed
from headrace.handler import Handler
from headrace.worker.batches import check_count, fitting
from headrace.worker.leases import Execution
from headrace.worker.processes import ProcessPool
from headrace.worker.processes.messages import packed_job, packed_value
from headrace.worker.processes.process import DiedIdle
from headrace.worker.unawaited import unawaited

Call = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Places:
    """Where handlers run beside the event loop.

    ``suspend`` and ``begin`` stop the clock of a run while a process is started for it, and start it.
    """

    threads: Pool
    processes: ProcessPool | None
    suspend: Callable[[Execution], None]
    begin: Callable[[Execution], None]


def composed(app: App, values: Mapping[str, Any], places: Places) -> dict[str, Handler]:
    """Return the handlers by type, each ``call`` to be awaited as ``call(execution, payload)``.

    ``values``: the dependencies by name.
    """
    return {type: replace(each, call=_composed(each, app, values, places)) for type, each in app.handlers.items()}


def _composed(handler: Handler, app: App, values: Mapping[str, Any], places: Places) -> Call:
    processes = places.processes
    if handler.process and processes is not None:
        call = _in_process(processes, processes.numbers[handler.type])
    elif handler.is_async:
        call = _bound(handler, values)
    else:
        call = _in_thread(_bound(handler, values), places.threads)
    for middleware in reversed(app.middlewares):
        call = _around(middleware, call)
    return _with_process(call, processes, places) if handler.process and processes is not None else call


def _bound(handler: Handler, values: Mapping[str, Any]) -> Call:
    """Return the function with its payload checked and its dependencies given."""
    call, validate = handler.call, handler.arguments.validate
    given = {parameter: values[name] for parameter, name in handler.arguments.injected.items()}
    if handler.batch is not None:
        return _bound_batch(handler, validate, given)
    if validate is None:
        return (lambda ctx, payload: call(ctx, payload, **given)) if given else call
    return lambda ctx, payload: call(ctx, validate(payload), **given)


def _bound_batch(handler: Handler, validate: Validate | None, given: Mapping[str, Any]) -> Call:
    def run(ctx: BatchContext, payloads: Sequence[Any]) -> Any:
        if fit := fitting(ctx, payloads, validate):
            return handler.call(ctx, fit, **given)
        return _nothing() if handler.is_async else None

    return run


async def _nothing() -> None:
    """Be awaited in the place of a handler that has nothing to do."""


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
    return unawaited(returned), returned


# ---- handlers in processes -------------------------------------------------------------------------------------------

MAX_PROCESSES = 3
"""Processes that may die one after the other before they have taken one call."""


def _with_process(call: Call, processes: ProcessPool, places: Places) -> Call:
    """Have a process first, so that the time which it takes to start is not the run's."""

    async def run(ctx: Execution, payload: Any) -> Any:
        if not processes.has_idle:
            places.suspend(ctx)
        ctx.process = await processes.acquire()
        try:
            places.begin(ctx)
            return await call(ctx, payload)
        finally:
            processes.release(ctx.process)

    return run


def _in_process(processes: ProcessPool, number: int) -> Call:
    async def run(ctx: Execution, payload: Any) -> Any:
        runs = cast(Sequence[Execution], ctx.runs)
        payloads = payload if isinstance(ctx, BatchContext) else [payload]
        check_count(ctx, payloads)
        given = all(passed is run.job.payload for passed, run in zip(payloads, runs, strict=True))
        changed = None if given else [packed_value(passed) for passed in payloads]
        jobs = [packed_job(run.batch.ref, run.claimed, run.fencing_token) for run in runs]
        for _ in range(MAX_PROCESSES):
            try:
                return await ctx.process.call(number, jobs, changed, ctx)
            except DiedIdle:
                processes.release(ctx.process)
                ctx.process = await processes.acquire()
        raise ProcessFailed("ended before it took the call, several times")

    return run
