"""The operator as it would be after an upgrade: its renderer makes other Pods; ``python -m`` runs it."""

from __future__ import annotations

from typing import Any

from headrace_operator.main import main
from headrace_operator.workers import render


def template(*given: Any) -> dict[str, Any]:
    """The newest template, with something in it that the one before has not."""
    made = render.RENDERERS[1](*given)
    made["metadata"]["annotations"] = {"made-by": "a newer renderer"}
    return made


if __name__ == "__main__":
    render.RENDERERS = {**render.RENDERERS, max(render.RENDERERS) + 1: template}
    main()
