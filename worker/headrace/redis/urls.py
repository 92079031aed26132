"""URLs of Redis: what they name, what of them may be shown, and the library's client for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import redis.asyncio as redis
from redis.asyncio.connection import Connection as PlainConnection
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headrace.errors import InvalidInput
from headrace.redis.options import read_options
from headrace.redis.sentinels import Sentinels
from headrace.url_text import url_text

CLUSTER_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
SCHEMES = ("redis", "rediss", "unix", *CLUSTER_SCHEMES, *SENTINEL_SCHEMES)
SENTINEL_PORT = 26379
_DATABASE = re.compile(r"(/\d*)?\Z")

Address = tuple[str, int]


def malformed(problem: str = "cannot be parsed") -> InvalidInput:
    """Return the error for a URL that is not right; it shows nothing of the URL: any part may be one of a password."""
    remedy = (
        "use redis://[user:password@]host[:port][/db], redis+cluster://...host[:port][,host[:port]...] or "
        "redis+sentinel://...host[:port][,...]/NAME[/db], with '/', '?', '#' and '@' in a password percent-encoded"
    )
    return InvalidInput("store URL", problem, remedy)


def split(url: str) -> SplitResult:
    """Split a URL; raise InvalidInput if it is malformed, or of another scheme.

    A password with a bare ``/``, ``?`` or ``#`` makes it so: a part of the password would be taken for port, path or
    query, and be shown.
    """
    if any(character < " " for character in url_text(url)):  # which would be left out in silence
        raise malformed("has a line break or another control character in it")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise malformed() from None
    if parts.scheme not in SCHEMES or parts.fragment or "@" in parts.path or "@" in parts.query:
        raise malformed()
    if parts.scheme == "unix" and (parts.netloc.rpartition("@")[2] or not parts.path):
        raise InvalidInput("store URL", "has no path of a socket", "use unix:///path/of/socket, with three slashes")
    return parts


def addresses(hosts: str, default_port: int) -> list[Address]:
    """Parse ``host[:port][,host[:port]...]``; raise InvalidInput if it is malformed."""
    try:
        found = [urlsplit(f"//{host}") for host in hosts.split(",")]
    except ValueError:
        raise malformed() from None
    try:
        return [(each.hostname or "localhost", each.port or default_port) for each in found]
    except ValueError:
        raise malformed("has a port that is not a number from 1 to 65535") from None


class Connection(NamedTuple):
    """The library's client, the name of its server that may be shown, and the clients of the Sentinels if any."""

    client: redis.Redis
    server: str
    sentinels: tuple[redis.Redis, ...] = ()


def server_name(url: str) -> str:
    """Return what messages may show of a URL: hosts, ports and database. Raises InvalidInput if it is malformed."""
    parts = split(url)
    if parts.scheme == "unix":
        return parts.path
    hosts = parts.netloc.rpartition("@")[2]
    if parts.scheme in SENTINEL_SCHEMES:
        name, database = _primary(parts)
        return f"{name}/{database} of sentinels {_shown(addresses(hosts, SENTINEL_PORT))}"
    if not _DATABASE.match(parts.path):
        raise malformed("has a database that is not a number")
    if parts.scheme in CLUSTER_SCHEMES:
        return _shown(addresses(hosts, 6379))
    if "," in hosts:
        raise malformed()
    return f"{_shown(addresses(hosts, 6379))}/{parts.path.strip('/') or 0}"


def connect(url: str, *, call_timeout: float, connect_timeout: float) -> Connection:
    """Return a client for one server, or for the primary that Sentinels name. No connection is made yet."""
    options: dict[str, Any] = {
        "socket_timeout": call_timeout,
        "socket_connect_timeout": connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
    }
    server = server_name(url)
    parts = split(url)
    login, _, hosts = parts.netloc.rpartition("@")
    options |= credentials(login)
    sentinel, tls = parts.scheme in SENTINEL_SCHEMES, parts.scheme.startswith("rediss")
    given = read_options(parts.query, tls=tls, sentinel=sentinel, socket=parts.scheme == "unix")
    if sentinel:
        primary, sentinels = _behind_sentinels(parts, options, {"ssl": tls, **given.tls}, given.sentinel)
        return Connection(primary, server, sentinels)
    kind: type[Any] = SSLConnection if tls else PlainConnection
    if parts.scheme == "unix":
        kind = UnixDomainSocketConnection
        options |= {"path": unquote(parts.path), "db": given.database}
    else:
        ((host, port),) = addresses(hosts, 6379)
        options |= {"host": unquote(host), "port": port, "db": int(parts.path.strip("/") or 0)}
    pool: Any = redis.ConnectionPool(connection_class=kind, **options, **given.tls)
    return Connection(redis.Redis.from_pool(pool), server)


def credentials(login: str) -> dict[str, str | None]:
    """Return user and password of the part in front of the ``@``. Raises InvalidInput."""
    try:
        user, password = (unquote(part, errors="strict") for part in login.partition(":")[::2])
    except UnicodeDecodeError:
        raise malformed("has percent-encoded bytes in user or password that are no UTF-8") from None
    return {"username": user or None, "password": password or None}


def _shown(hosts: list[Address]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


def _primary(parts: SplitResult) -> tuple[str, int]:
    """Return name and database of the primary in ``/NAME[/db]``."""
    name, _, database = parts.path.strip("/").partition("/")
    if not name:
        raise malformed("names no primary")
    if not re.fullmatch(r"\d*", database):
        raise malformed("has a database that is not a number")
    return name, int(database or 0)


def _behind_sentinels(
    parts: SplitResult, options: dict[str, Any], tls: dict[str, Any], own: Mapping[str, str]
) -> tuple[redis.Redis, tuple[redis.Redis, ...]]:
    """User and password are those of Redis; the Sentinels may have their own."""
    hosts = addresses(parts.netloc.rpartition("@")[2], SENTINEL_PORT)
    others = {**options, "username": None, "password": None, **own, **tls}
    sentinels: Any = Sentinels(hosts, sentinel_kwargs=others)  # type: ignore[no-untyped-call]
    name, database = _primary(parts)
    client: redis.Redis = sentinels.master_for(name, db=database, **options, **tls)
    return client, tuple(sentinels.sentinels)
