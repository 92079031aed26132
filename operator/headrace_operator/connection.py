"""From a Queue to the store that it lives in: Secret or URL, one pool of connections per URL."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import HeadraceError, InvalidInput, StoreFull, StoreUnavailable, UnsupportedServer
from headrace.redis.urls import server_name
from headrace.stores import Store, open_store
from headrace_operator.api.names import QueueKey
from headrace_operator.api.queue_spec import REDIS_SCHEMES, QueueSpec
from headrace_operator.kube import Kube
from headrace_operator.observed import ConnectionProblem, QueueObject
from headrace_operator.reasons import Finding, Reason
from headrace_operator.secret_keys import SecretKey, Secrets

DEFAULT_SECRET = "headrace-redis"  # noqa: S105  the name of a Secret
DEFAULT_KEY = "url"


@dataclass(frozen=True, slots=True)
class Connected:
    """An open store, and where its URL came from: ``secret`` (name, key), or ``url`` without credentials."""

    store: Store
    endpoint: str
    secret: tuple[str, str] | None
    url: str | None


class Connections:
    """Opens stores for Queues and closes those that no Queue uses any more.

    ``default_url``: the URL, without credentials, of Queues that name no connection and find no Secret
    ``headrace-redis`` ("" if there is none). ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        default_url: str = "",
        clock: Callable[[], float],
        open_url: Callable[[str], Store] = open_store,
    ) -> None:
        self.secrets = Secrets(kube, clock)
        self._default_url = default_url
        self._open = open_url
        self._stores: dict[str, Store] = {}
        self._proven: set[str] = set()
        self._users: dict[str, str] = {}

    async def close(self) -> None:
        """Close all stores."""
        for store in self._stores.values():
            await store.close()
        self._stores.clear()
        self._users.clear()

    async def connect(self, namespace: str, uid: str, spec: QueueSpec) -> Connected | ConnectionProblem:
        """Return the store of the Queue with ``uid``, proven to answer; or why there is none.

        Raises ApiError and ApiUnavailable if the Secret cannot be read.
        """
        source = await self._source(namespace, spec)
        if isinstance(source, ConnectionProblem):
            return source
        url, secret, where = source
        try:
            check_scheme(url)
            store = await self._use(uid, url)
        except InvalidInput as error:
            finding = Finding(Reason.INVALID_URL, f"{where}: the URL {error.problem}; {error.remedy}")
            return ConnectionProblem(finding, stalled=True)
        except HeadraceError as error:
            return problem(error)
        if secret is not None:
            return Connected(store, server_name(url), (secret.name, secret.key), None)
        return Connected(store, server_name(url), None, url)

    def failed(self, connected: Connected) -> None:
        """Say that calls on a store failed: the server is proven again next time."""
        self._proven -= {url for url, store in self._stores.items() if store is connected.store}

    def doubt(self, queue: QueueObject) -> None:
        """Say that the connection of ``queue`` is of no use now: a correction of its Secret is noticed in seconds."""
        secret = None if queue.spec is None else secret_of(queue.namespace, queue.spec)
        if secret is None:
            self.secrets.trust(queue.uid)
        else:
            self.secrets.doubt(queue.uid, QueueKey(queue.namespace, queue.name), secret)

    def trust(self, queue: QueueObject) -> None:
        """Say that the connection of ``queue`` works."""
        self.secrets.trust(queue.uid)

    async def release(self, uid: str) -> None:
        """Say that the Queue with ``uid`` is gone."""
        self.secrets.trust(uid)
        url = self._users.pop(uid, None)
        if url is not None:
            await self._close_unused(url)

    async def _source(self, namespace: str, spec: QueueSpec) -> tuple[str, SecretKey | None, str] | ConnectionProblem:
        """Return the URL, the Secret if it comes from one, and how a message names the place."""
        if spec.connection is not None and spec.connection.url is not None:
            return spec.connection.url, None, "spec.connection.url"
        secret = secret_of(namespace, spec) or SecretKey(namespace, DEFAULT_SECRET, DEFAULT_KEY)
        value = await self.secrets.read(secret)
        if value.url is not None:
            return value.url, secret, str(secret)
        if spec.connection is None and self._default_url:
            return self._default_url, None, "the URL that the operator was installed with"
        text = f"Secret {secret.namespace}/{secret.name} {value.problem}"
        return ConnectionProblem(Finding(Reason.SECRET_MISSING, text), stalled=True)

    async def _use(self, uid: str, url: str) -> Store:
        if url not in self._stores:
            self._stores[url] = self._open(url)
        before = self._users.get(uid)
        self._users[uid] = url
        if before is not None and before != url:
            await self._close_unused(before)
        store = self._stores[url]
        if url not in self._proven:
            await store.check()
            self._proven.add(url)
        return store

    async def _close_unused(self, url: str) -> None:
        if url in self._stores and url not in self._users.values():
            self._proven.discard(url)
            await self._stores.pop(url).close()


def secret_of(namespace: str, spec: QueueSpec) -> SecretKey | None:
    """Return the Secret that the URL of a Queue is looked for in first; None if the spec holds the URL."""
    if spec.connection is None:
        return SecretKey(namespace, DEFAULT_SECRET, DEFAULT_KEY)
    reference = spec.connection.secret_ref
    return None if reference is None else SecretKey(namespace, reference.name, reference.key)


def check_scheme(url: str) -> None:
    """Raise InvalidInput unless ``url`` leads to a Redis that Pods can reach; it shows no part of the URL but that."""
    scheme = re.match(r"[a-z][a-z0-9+.-]*(?=://)", url)
    if scheme is None:
        raise InvalidInput("url", "has no scheme", _REMEDY)
    if scheme[0] in ("memory", "unix"):
        raise InvalidInput("url", f"has the scheme {scheme[0]!r}, which leads to nothing outside of one Pod", _REMEDY)
    if scheme[0] not in REDIS_SCHEMES:
        raise InvalidInput("url", f"has the unknown scheme {scheme[0]!r}", _REMEDY)


_REMEDY = f"use {', '.join(f'{scheme}://' for scheme in REDIS_SCHEMES[:-1])} or {REDIS_SCHEMES[-1]}://"


def problem(error: HeadraceError) -> ConnectionProblem:
    """Return what an error of a store says about the connection."""
    match error:
        case UnsupportedServer():
            return ConnectionProblem(Finding(Reason.UNSUPPORTED_SERVER, str(error)), stalled=True)
        case StoreFull():
            return ConnectionProblem(Finding(Reason.STORE_FULL, str(error)))
        case StoreUnavailable():
            return ConnectionProblem(Finding(Reason.UNREACHABLE, str(error)))
        case _:
            return ConnectionProblem(Finding(Reason.UNREACHABLE, f"the store refused a call: {error}"))
