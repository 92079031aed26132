"""The application object: handlers by job type, what is wrapped around them, and what they share."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar, overload

from headrace.context import Context
from headrace.dependencies import Dependency, constant, make_dependency
from headrace.errors import InvalidInput
from headrace.handler import BatchLimits, Handler, make_handler
from headrace.job import Job
from headrace.leader_term import LeaderTerm
from headrace.retry import RetryFunction, RetryPolicy
from headrace.schedules.rules import Repeated, Skipped
from headrace.schedules.schedule import CatchUp, Schedule, make_rule

F = TypeVar("F", bound=Callable[..., Any])
CallNext = Callable[[Context, Any], Awaitable[Any]]
ElectedHook = Callable[[LeaderTerm], object]
ResignedHook = Callable[[LeaderTerm, str], object]
LostJobHook = Callable[[Job, Literal["recovered", "poisoned"]], object]


class Middleware(Protocol):
    """Something around every handler: ``async def middleware(ctx, payload, call_next)``."""

    def __call__(self, ctx: Context, payload: Any, call_next: CallNext, /) -> Awaitable[Any]:
        """Do something, and usually ``return await call_next(ctx, payload)``."""
        ...


M = TypeVar("M", bound=Middleware)
E = TypeVar("E", bound=ElectedHook)
R = TypeVar("R", bound=ResignedHook)
L = TypeVar("L", bound=LostJobHook)


class App:
    """Handlers by job type.

    Registered like this::

        app = App()

        @app.handler("send-email")
        async def send_email(ctx, payload): ...

    A handler is an ``async def``, which runs in the worker's event loop, or a plain function, which runs in a thread;
    or one of either kind in a process of its own. Register everything before a worker starts: afterwards it is refused.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._middleware: list[Middleware] = []
        self._dependencies: dict[str, Dependency] = {}
        self._elected: list[ElectedHook] = []
        self._resigned: list[ResignedHook] = []
        self._lost_job: list[LostJobHook] = []
        self._schedules: dict[str, Schedule] = {}
        self._lock = Lock()
        self._frozen = False

    def handler(
        self,
        type: str,
        *,
        timeout: float | None = None,
        retry: RetryPolicy | RetryFunction | None = None,
        process: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function, called as ``function(ctx, payload)``, for jobs of ``type``.

        An annotation of ``payload`` is checked before each call, and what it makes of the payload is passed on: a
        pydantic model, a dataclass or any other type that pydantic knows. A job whose payload does not fit is dead at
        once. Further parameters are dependencies (see `dependency`), found by name or else by type.

        ``timeout`` (seconds) and ``retry`` are defaults for jobs without a value of their own in queues without one.
        ``retry`` may be a function ``(failed_runs, error)`` that returns after how many seconds a job runs again, or
        None for a dead one (`headrace.retry.RetryFunction`); it gives way to a job's own policy only.
        ``process``: the function, async or not, runs in a process of its own, which is killed at the time-out; its
        module is imported there, and it takes no dependencies.

        Raises InvalidInput: a second handler of the type, a function that cannot be called so, an annotation that
        cannot be checked, a value out of range, or a worker that runs already.
        """
        if callable(type):
            raise InvalidInput(
                "type",
                f"is missing: {_named(type)} is decorated without it",
                f'write @app.handler("{_named(type)}"), with the job type',
            )

        return lambda function: self._register(
            type, function, timeout, retry, sys._getframe(1).f_locals, process=process, batch=None
        )

    def batch_handler(
        self,
        type: str,
        *,
        max_size: int = 100,
        max_wait: float = 0.1,
        timeout: float | None = None,
        retry: RetryPolicy | RetryFunction | None = None,
        process: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function, called as ``function(ctx, payloads)``, for jobs of ``type``, many at a time.

        ``payloads`` is a list, annotated ``list[...]`` where its items are to be checked; ``ctx`` is a `BatchContext`.
        At most ``max_size`` (1..1000) jobs of one queue are gathered, for at most ``max_wait`` seconds after the first.
        The function returns None if all have succeeded, or a list with a result for each: one that is an exception,
        also `Retry`, `Dead` or `Snooze`, is what that job would have raised alone. What it raises is raised for all.

        A batch takes one slot and has the shortest time-out of its jobs. The other arguments, and errors, are those of
        `handler`.
        """
        limits = BatchLimits(max_size, max_wait)
        return lambda function: self._register(
            type, function, timeout, retry, sys._getframe(1).f_locals, process=process, batch=limits
        )

    def _register(
        self,
        type: str,
        function: F,
        timeout: float | None,
        retry: RetryPolicy | RetryFunction | None,
        names: Mapping[str, Any],
        *,
        process: bool,
        batch: BatchLimits | None,
    ) -> F:
        types = {each.name: each.type for each in self._dependencies.values()}
        handler = make_handler(type, function, timeout, retry, types, names, process=process, batch=batch)
        with self._open("type", type):
            if type in self._handlers:
                raise InvalidInput("type", f"{type!r} has a handler already", "register one handler for each type")
            self._handlers[type] = handler
        return function

    def middleware(self, function: M) -> M:
        """Register ``async def function(ctx, payload, call_next)`` around the run of every handler.

        It ends with ``return await call_next(ctx, payload)``, or does not call the handler at all; the first one that
        is registered is the outermost. It sees the payload as it was enqueued, before it is checked, and the error of a
        run; an error of its own is one of that run only. It runs in the worker's event loop, whatever the handler is.
        Raises InvalidInput.
        """
        kind = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(kind)):
            raise InvalidInput("middleware", f"{_named(function)} is not an async def", "write async def")
        _takes(function, "middleware", "ctx", "payload", "call_next")
        with self._open("middleware", _named(function)):
            self._middleware.append(function)
        return function

    @overload
    def dependency(self, name: F) -> F: ...

    @overload
    def dependency(self, name: str) -> Callable[[F], F]: ...

    def dependency(self, name: Any) -> Any:
        """Register the decorated function as what makes a dependency, named like it or ``name``.

        A worker makes each dependency once, before it takes jobs, in the order of registration, and closes them in
        reverse after the last handler has ended. A generator (async or not) yields the value and then closes it;
        another function (async or not) returns it. Its parameters are dependencies that were registered before it. All
        of it happens in the worker's event loop. Raises InvalidInput.
        """
        if not isinstance(name, str):
            return self._register_dependency(getattr(name, "__name__", ""), name, sys._getframe(1).f_locals)
        return lambda function: self._register_dependency(name, function, sys._getframe(1).f_locals)

    def _register_dependency(self, name: str, function: F, names: Mapping[str, Any]) -> F:
        made = make_dependency(name, function, self._dependencies, names)
        with self._open("dependency", name):
            if name in self._dependencies:
                raise InvalidInput("dependency", f"{name!r} is registered already", "choose another name")
            self._dependencies[name] = made
        return function

    def on_elected(self, function: E) -> E:
        """Register the decorated function, called as ``function(term)`` once for each term of a worker as leader.

        An ``async def`` runs beside the leader's duties and is cancelled when the term ends; a plain function runs in a
        thread, where it should ask ``term.is_leader()`` now and then. Returning is fine; raising resigns. Raises
        InvalidInput.
        """
        _takes(function, "on_elected", "term")
        with self._open("on_elected", _named(function)):
            self._elected.append(function)
        return function

    def on_resigned(self, function: R) -> R:
        """Register the decorated function, called as ``function(term, reason)`` once after each term that was told.

        ``reason``: see `headrace.election.Reason`. Others take over when it has returned, or after a second. Raises
        InvalidInput.
        """
        _takes(function, "on_resigned", "term", "reason")
        with self._open("on_resigned", _named(function)):
            self._resigned.append(function)
        return function

    def on_lost_job(self, function: L) -> L:
        """Register the decorated function, called as ``function(job, outcome)`` for jobs whose worker was lost.

        ``outcome`` is "recovered" where the job is about to run again, and "poisoned" where it was lost once too often,
        running alone, and is dead now: it seems to kill its worker. It is called, async or not, in the event loop of
        the worker that finds out, beside the handlers; a job may be told twice. An error of it is logged. Raises
        InvalidInput.
        """
        _takes(function, "on_lost_job", "job", "outcome")
        with self._open("on_lost_job", _named(function)):
            self._lost_job.append(function)
        return function

    def schedule(
        self,
        name: str,
        type: str,
        *,
        queue: str,
        cron: str | None = None,
        timezone: str | None = None,
        every: timedelta | float | None = None,
        payload: Any = None,
        catch_up: CatchUp = "one",
        max_catch_up: int = 100,
        skipped: Skipped | None = None,
        repeated: Repeated | None = None,
        max_retries: int | None = None,
        timeout: timedelta | float | None = None,
        priority: Literal["high", "default", "low"] | int | None = None,
    ) -> None:
        """Enqueue a job of ``type`` again and again: by whichever worker leads ``queue``, once for each time.

        ``cron``: minute, hour, day of the month, month, day of the week, on the clocks of ``timezone`` (default UTC);
        or ``every``: a timedelta or whole seconds, counted from 1970. ``catch_up``: of the times at which nobody led,
        "none" that are over a minute late get a job, the last "one" does, or "all" do, the last ``max_catch_up``
        (1..1000) at most. ``skipped``: a time that clocks leave out is "shift"ed to the end of the gap or "skip"ped;
        ``repeated``: one that they show twice counts "once" or "twice"; for the defaults see
        `headrace.schedules.Cron`. The other arguments are those of `headrace.Producer.enqueue`.

        The job's id is the name and the time in UTC. Raises InvalidInput for what cannot be, or a second schedule of
        the name; PayloadTooLarge.
        """
        rule = make_rule(cron, every, timezone, skipped, repeated)
        made = Schedule(name, queue, type, rule, payload, catch_up, max_catch_up, max_retries, timeout, priority)
        with self._open("name", name):
            if name in self._schedules:
                raise InvalidInput("name", f"{name!r} is the name of another schedule", "give each a name of its own")
            self._schedules[name] = made

    # ---- for those who run it ---------------------------------------------------------------------------------------

    def freeze(self) -> Mapping[str, Handler]:
        """Refuse everything further and return the handlers registered, by type. Workers do this when they start."""
        with self._lock:
            self._frozen = True
        return self.handlers

    def wrapped(self, outermost: Middleware) -> App:
        """Return a new App with what is registered so far and one middleware around all of it; this one stays."""
        other = self._copied()
        other._middleware.insert(0, outermost)
        return other

    def overriding(self, **values: Any) -> App:
        """Return a new App with what is registered so far, and these values as dependencies: for tests.

        Nothing is called to make them, and nobody closes them. Raises InvalidInput for a name that is no dependency.
        """
        other = self._copied()
        for name, value in values.items():
            if name not in other._dependencies:
                known = ", ".join(other._dependencies) or "none"
                raise InvalidInput("dependency", f"{name!r} is not registered (known: {known})", "give one of these")
            other._dependencies[name] = constant(name, value, other._dependencies[name].type)
        return other

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The registered handlers by type, read-only."""
        return MappingProxyType(self._handlers)

    @property
    def middlewares(self) -> tuple[Middleware, ...]:
        """What is around every handler, the outermost first."""
        return tuple(self._middleware)

    @property
    def lost_job_hooks(self) -> tuple[LostJobHook, ...]:
        """What is called for jobs whose worker was lost."""
        return tuple(self._lost_job)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of all queues."""
        return tuple(self._schedules.values())

    def schedules_of(self, queue: str) -> tuple[Schedule, ...]:
        """Return the schedules of one queue."""
        return tuple(each for each in self._schedules.values() if each.queue == queue)

    @property
    def dependencies(self) -> Mapping[str, Dependency]:
        """The registered dependencies by name, in the order in which they are made, read-only."""
        return MappingProxyType(self._dependencies)

    @property
    def elected_hooks(self) -> tuple[ElectedHook, ...]:
        """What is called when a term as leader begins."""
        return tuple(self._elected)

    @property
    def resigned_hooks(self) -> tuple[ResignedHook, ...]:
        """What is called when a term as leader has ended."""
        return tuple(self._resigned)

    def _copied(self) -> App:
        other = App()
        other._handlers = dict(self._handlers)
        other._middleware = list(self._middleware)
        other._dependencies = dict(self._dependencies)
        other._elected, other._resigned = list(self._elected), list(self._resigned)
        other._lost_job = list(self._lost_job)
        other._schedules = dict(self._schedules)
        return other

    @contextmanager
    def _open(self, field: str, what: str) -> Iterator[None]:
        """Hold what is registered for a change. Raises InvalidInput if a worker runs already."""
        with self._lock:
            if self._frozen:
                raise InvalidInput(
                    field, f"{what!r} is registered after a worker has started", "register it before the worker starts"
                )
            yield


def _takes(function: Callable[..., Any], field: str, *arguments: str) -> None:
    """Raise InvalidInput if the function cannot be called with these."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            field,
            f"{_named(function)} cannot be called as function({', '.join(arguments)}) ({error})",
            f"let it take {', '.join(arguments)}",
        ) from None


def _named(function: object) -> str:
    return str(getattr(function, "__name__", "it"))


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
