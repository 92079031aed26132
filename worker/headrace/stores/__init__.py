"""Backends behind one Store protocol, opened by URL."""

from __future__ import annotations

import re

from headrace.errors import InvalidInput
from headrace.stores.base import Store

__all__ = ["Store", "open_store"]


def open_store(url: str, prefix: str = "headrace") -> Store:
    """Return the store that ``url`` names: ``redis://``, ``rediss://``, ``unix://`` or ``memory://``.

    ``prefix`` stands in front of every key. No connection is made before the first call. Raises InvalidInput (the URL,
    which may hold a password, is never part of the message).
    """
    scheme = url.partition(":")[0]
    if scheme in ("redis", "rediss", "unix"):
        from headrace.stores.redis import RedisStore

        return RedisStore(url, prefix=prefix)
    if scheme == "memory":
        from headrace.stores.memory import MemoryStore

        return MemoryStore()
    known = f"has the unknown scheme {scheme!r}" if re.match(r"[a-z][a-z0-9+.-]*://", url) else "has no scheme"
    raise InvalidInput("store URL", known, "use redis://, rediss://, unix:// or memory://")
