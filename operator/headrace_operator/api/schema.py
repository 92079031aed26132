"""Turns the JSON schema of a pydantic model into the structural OpenAPI v3 schema that a CRD takes.

The API server refuses ``$ref``, unions with null, ``const``, ``title`` and numbers as ``exclusiveMinimum``; an object
is closed by pruning, not by ``additionalProperties: false``.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import model_json_schema

from headrace_operator.api.base import RULES

Schema = dict[str, Any]
_DROPPED = {"title", "examples", "$defs"}


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the structural schema of ``model`` with its fields in camelCase."""
    schema = model_json_schema(model, by_alias=True)
    return _convert(schema, schema.get("$defs", {}))


def _convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = dict(node)
    if reference := node.pop("$ref", None):
        # What stands beside a reference (description, default) belongs to the field and wins.
        node = {**definitions[reference.rpartition("/")[2]], **node}
        return _convert(node, definitions)
    if "anyOf" in node:
        choices = [choice for choice in node.pop("anyOf") if choice != {"type": "null"}]
        if len(choices) == 1:
            return _convert({**choices[0], **node}, definitions)
        if {choice.get("type") for choice in choices} != {"integer", "string"}:
            raise ValueError(f"no structural schema for a union of {choices}")
        return _int_or_string(choices, node)

    result: Schema = {key: value for key, value in node.items() if key not in _DROPPED}
    if any(result.get("pattern", "\0") in rule["rule"] for rule in result.get(RULES, ())):
        del result["pattern"]  # the rule says the same, with a message in words, and would not be looked at
    if "const" in result:
        result["enum"] = [result.pop("const")]
    for bound in ("Minimum", "Maximum"):
        if (value := result.pop(f"exclusive{bound}", None)) is not None:
            result |= {bound.lower(): value, f"exclusive{bound}": True}
    if result.get("type") == "integer" and "format" not in result:
        result["format"] = "int32"
    if "default" in result:
        result["default"] = _without_nulls(result["default"])
        if result["default"] is None:
            del result["default"]
    if "properties" in result:
        result["properties"] = {name: _convert(value, definitions) for name, value in result["properties"].items()}
    if "items" in result:
        result["items"] = _convert(result["items"], definitions)
    extra = result.pop("additionalProperties", False)
    if isinstance(extra, dict):
        result["additionalProperties"] = _convert(extra, definitions)
    return result


def _int_or_string(choices: list[Schema], node: Schema) -> Schema:
    pattern = next(choice["pattern"] for choice in choices if choice["type"] == "string")
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": pattern,
        "x-kubernetes-int-or-string": True,
        **{key: value for key, value in node.items() if key not in _DROPPED},
    }


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return value
