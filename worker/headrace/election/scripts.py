"""Loads the scripts of fence and lock of last resort."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

from headrace.stores.redis.scripts import Script

_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)
FENCED = "fenced"
"""Fragment that every leader script begins with: see ``lua/lib/fenced.lua``."""


@cache
def fragment(name: str) -> str:
    """Return the text of ``lua/lib/<name>.lua``."""
    return (files(__package__) / "lua" / "lib" / f"{name}.lua").read_text(encoding="utf-8").rstrip()


@cache
def script(name: str) -> Script:
    """Return the script ``lua/<name>.lua`` with its fragments in place."""
    text = (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    source = _INCLUDE.sub(lambda found: fragment(found[1]), text)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
