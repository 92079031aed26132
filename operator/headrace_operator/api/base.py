"""What all models of the API share: camelCase names, no unknown fields, and rules that the API server evaluates."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

RULES = "x-kubernetes-validations"
PRESERVE_UNKNOWN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=NAME_PATTERN)]


class ApiModel(BaseModel):
    """A frozen part of an object, written in camelCase.

    An unknown field is an error: an operator that is older than the CRD says so instead of ignoring a wish.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class StatusModel(BaseModel):
    """A frozen part of a status. Unknown fields are dropped: a status is a report that is written anew."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


def rules(*pairs: tuple[str, str], **options: Any) -> dict[str, Any]:
    """Return schema extras with CEL rules, given as (rule, message); ``options`` go into each of them."""
    return {RULES: [{"rule": rule, "message": message, **options} for rule, message in pairs]}


def list_map(key: str) -> dict[str, Any]:
    """Return schema extras of a list whose items are told apart by ``key``."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
