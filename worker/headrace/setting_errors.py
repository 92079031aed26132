"""What is said of settings that are refused: field, problem and remedy, in the words of Headrace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from headrace.errors import InvalidInput

SECRET: Final = ("redis_url", "redis_url_file", "leader_mongo_url_file")
"""Settings whose value may hold a password."""


class InvalidSettings(InvalidInput):
    """Settings that were made in code are refused; ``field`` is the first that is wrong, as in ``RetryPolicy.base_ms``.

    ``validation`` has all problems, as pydantic found them; its text may show values.
    """

    def __init__(self, model: type[BaseModel], validation: ValidationError) -> None:
        problem, *others = validation.errors(include_url=False)
        setting = setting_of(problem)
        fields = fields_at(model, problem["loc"][:-1])
        text, _, remedy = problem_text(problem, secret=setting in SECRET).partition("; ")
        if problem["type"] == "extra_forbidden":
            close = get_close_matches(str(problem["loc"][-1]), fields, 1)
            remedy = f"is {close[0]} meant?" if close else f"there are {', '.join(fields)}"
        known = fields.get(str(problem["loc"][-1])) if problem["loc"] else None
        remedy = remedy or _range(known) or (f"it is: {known.description}" if known and known.description else "")
        more = f" ({len(others)} more problem(s))" if others else ""
        name = f"{model.__name__}.{setting}" if setting else model.__name__
        super().__init__(name, text, (remedy or "give another value") + more)
        self.validation = validation


class SettingsModel(BaseModel):
    """Settings that raise InvalidSettings where they are made in code. Read by `model_validate`, ValidationError."""

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise InvalidSettings(type(self), error) from None

    # Else pydantic would call it for parts of other settings, too, and tell their fields as one value of those.
    setattr(__init__, "__pydantic_base_init__", True)  # noqa: B010 - the attribute is unknown to types


def setting_of(problem: Mapping[str, Any]) -> str:
    """Return the dotted name of a setting; a list's element is told by the list's name."""
    return ".".join(part for part in problem["loc"] if isinstance(part, str))


def problem_text(problem: Any, *, secret: bool = False) -> str:
    """Return what is wrong with a value, in plain words. ``secret``: the value is not to be shown."""
    message: str = problem["msg"].removeprefix("Value error, ").removeprefix("queue: ")
    if secret:
        return message
    value, context = problem["input"], problem.get("ctx", {})
    match problem["type"]:
        case "greater_than_equal":
            return f"{value} is below {context['ge']}"
        case "greater_than":
            return f"{value} is not above {context['gt']:g}"
        case "less_than_equal":
            return f"{value} is above {context['le']}"
        case "int_parsing" | "int_type" | "int_from_float":
            return f"{value!r} is not a whole number"
        case "float_parsing" | "float_type":
            return f"{value!r} is not a number"
        case "literal_error":
            return f"{value!r} is unknown; give {context['expected']}"
        case "extra_forbidden":
            return "is not a setting"
        case "model_type":
            return f"is a {type(value).__name__}; give a {context['class_name']}"
        case "string_pattern_mismatch" | "string_too_short" | "string_too_long":
            return f"{value!r} cannot be used; give 1 to 100 characters without spaces, '{{' and '}}'"
    return message


def fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> dict[str, FieldInfo]:
    """Return the fields of the part of some settings that a path leads to."""
    for part in path:
        field = model.model_fields.get(str(part))
        inner = next(_models(field.annotation), None) if field is not None else None
        if inner is not None:
            model = inner
    return dict(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    for kind in get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield kind


def _range(field: FieldInfo | None) -> str:
    """Return which numbers a field takes; "" if it takes no numbers, or any."""
    found: dict[str, float] = {}
    for rule in field.metadata if field is not None else ():
        found |= {name: getattr(rule, name) for name in _LIMITS if hasattr(rule, name)}
    limits = {name: int(limit) if limit == int(limit) else limit for name, limit in found.items()}
    least, above, most = (limits.get(name) for name in _LIMITS)
    begin = f"{least}" if least is not None else f"more than {above}" if above is not None else ""
    if not begin:
        return f"give at most {most}" if most is not None else ""
    return f"give {begin} to {most}" if most is not None else f"give {begin}" + (" or more" if above is None else "")


_LIMITS: Final = ("ge", "gt", "le")
