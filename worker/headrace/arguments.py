"""What a handler takes: how its payload is checked, and which dependencies it is given.

All of it is found out once, when a function is registered; a call costs one compiled validation, or nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from headrace.errors import InvalidInput, InvalidPayload

MAX_FIELDS = 10
"""Fields that the error of one payload names."""
UNCHECKED: tuple[Any, ...] = (inspect.Parameter.empty, Any, object)
Validate = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Arguments:
    """``validate`` checks a payload, or one item of a batch (None: anything will do); it raises InvalidPayload.

    ``injected`` maps names of parameters to names of dependencies.
    """

    validate: Validate | None = None
    injected: Mapping[str, str] = field(default_factory=dict)


NO_ARGUMENTS = Arguments()


def handler_arguments(
    owner: str,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    names: Mapping[str, Any],
    *,
    batch: bool = False,
) -> Arguments:
    """Return what ``function(ctx, payload, ...)`` takes.

    ``given``: dependencies by name, each with the type of its value. ``names``: what annotations may name beside the
    globals of the function. ``batch``: the payload is a list. Raises InvalidInput, which names ``owner``.
    """
    signature = _signature(function)
    if signature is None:
        return NO_ARGUMENTS
    parameters = list(signature.parameters.values())
    try:
        # The first two by position; whatever else has no default must be a dependency.
        signature.bind(None, None, **{each.name: None for each in _more(parameters, 2) if _needed(each)})
    except TypeError as error:
        raise InvalidInput(
            "handler", f"of {owner} cannot be called as function(ctx, payload) ({error})", "let it take these two"
        ) from None
    injected = _injected(owner, _more(parameters, 2), function, given, names)
    if not all(each.kind in _POSITIONAL for each in parameters[:2]):
        return Arguments(None, injected)  # *args
    annotation = _resolved(owner, parameters[1], function, names)
    if batch:
        annotation = _item_of(owner, annotation)
    return Arguments(None if annotation in UNCHECKED else validator(owner, annotation), injected)


def dependency_arguments(
    owner: str, function: Callable[..., Any], given: Mapping[str, Any], names: Mapping[str, Any]
) -> Mapping[str, str]:
    """Return which dependencies a dependency itself takes. Raises InvalidInput, which names ``owner``."""
    signature = _signature(function)
    return {} if signature is None else _injected(owner, list(signature.parameters.values()), function, given, names)


def value_type(owner: str, function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """Return the annotated type of what a function returns, or of what its generator yields; None if there is none."""
    annotation = getattr(function, "__annotations__", {}).get("return", inspect.Parameter.empty)
    try:
        annotation = _hint("return", annotation, function, names)
    except NameError:
        return None  # found by its name only
    if annotation in UNCHECKED:
        return None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return next(iter(get_args(annotation)), None)
    return annotation


def validator(owner: str, annotation: Any) -> Validate:
    """Return a compiled check against ``annotation``; it returns the value to use, or raises InvalidPayload.

    Raises InvalidInput if pydantic cannot check such a type.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        if not adapter.pydantic_complete:
            adapter.rebuild()
    except (PydanticUserError, NameError) as error:
        raise InvalidInput(
            "payload",
            f"of {owner} is annotated with {_shown(annotation)}, which cannot be checked "
            f"({str(error).partition(chr(10))[0]})",
            "use a pydantic model, a dataclass or plain types, or Any",
        ) from None
    check = adapter.validator.validate_python  # the method of the adapter costs as much again as a short check

    def validate(payload: Any) -> Any:
        try:
            return check(payload)
        except ValidationError as error:
            problem = error
        # What a strict model takes from JSON, a time for instance, it refuses as a Python value; and bytes may be JSON.
        try:
            return adapter.validate_json(payload if isinstance(payload, bytes) else json.dumps(payload))
        except ValidationError as error:
            raise _refusal(error) from None
        except (TypeError, ValueError):
            raise _refusal(problem) from None

    return validate


def _refusal(error: ValidationError) -> InvalidPayload:
    # The code of each problem and not its text, which may quote the payload.
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    fields = [(".".join(str(part)[:40] for part in each["loc"]) or "payload", each["type"]) for each in problems]
    return InvalidPayload(fields[:MAX_FIELDS], max(0, len(fields) - MAX_FIELDS))


# ---- signatures ------------------------------------------------------------------------------------------------------

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None  # some builtins have none


def _more(parameters: Sequence[inspect.Parameter], taken: int) -> list[inspect.Parameter]:
    """Return what can be given by name beyond the first ``taken`` positions."""
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    first = positional[:taken]
    return [each for each in parameters if each.kind in _NAMED and each not in first]


def _needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _injected(
    owner: str,
    parameters: Iterable[inspect.Parameter],
    function: Callable[..., Any],
    given: Mapping[str, Any],
    names: Mapping[str, Any],
) -> dict[str, str]:
    injected: dict[str, str] = {}
    for parameter in parameters:
        if parameter.name in given:
            injected[parameter.name] = parameter.name
        elif parameter.kind in _NAMED and _needed(parameter):
            injected[parameter.name] = _by_type(owner, parameter, function, given, names)
    return injected


def _by_type(
    owner: str,
    parameter: inspect.Parameter,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    names: Mapping[str, Any],
) -> str:
    annotation = _resolved(owner, parameter, function, names)
    found = [] if annotation in UNCHECKED else [name for name, type in given.items() if type == annotation]
    if len(found) == 1:
        return found[0]
    problem = f"{' and '.join(found)} are of its type" if found else "no dependency has its name or its type"
    raise InvalidInput(
        parameter.name,
        f"of {owner} cannot be given: {problem}",
        "register one of that name with @app.dependency first, or give the parameter a default",
    )


def _resolved(owner: str, parameter: inspect.Parameter, function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    try:
        return _hint(parameter.name, parameter.annotation, function, names)
    except (NameError, AttributeError, SyntaxError) as error:
        raise InvalidInput(
            parameter.name,
            f"of {owner} is annotated with {_shown(parameter.annotation)}, which cannot be resolved ({error})",
            "define or import it above the handler, not only for type checkers; or annotate with Any",
        ) from None


def _hint(name: str, annotation: Any, function: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """Return an annotation as a type; one that is text, or contains text, is looked up."""
    if annotation in UNCHECKED or isinstance(annotation, type):
        return annotation
    inner = inspect.unwrap(getattr(function, "func", function))
    scope = getattr(inner, "__globals__", None) or getattr(getattr(inner, "__call__", None), "__globals__", {})  # noqa: B004
    holder = SimpleNamespace(__annotations__={name: annotation})
    return get_type_hints(holder, scope, dict(names), include_extras=True)[name]


def _item_of(owner: str, annotation: Any) -> Any:
    """Return the type of the items of an annotated list."""
    if annotation in UNCHECKED:
        return Any
    if (get_origin(annotation) or annotation) in (list, Sequence):
        return next(iter(get_args(annotation)), Any)
    raise InvalidInput(
        "payload",
        f"of {owner} is annotated with {_shown(annotation)}, and a batch handler is given a list of payloads",
        "annotate with list[...]",
    )


def _shown(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
