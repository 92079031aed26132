"""Whether an object of the workers is still what it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_operator.api.names import RENDERED


def to_apply(wanted: Mapping[str, Any], found: Mapping[str, Any], applied: tuple[str, str] | None) -> bool:
    """Whether ``wanted`` has to be applied over ``found``.

    ``applied``: the resourceVersion at which applying a body with that hash changed nothing; doing so again would not.
    """
    version, rendered = found["metadata"]["resourceVersion"], wanted["metadata"]["annotations"][RENDERED]
    return (version, rendered) != applied and differs(wanted, found)


def rendered_from(body: Mapping[str, Any]) -> str | None:
    """Return the hash of what an object was applied as; None if it never was."""
    rendered: str | None = body["metadata"].get("annotations", {}).get(RENDERED)
    return rendered


def differs(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether ``found`` has to be applied again: it was rendered from something else, or somebody edited it.

    Quantities are compared by the hash of what was rendered only: the API server writes them in its own way.
    """
    if rendered_from(wanted) != rendered_from(found):
        return True
    return not _contained(wanted, found)


def _contained(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return False
        return all(key == "resources" or _contained(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(found, Sequence) or len(wanted) != len(found):
            return False
        return all(_contained(one, other) for one, other in zip(wanted, found, strict=True))
    return bool(wanted == found) or (not wanted and found is None)
