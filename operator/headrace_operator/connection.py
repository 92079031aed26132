"""From a Queue to the store that it lives in: Secret or URL, one pool of connections per URL."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import HeadraceError, InvalidInput, StoreFull, StoreUnavailable, UnsupportedServer
from headrace.stores import Store, open_store
from headrace.stores.redis.urls import server_name
from headrace_operator.api.queue_spec import QueueSpec
from headrace_operator.kube import ApiError, Body, Kube, core
from headrace_operator.observed import ConnectionProblem
from headrace_operator.reasons import Finding, Reason

DEFAULT_SECRET = "headrace-redis"  # noqa: S105  the name of a Secret
DEFAULT_KEY = "url"
SECRET_SECONDS = 60.0
"""A Secret is read again after this time, and at once after a failure of its connection."""


class SecretKey(NamedTuple):
    """A key of a Secret."""

    namespace: str
    name: str
    key: str


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
        self._kube = kube
        self._default_url = default_url
        self._clock = clock
        self._open = open_url
        self._stores: dict[str, Store] = {}
        self._proven: set[str] = set()
        self._users: dict[str, str] = {}
        self._secrets: dict[SecretKey, tuple[float, str | None]] = {}

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
        secret, url = await self._source(namespace, spec)
        if url is None:
            where = f"Secret {namespace}/{secret.name}" if secret else f"Secret {namespace}/{DEFAULT_SECRET}"
            what = f"has no key {secret.key!r}" if secret and await self._exists(secret) else "does not exist"
            finding = Finding(Reason.SECRET_MISSING, f"{where} {what}; create it with the Redis URL")
            return ConnectionProblem(finding, stalled=True)
        try:
            store = await self._use(uid, url)
        except InvalidInput as error:
            return ConnectionProblem(Finding(Reason.INVALID_URL, str(error)), stalled=True)
        except HeadraceError as error:
            if secret is not None:
                self._secrets.pop(secret, None)
            return problem(error)
        if secret is not None:
            return Connected(store, server_name(url), (secret.name, secret.key), None)
        return Connected(store, server_name(url), None, url)

    def failed(self, namespace: str, connected: Connected) -> None:
        """Say that calls on a store failed: its Secret is read again, and the server proven again, next time."""
        if connected.secret is not None:
            self._secrets.pop(SecretKey(namespace, *connected.secret), None)
        self._proven -= {url for url, store in self._stores.items() if store is connected.store}

    async def release(self, uid: str) -> None:
        """Say that the Queue with ``uid`` is gone."""
        url = self._users.pop(uid, None)
        if url is not None:
            await self._close_unused(url)

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

    async def _source(self, namespace: str, spec: QueueSpec) -> tuple[SecretKey | None, str | None]:
        """Return the Secret, if the URL comes from one, and the URL, None if it is nowhere."""
        connection = spec.connection
        if connection is not None and connection.url is not None:
            return None, connection.url
        if connection is not None and connection.secret_ref is not None:
            secret = SecretKey(namespace, connection.secret_ref.name, connection.secret_ref.key)
            return secret, await self._read(secret)
        secret = SecretKey(namespace, DEFAULT_SECRET, DEFAULT_KEY)
        if (url := await self._read(secret)) is not None:
            return secret, url
        return None, self._default_url or None

    async def _read(self, secret: SecretKey) -> str | None:
        read_at, url = self._secrets.get(secret, (float("-inf"), None))
        if url is not None and self._clock() - read_at < SECRET_SECONDS:
            return url
        body = await self._find(secret)
        url = None
        if body is not None and (encoded := body.get("data", {}).get(secret.key)):
            try:
                url = base64.b64decode(encoded, validate=True).decode().strip() or None
            except (binascii.Error, UnicodeDecodeError):
                url = None
        self._secrets[secret] = (self._clock(), url)
        return url

    async def _exists(self, secret: SecretKey) -> bool:
        return await self._find(secret) is not None

    async def _find(self, secret: SecretKey) -> Body | None:
        try:
            return await self._kube.find(f"{core('secrets', secret.namespace)}/{secret.name}")
        except ApiError as error:
            if error.status == 403:
                return None  # an installation may allow only Secrets of certain names
            raise


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
