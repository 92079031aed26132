"""A registered handler, and what is refused when one is registered."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.arguments import NO_ARGUMENTS, Arguments, handler_arguments
from headrace.envelope import type_name
from headrace.errors import InvalidInput
from headrace.job import MAX_TIMEOUT_MS
from headrace.job_fields import is_finite, shortened
from headrace.location import locate
from headrace.retry import RetryFunction, RetryPolicy

MAX_BATCH_SIZE = 1000
MAX_BATCH_WAIT = 3600.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many jobs a batch handler is given at most, and how many seconds the first waits for others."""

    max_size: int
    max_wait: float


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler; ``timeout_ms`` and ``retry`` are None where it follows the queue or the worker.

    ``retry_by``: the function that decides about retries instead of a policy.
    """

    type: str
    call: Callable[..., Any]
    is_async: bool
    timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    arguments: Arguments = NO_ARGUMENTS
    process: bool = False
    batch: BatchLimits | None = None
    retry_by: RetryFunction | None = None

    @property
    def in_thread(self) -> bool:
        """Whether it is a plain function that runs in a thread, where nothing can interrupt it."""
        return not self.is_async and not self.process


def make_handler(
    type: str,
    function: Callable[..., Any],
    timeout: float | None,
    retry: RetryPolicy | RetryFunction | None,
    dependencies: Mapping[str, Any],
    names: Mapping[str, Any],
    *,
    process: bool = False,
    batch: BatchLimits | None = None,
) -> Handler:
    """Check everything and return the handler. Raises InvalidInput.

    ``dependencies``: the type of each dependency's value, by its name. ``names``: what annotations may name beside the
    globals of the function.
    """
    try:
        type_name(type)
    except InvalidInput as error:
        problem = f"{shortened(type)} is not a job type: it {error.problem}"
        raise InvalidInput("type", problem, error.remedy) from None
    if not callable(function):
        raise InvalidInput("handler", f"of {type!r} is not callable", "decorate a function")
    timeout_ms = _timeout_ms(type, timeout)
    policy, retry_by = _retry(type, retry)
    if batch is not None:
        _check_limits(type, batch)
    kind = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
        raise InvalidInput("handler", f"of {type!r} is a generator", "use a function without yield")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(kind)
    arguments = handler_arguments(repr(type), function, dependencies, names, batch=batch is not None)
    if process:
        locate(repr(type), function)
        if arguments.injected:
            raise InvalidInput(
                next(iter(arguments.injected)),
                f"of {type!r} is a dependency, which lives in the worker and cannot be given to another process",
                "let the function or its module make what it needs",
            )
    return Handler(type, function, is_async, timeout_ms, policy, arguments, process, batch, retry_by)


def _retry(type: str, retry: RetryPolicy | RetryFunction | None) -> tuple[RetryPolicy | None, RetryFunction | None]:
    if retry is None or isinstance(retry, RetryPolicy):
        return retry, None
    remedy = "give a RetryPolicy, or a function of the number of failed runs and the error that returns seconds or None"
    if isinstance(retry, builtins.type) or not callable(retry):
        raise InvalidInput("retry", f"of {type!r} is {retry!r}", remedy)
    if inspect.iscoroutinefunction(retry):
        raise InvalidInput("retry", f"of {type!r} is an async def; it decides at once", remedy)
    try:
        inspect.signature(retry).bind(1, Exception())
    except TypeError as error:
        raise InvalidInput(
            "retry", f"of {type!r} cannot be called as function(failed_runs, error) ({error})", remedy
        ) from None
    except ValueError:
        pass  # a builtin without a signature
    return None, retry


def _check_limits(type: str, batch: BatchLimits) -> None:
    size, wait = batch.max_size, batch.max_wait
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_BATCH_SIZE:
        raise InvalidInput("max_size", f"of {type!r} is {size!r}", f"give a whole number, 1 to {MAX_BATCH_SIZE}")
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_BATCH_WAIT:
        raise InvalidInput("max_wait", f"of {type!r} is {wait!r}", f"give 0 to {MAX_BATCH_WAIT:g} seconds")


def _timeout_ms(type: str, timeout: float | None) -> int | None:
    if timeout is None:
        return None
    if not is_finite(timeout):
        raise InvalidInput("timeout", f"of {type!r} is {timeout!r}", "give a number of seconds")
    timeout_ms = round(timeout * 1000)
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidInput("timeout", f"of {type!r} is {timeout} s", f"give 0.001 to {MAX_TIMEOUT_MS // 1000} s")
    return timeout_ms
