"""Backends behind one Store protocol, opened by URL."""

from __future__ import annotations

import re
from typing import cast

from headrace.errors import InvalidInput
from headrace.stores.base import Store
from headrace.stores.prefix import check_prefix
from headrace.url_text import url_text

__all__ = ["Store", "check_store", "open_store", "server_of"]

REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")


def open_store(url: str, prefix: str = "headrace") -> Store:
    """Return the store that ``url`` names.

    ``redis://``, ``rediss://`` (TLS), ``unix://``: one server. ``redis+cluster://host[:port][,host[:port]...]`` and
    ``rediss+cluster://``: a Redis Cluster. ``redis+sentinel://host[:port][,...]/NAME[/db]``: the primary that the
    Sentinels name. ``memory://``: this process. User and password stand in front of the first host.

    ``prefix`` stands in front of every key. No connection is made before the first call. Raises InvalidInput (the URL,
    which may hold a password, is never part of the message).
    """
    scheme = url_text(url).partition(":")[0]
    check_prefix(prefix)
    if scheme in REDIS_SCHEMES:
        from headrace.stores.redis import RedisStore

        return RedisStore(url, prefix=prefix)
    if scheme == "memory":
        from headrace.stores.memory import MemoryStore

        return MemoryStore()
    raise _unknown(url)


def check_store(store: object) -> Store:
    """Return what is a Store. Raises InvalidInput, which shows nothing of it: a URL may hold a password."""
    if callable(getattr(store, "read_topology", None)) and not isinstance(store, type):
        return cast(Store, store)
    kind = store.__name__ if isinstance(store, type) else type(store).__name__
    raise InvalidInput("store", f"is {kind} and no Store", "give what open_store(URL) returns")


def server_of(url: str) -> str:
    """Return what may be shown of a store's URL: hosts, ports and database. Raises InvalidInput if it is malformed."""
    scheme = url_text(url).partition(":")[0]
    if scheme in REDIS_SCHEMES:
        from headrace.redis.urls import server_name

        return server_name(url)
    if scheme == "memory":
        return "memory"
    raise _unknown(url)


def _unknown(url: str) -> InvalidInput:
    scheme = url.partition(":")[0]
    known = f"has the unknown scheme {scheme!r}" if re.match(r"[a-z][a-z0-9+.-]*://", url) else "has no scheme"
    return InvalidInput(
        "store URL", known, "use redis://, rediss://, unix://, redis+cluster://, redis+sentinel:// or memory://"
    )
