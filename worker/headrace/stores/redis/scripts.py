"""Loads the Lua scripts: one file per transition, with the fragments that it includes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One transition's source, ready to run, and the digest by which Redis knows it."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return the script ``lua/<name>.lua`` with its fragments from ``lua/lib`` in place."""
    folder = files(__package__) / "lua"
    source = _INCLUDE.sub(
        lambda found: (folder / "lib" / f"{found[1]}.lua").read_text(encoding="utf-8").rstrip(),
        (folder / f"{name}.lua").read_text(encoding="utf-8"),
    )
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
