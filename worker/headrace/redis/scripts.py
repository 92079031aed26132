"""Loads Lua scripts: a package has one file per transition in ``lua``, and fragments that they include in ``lua/lib``.

Fragments that scripts of several packages include are in ``headrace/redis/lua/lib``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--@include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One transition's source, ready to run, and the digest by which Redis knows it.

    ``overlaps``: its calls do not wait for a round trip that is under way, see `headrace.redis.pipeline`.
    """

    name: str
    source: str
    sha: str
    overlaps: bool = False


@cache
def load(package: str, name: str, *, overlaps: bool = False) -> Script:
    """Return the script ``lua/<name>.lua`` of ``package`` (its dotted name) with its fragments in place."""
    text = (files(package) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    source = _INCLUDE.sub(lambda found: fragment(package, found[1]), text)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), overlaps)


@cache
def fragment(package: str, name: str) -> str:
    """Return the text of ``lua/lib/<name>.lua`` of ``package``, or else of this package."""
    own, shared = (files(each) / "lua" / "lib" / f"{name}.lua" for each in (package, "headrace.redis"))
    return (own if own.is_file() else shared).read_text(encoding="utf-8").rstrip()
