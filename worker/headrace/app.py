"""The application object: handlers, registered by job type."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

from headrace.context import Context
from headrace.errors import InvalidInput
from headrace.job import MAX_TIMEOUT_MS
from headrace.retry import RetryPolicy

HandlerFunction = Callable[[Context, Any], Coroutine[Any, Any, object]] | Callable[[Context, Any], object]
F = TypeVar("F", bound=HandlerFunction)


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler; ``timeout_ms`` and ``retry`` are None where it follows the queue or the worker."""

    type: str
    call: Callable[[Context, Any], Any]
    is_async: bool
    timeout_ms: int | None = None
    retry: RetryPolicy | None = None


class App:
    """Handlers by job type.

    Registered like this::

        app = App()

        @app.handler("send-email")
        async def send_email(ctx, payload): ...

    A handler is an ``async def``, which runs in the worker's event loop, or a plain function, which runs in a thread.
    Register everything before a worker starts: afterwards it is refused.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._lock = Lock()
        self._frozen = False

    def handler(self, type: str, *, timeout: float | None = None, retry: RetryPolicy | None = None) -> Callable[[F], F]:
        """Register the decorated function, called as ``function(ctx, payload)``, for jobs of ``type``.

        ``timeout`` (seconds) and ``retry`` are defaults for jobs without a value of their own in queues without one.
        Raises InvalidInput: a second handler of the type, a function that cannot be called so, a value out of range, or
        a worker that runs already.
        """
        if callable(type):
            name = getattr(type, "__name__", "it")
            raise InvalidInput(
                "type",
                f"is missing: {name} is decorated without it",
                f'write @app.handler("{name}"), with the job type',
            )

        def register(function: F) -> F:
            self._register(type, function, timeout, retry)
            return function

        return register

    def freeze(self) -> Mapping[str, Handler]:
        """Refuse further handlers and return those registered, by type. Workers do this when they start."""
        with self._lock:
            self._frozen = True
        return self.handlers

    def wrapped(self, change: Callable[[Handler], Handler]) -> App:
        """Return a new App with the handlers registered so far, each as ``change`` gives it; this one stays."""
        other = App()
        other._handlers = {type: change(handler) for type, handler in self._handlers.items()}
        return other

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The registered handlers by type, read-only."""
        return MappingProxyType(self._handlers)

    def _register(self, type: str, function: HandlerFunction, timeout: float | None, retry: RetryPolicy | None) -> None:
        if not isinstance(type, str) or not 1 <= len(type.encode()) <= 255:
            raise InvalidInput("type", f"{type!r} is not a job type", "give 1 to 255 bytes of text")
        if not callable(function):
            raise InvalidInput("handler", f"of {type!r} is not callable", "decorate a function")
        _check_signature(type, function)
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
            raise InvalidInput("timeout", f"of {type!r} is {timeout!r}", "give a number of seconds")
        timeout_ms = None if timeout is None else round(timeout * 1000)
        if timeout_ms is not None and not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidInput("timeout", f"of {type!r} is {timeout} s", f"give 0.001 to {MAX_TIMEOUT_MS // 1000} s")
        kind = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
            raise InvalidInput("handler", f"of {type!r} is a generator", "use a function without yield")
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(kind)
        with self._lock:
            if self._frozen:
                raise InvalidInput(
                    "type", f"{type!r} is registered after a worker has started", "register it before the worker starts"
                )
            if type in self._handlers:
                raise InvalidInput("type", f"{type!r} has a handler already", "register one handler for each type")
            self._handlers[type] = Handler(type, function, is_async, timeout_ms, retry)


def _check_signature(type: str, function: HandlerFunction) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some builtins have none
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise InvalidInput(
            "handler", f"of {type!r} cannot be called as function(ctx, payload) ({error})", "let it take these two"
        ) from None


def load_app(name: str) -> App:
    """Import ``package.module:attribute`` and return the App there.

    Raises InvalidInput if the text, the module or the attribute is not right; errors inside the module come through.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidInput("app", f"{name!r} is not module:attribute", "give for example emails.handlers:app")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidInput(
            "app", f"module {error.name!r} is not found", "start in the folder that holds it, or set PYTHONPATH"
        ) from None
    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        raise InvalidInput("app", f"{name!r} is not a headrace.App", f"assign one: {attribute} = App()")
    return found
