"""What may stand in front of every key."""

from __future__ import annotations

import re

from headrace.errors import InvalidInput
from headrace.job_fields import shortened

MAX_PREFIX = 100
PREFIX_PATTERN = r"[^{}:\s\x00-\x1f\x7f]+"
"""Braces delimit the hash tag, and a colon the parts of it; what cannot be seen would be looked for in vain."""


def check_prefix(prefix: object) -> str:
    """Return a prefix that can be used. Raises InvalidInput."""
    short = isinstance(prefix, str) and len(prefix) <= MAX_PREFIX and prefix.isprintable()
    if isinstance(prefix, str) and short and re.fullmatch(PREFIX_PATTERN, prefix):
        return prefix
    raise InvalidInput(
        "prefix",
        f"is {shortened(prefix)}",
        f"give 1 to {MAX_PREFIX} characters of text without '{{', '}}', ':', spaces and control characters",
    )
