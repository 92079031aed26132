"""Dependencies: what handlers share, made when a worker starts and closed when it ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.arguments import dependency_arguments, value_type
from headrace.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Dependency:
    """A registered dependency. ``open(**others)`` makes it: the value is what entering that gives.

    ``type`` is that of its value, None if it is not annotated. ``injected`` maps names of parameters to names of other
    dependencies, which were registered before it.
    """

    name: str
    open: Callable[..., AbstractAsyncContextManager[Any]]
    type: Any = None
    injected: Mapping[str, str] = field(default_factory=dict)


def make_dependency(
    name: str, function: Callable[..., Any], others: Mapping[str, Dependency], names: Mapping[str, Any]
) -> Dependency:
    """Return the dependency that a function makes.

    A generator (async or not) yields the value once and closes it afterwards; any other function (async or not) returns
    it. Raises InvalidInput.
    """
    owner = f"dependency {name!r}"
    if not name.isidentifier():
        raise InvalidInput("dependency", f"{name!r} cannot be the name of a parameter", "give an identifier")
    if not callable(function):
        raise InvalidInput("dependency", f"{name!r} is not callable", "decorate a function")
    types = {each.name: each.type for each in others.values()}
    injected = dependency_arguments(owner, function, types, names)
    return Dependency(name, _opener(function), value_type(owner, inspect.unwrap(function), names), injected)


def constant(name: str, value: Any, type: Any) -> Dependency:
    """Return a dependency that is a value already; nobody closes it."""
    return Dependency(name, _opener(lambda: value), type)


def _opener(function: Callable[..., Any]) -> Callable[..., AbstractAsyncContextManager[Any]]:
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isasyncgenfunction(inner):
        return function  # decorated with asynccontextmanager
    if inspect.isgeneratorfunction(inner):
        entered = contextmanager(function) if inspect.isgeneratorfunction(function) else function

        @asynccontextmanager
        async def from_plain(**others: Any) -> Any:
            with entered(**others) as value:
                yield value

        return from_plain

    @asynccontextmanager
    async def returned(**others: Any) -> Any:
        value = function(**others)
        yield await value if inspect.iscoroutine(value) else value

    return returned
