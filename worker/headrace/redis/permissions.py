"""The least that a user of Redis must be allowed: the commands of the clients here, and those inside of the scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

from headrace.redis.patterns import literal

CLIENT_COMMANDS = frozenset(
    {
        *("select", "ping", "info", "script|load", "evalsha", "publish", "subscribe", "unsubscribe", "wait", "hget"),
        *("get", "set", "hmget", "zadd", "zrem", "zscore", "zrange", "zpopmin", "bzpopmin", "xread", "xrevrange"),
        *("type", "exists", "hscan", "zscan"),
        *("cluster|slots", "asking", "eval"),
    }
)
"""Sent by the clients themselves; the last line in a Cluster only."""

SCRIPTS = ("headrace.stores.redis", "headrace.election", "headrace.redis")
"""Packages with scripts in ``lua``."""

_CALL = re.compile(r"redis\.p?call\(\s*['\"](\w+)['\"]")


def commands(packages: Iterable[str] = SCRIPTS) -> list[str]:
    """Return every command that is sent or called in a script, in lower case, sorted."""
    found = set(CLIENT_COMMANDS)
    for package in packages:
        folder = files(package) / "lua"
        for place in (folder, folder / "lib"):
            for file in place.iterdir() if place.is_dir() else ():
                if file.name.endswith(".lua"):
                    found |= {name.lower() for name in _CALL.findall(file.read_text(encoding="utf-8"))}
    return sorted(found)


def rule(prefix: str) -> list[str]:
    """Return the rules of ``ACL SETUSER`` for a user who may do what Headrace does under ``prefix``, and no more.

    User, ``on`` and password are the caller's to add.
    """
    own = literal(prefix)
    keys = [f"~{{{own}}}:*", f"~{{{own}:*"]  # of all queues, and of each; another prefix may begin like this one
    return ["resetkeys", "resetchannels", "-@all", *keys, f"&{{{own}:*", *[f"+{name}" for name in commands()]]
