"""A key of a Secret, as several parts of the spec name one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from headrace_operator.api.base import ApiModel, Name


class SecretRef(ApiModel):
    """A key of a Secret in the Queue's namespace."""

    name: Name = Field(description="Name of the Secret.")
    key: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        "url", description="Key that holds the URL."
    )
