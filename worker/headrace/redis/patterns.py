"""Patterns of keys and channels, as Redis matches them."""

from __future__ import annotations

import re


def literal(text: str) -> str:
    """Return a pattern that matches this text and nothing else."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", text)
