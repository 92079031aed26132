"""The glue to kopf, which watches Queues and QueueVersions: its handlers only say which Queue to look at.

kopf keeps nothing and writes nothing: no finalizer, no annotation, no Event, no peering.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kopf

from headrace_operator.api.names import API_VERSION, GROUP, QueueKey
from headrace_operator.kube import authorization, load_configuration

Add = Callable[[QueueKey], None]
Body = Mapping[str, Any]


class Changes:
    """Tells changes that matter from those that do not: our own status writes come back as events.

    Remembers, per uid, everything of an object that a plan looks at and a status write leaves alone.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def matters(self, kind: str | None, body: Body) -> tuple[bool, bool]:
        """Return whether an event of type ``kind`` is worth a look, and whether the object was known before."""
        metadata = body["metadata"]
        uid = metadata["uid"]
        known = uid in self._seen
        if kind == "DELETED":
            self._seen.pop(uid, None)
            return True, known
        fields = ("generation", "annotations", "labels", "ownerReferences", "deletionTimestamp")
        signature = json.dumps([metadata.get(field) for field in fields], sort_keys=True)
        changed = self._seen.get(uid) != signature
        self._seen[uid] = signature
        return changed, known


def make_registry(add: Add, healthy: Callable[[], None], started: Callable[[], None]) -> kopf.OperatorRegistry:
    """Return the handlers.

    ``add`` takes the Queues to look at, ``healthy`` raises if the operator is not well, ``started`` is called when
    kopf has started, and perhaps again later.
    """
    registry = kopf.OperatorRegistry()
    queues, versions = Changes(), Changes()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.watching.server_timeout = 270
        settings.watching.connect_timeout = 10
        settings.watching.inactivity_timeout = 70
        settings.networking.request_timeout = 30
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
        if queues.matters(type, body)[0]:
            add(QueueKey(body["metadata"]["namespace"], body["metadata"]["name"]))

    @kopf.on.event(GROUP, API_VERSION, "queueversions", registry=registry)
    async def queue_version_changed(type: str | None, body: Body, **_: Any) -> None:
        changed, known = versions.matters(type, body)
        # One that appears was made by us, or will be noticed when we want to make it.
        if changed and (known or type == "DELETED") and (name := body.get("spec", {}).get("queueRef")):
            add(QueueKey(body["metadata"]["namespace"], name))

    @kopf.on.probe(registry=registry, id="healthy", errors=kopf.ErrorsMode.PERMANENT)
    async def probe(**_: Any) -> None:
        healthy()

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


async def watch(
    registry: kopf.OperatorRegistry, *, namespaces: Iterable[str], liveness_endpoint: str | None, stop: asyncio.Event
) -> None:
    """Watch until ``stop`` is set. ``namespaces`` empty: all."""
    watched = tuple(namespaces)
    await kopf.operator(
        registry=registry,
        clusterwide=not watched,
        namespaces=watched,
        standalone=True,
        liveness_endpoint=liveness_endpoint,
        stop_flag=stop,
    )
