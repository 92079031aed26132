"""The glue to kopf, which watches Queues and QueueVersions: its handlers only say which Queue to look at.

kopf keeps nothing and writes nothing: no finalizer, no annotation, no Event, no peering.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import kopf

from headrace_operator.api.names import API_VERSION, GROUP, QueueKey
from headrace_operator.kubernetes.client import PAGE, authorization, load_configuration
from headrace_operator.kubernetes.recent import What

Body = Mapping[str, Any]


_REMEMBERED = 10_000


class Watcher(Protocol):
    """Who is told of changes."""

    def changed(self, key: QueueKey, what: What, body: Body, *, gone: bool, look: bool) -> None:
        """Say that an object of a Queue is ``body`` now, or was it before it went.

        ``look``: something that a plan depends on has changed; else it was a status, perhaps written by ourselves.
        """
        ...


class Changes:
    """Tells changes that matter from those that do not: our own status writes come back as events.

    Remembers, per uid, the resourceVersion that was delivered last, and everything of an object that a plan looks at
    and a status write leaves alone. ``clock``: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, str, float]] = {}
        self._gone: dict[str, float] = {}

    def matters(self, kind: str | None, body: Body) -> tuple[bool, bool]:
        """Return whether an event of type ``kind`` is worth a look, and whether the object was known before."""
        metadata = body["metadata"]
        uid, known = metadata["uid"], metadata["uid"] in self._seen
        if kind == "DELETED":
            self._seen.pop(uid, None)
            if len(self._gone) >= _REMEMBERED:
                self._gone.clear()
            self._gone[uid] = self._clock()
            return True, known
        fields = ("generation", "annotations", "labels", "ownerReferences", "finalizers", "deletionTimestamp")
        text = json.dumps([metadata.get(field) for field in fields], sort_keys=True)
        signature = hashlib.sha256(text.encode()).hexdigest()[:16]
        changed = not known or self._seen[uid][0] != signature
        self._seen[uid] = (signature, metadata["resourceVersion"], self._clock())
        return changed, known

    def missed(self, listed: Mapping[str, str], since: float) -> bool:
        """Whether an object that a list showed, uid to resourceVersion, was not delivered although it should have been.

        ``since``: clock of that list; some time must have passed. One of which anything came since then was not missed.
        """
        for uid, version in listed.items():
            _, delivered, at = self._seen.get(uid, ("", "", self._gone.get(uid, float("-inf"))))
            if delivered != version and at < since:
                return True
        return False


def make_registry(watcher: Watcher, queues: Changes, started: Callable[[], None]) -> kopf.OperatorRegistry:
    """Return the handlers.

    ``watcher`` is told what has changed, ``queues`` remembers what came of Queues, ``started`` is called when kopf has
    started, and perhaps again later.
    """
    registry, versions = kopf.OperatorRegistry(), Changes(lambda: 0.0)

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.watching.server_timeout = 270
        settings.watching.connect_timeout = 10
        settings.watching.inactivity_timeout = 70
        settings.networking.request_timeout = 30
        # All objects at once, and a task for each that waits five seconds for more to do, take more memory for a moment
        # than everything that is kept afterwards.
        settings.watching.chunk_size = PAGE
        settings.queueing.idle_timeout = 0.1
        # Else it retries the permission to list CRDs and namespaces for a minute, which we do not ask for.
        settings.scanning.disabled = True
        # Else any ClusterKopfPeering named "default" in the cluster pauses us.
        settings.peering.standalone = True
        settings.posting.enabled = False
        # It strips its finalizer from whatever it sees; this one is on no object.
        settings.persistence.finalizer = f"{GROUP}/unused"

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        access = await asyncio.to_thread(connection_info)
        started()  # not at start-up: kopf sets its signal handlers only after that has begun
        return access

    @kopf.on.event(GROUP, API_VERSION, "queues", registry=registry)
    async def queue_changed(type: str | None, body: Body, **_: Any) -> None:
        look, _known = queues.matters(type, body)
        key = QueueKey(body["metadata"]["namespace"], body["metadata"]["name"])
        watcher.changed(key, "queue", dict(body), gone=type == "DELETED", look=look)

    @kopf.on.event(GROUP, API_VERSION, "queueversions", registry=registry)
    async def queue_version_changed(type: str | None, body: Body, **_: Any) -> None:
        changed, known = versions.matters(type, body)
        if name := body.get("spec", {}).get("queueRef"):
            # One that appears was made by us, or will be noticed when we want to make it.
            look = changed and (known or type == "DELETED")
            key = QueueKey(body["metadata"]["namespace"], name)
            watcher.changed(key, "versions", dict(body), gone=type == "DELETED", look=look)

    return registry


def connection_info() -> kopf.ConnectionInfo:
    """Return the access to the API server in kopf's form."""
    configuration = load_configuration()
    bearer = authorization(configuration).get("authorization", "")
    data = configuration.ca_cert_data
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=None if data else configuration.ssl_ca_cert,
        ca_data=base64.b64encode(data.encode()).decode() if isinstance(data, str) else data,
        insecure=not configuration.verify_ssl,
        scheme="Bearer" if bearer else None,
        token=bearer.removeprefix("Bearer ").removeprefix("bearer ") or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


async def watch(registry: kopf.OperatorRegistry, *, namespaces: Iterable[str], stop: asyncio.Event) -> None:
    """Watch until ``stop`` is set. ``namespaces`` empty: all."""
    watched = tuple(namespaces)
    await kopf.operator(
        registry=registry,
        clusterwide=not watched,
        namespaces=watched,
        standalone=True,
        stop_flag=stop,
    )
