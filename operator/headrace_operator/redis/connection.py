"""From a Queue to the store that it lives in: Secret or URL, one pool of connections and one breaker per URL.

A URL that does not work yet, because its Secret was changed by mistake or is gone, does not take away the connection
that works: it is kept until the next one has proven itself, and what is wrong is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.errors import AccessDenied, HeadraceError, InvalidInput, StoreFull, StoreUnavailable, UnsupportedServer
from headrace.redis.urls import server_name
from headrace.server_facts import findings, unsafe
from headrace.stores import Store, open_store
from headrace_operator.api.names import QueueKey
from headrace_operator.api.queue_spec import REDIS_SCHEMES, QueueSpec
from headrace_operator.kubernetes.client import Kube
from headrace_operator.kubernetes.secret_keys import SecretKey, Secrets
from headrace_operator.observed import ConnectionProblem, QueueObject
from headrace_operator.reasons import Finding, Reason
from headrace_operator.redis.breaker import Breaker

DEFAULT_SECRET = "headrace-redis"  # noqa: S105  the name of a Secret
DEFAULT_KEY = "url"
SAFE_SECONDS, UNSAFE_SECONDS = 60.0, 10.0


@dataclass(frozen=True, slots=True)
class Connected:
    """An open store, and where its URL came from: ``secret`` (name, key), or ``url`` without credentials.

    ``instead_of``: why it is an earlier one, and not the one that the spec leads to now.
    """

    store: Store
    endpoint: str
    secret: tuple[str, str] | None
    url: str | None
    instead_of: ConnectionProblem | None = None


@dataclass(slots=True)
class _Pool:
    """One URL: its store, whether it has answered, the finding of the last failure, and what endangers jobs there."""

    store: Store
    breaker: Breaker
    proven: bool = False
    failure: ConnectionProblem | None = None
    unsafe: tuple[str, ...] | None = None
    inspected_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a URL comes from; ``where`` is how a message names the place."""

    url: str
    secret: SecretKey | None
    where: str


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
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        self._used: dict[str, _Source] = {}
        """By the uid of a Queue: what it works with."""
        self._wanted: dict[str, str] = {}
        """By the uid of a Queue: the URL that its spec leads to."""

    async def close(self) -> None:
        """Close all stores."""
        for pool in self._pools.values():
            await pool.store.close()
        self._pools.clear()
        self._used.clear()
        self._wanted.clear()

    async def connect(self, namespace: str, uid: str, spec: QueueSpec) -> Connected | ConnectionProblem:
        """Return the store of the Queue with ``uid``, proven to answer; or why there is none.

        Raises ApiError and ApiUnavailable if the Secret cannot be read.
        """
        before = self._used.get(uid), self._wanted.get(uid)
        source = await self._source(namespace, uid, spec)
        if isinstance(source, ConnectionProblem):
            self._wanted.pop(uid, None)
            found = self._earlier(uid, source)
        elif (problem := await self._prove(uid, source)) is not None:
            found = self._earlier(uid, problem)
        else:
            self._used[uid] = source
            found = self._connected(source)
        if (self._used.get(uid), self._wanted.get(uid)) != before:
            await self._close_unused()
        return found

    def again(self, uid: str) -> Connected | None:
        """Return the connection that the Queue with ``uid`` works with, if it is the one that its spec leads to.

        None: `connect` has to find out, since the server does not answer, or the Secret is another one or has to be
        read. The spec must be the one of the last `connect`.
        """
        source = self._used.get(uid)
        if source is None or self._wanted.get(uid) != source.url or not self._pools[source.url].proven:
            return None
        if (key := self.secrets.used_by(uid)) is not None:
            value = self.secrets.known(key)
            if value is None or value.url != (source.url if source.secret is not None else None):
                return None
        return self._connected(source)

    def failed(self, store: Store, problem: ConnectionProblem) -> None:
        """Say that a call on ``store`` failed: nobody calls it until one has tried again after a pause."""
        for pool in self._pools.values():
            if pool.store is store and pool.proven:
                pool.proven, pool.failure = False, problem
                pool.breaker.failed()

    async def unsafe(self, store: Store) -> tuple[str, ...] | None:
        """Return what of the servers endangers jobs, a sentence each; None if they do not tell.

        They are asked every 60 s, and every 10 s while something does.
        """
        pool = next((pool for pool in self._pools.values() if pool.store is store), None)
        if pool is None:
            return None
        pause = UNSAFE_SECONDS if pool.unsafe else SAFE_SECONDS
        if self._clock() - pool.inspected_at >= pause:
            pool.inspected_at = self._clock()
            try:
                pool.unsafe = tuple(map(str, unsafe(findings(await store.facts()))))
            except HeadraceError:  # whether the connection works is found out by others
                pool.unsafe = None
        return pool.unsafe

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
        self.secrets.release(uid)
        self._used.pop(uid, None)
        self._wanted.pop(uid, None)
        await self._close_unused()

    async def _source(self, namespace: str, uid: str, spec: QueueSpec) -> _Source | ConnectionProblem:
        if spec.connection is not None and spec.connection.url is not None:
            self.secrets.release(uid)
            return _Source(spec.connection.url, None, "spec.connection.url")
        secret = secret_of(namespace, spec) or SecretKey(namespace, DEFAULT_SECRET, DEFAULT_KEY)
        value = await self.secrets.read(secret, uid)
        if value.url is not None:
            return _Source(value.url, secret, str(secret))
        if spec.connection is None and self._default_url:
            return _Source(self._default_url, None, "the URL that the operator was installed with")
        text = f"Secret {secret.namespace}/{secret.name} {value.problem}"
        return ConnectionProblem(Finding(Reason.SECRET_MISSING, text), stalled=True)

    async def _prove(self, uid: str, source: _Source) -> ConnectionProblem | None:
        """Make sure that the URL leads to a server that answers; else say why it does not."""
        url = source.url
        try:
            check_scheme(url)
            if url not in self._pools:
                self._pools[url] = _Pool(self._open(url), Breaker(self._clock))
        except InvalidInput as error:
            self._wanted.pop(uid, None)
            finding = Finding(Reason.INVALID_URL, f"{source.where}: the URL {error.problem}; {error.remedy}")
            return ConnectionProblem(finding, stalled=True)
        self._wanted[uid] = url
        pool = self._pools[url]
        if pool.proven:
            return None
        if not pool.breaker.allows():
            # Somebody has tried a moment ago, or is trying now: what that found holds for all of them.
            return pool.failure or ConnectionProblem(Finding(Reason.UNREACHABLE, f"{server_name(url)} is being tried"))
        try:
            await pool.store.check()
        except HeadraceError as error:
            pool.failure = problem(error)
            pool.breaker.failed()
            return pool.failure
        except BaseException:
            pool.breaker.failed()
            raise
        pool.proven, pool.failure = True, None
        pool.breaker.succeeded()
        return None

    def _earlier(self, uid: str, problem: ConnectionProblem) -> Connected | ConnectionProblem:
        """Return the connection that the Queue has worked with, if that still stands; else what the new one lacks."""
        source = self._used.get(uid)
        pool = None if source is None else self._pools.get(source.url)
        if source is None or pool is None or not pool.proven:
            return problem
        return replace(self._connected(source), instead_of=problem)

    def _connected(self, source: _Source) -> Connected:
        store, endpoint = self._pools[source.url].store, server_name(source.url)
        if source.secret is not None:
            return Connected(store, endpoint, (source.secret.name, source.secret.key), None)
        return Connected(store, endpoint, None, source.url)

    async def _close_unused(self) -> None:
        used = {source.url for source in self._used.values()} | set(self._wanted.values())
        for url in self._pools.keys() - used:
            await self._pools.pop(url).store.close()


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
        case AccessDenied():
            return ConnectionProblem(Finding(Reason.ACCESS_DENIED, str(error)), stalled=True)
        case StoreFull():
            return ConnectionProblem(Finding(Reason.STORE_FULL, str(error)))
        case _:
            return ConnectionProblem(Finding(Reason.UNREACHABLE, str(error)))


def is_of_connection(error: HeadraceError) -> bool:
    """Whether an error says something about the connection, and not about the call that was made on it."""
    return isinstance(error, StoreUnavailable | StoreFull | UnsupportedServer)
