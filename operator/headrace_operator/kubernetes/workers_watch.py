"""Watches the worker Deployments that we made, by label and as metadata only: enough to know which Queue to look at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

import kubernetes.client
import urllib3

from headrace_operator.api.names import MANAGED_BY_LABEL, OPERATOR, QUEUE_LABEL, QueueKey, workers_name
from headrace_operator.kubernetes.client import authorization, deployments
from headrace_operator.kubernetes.recent import resource_version

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
STREAM_SECONDS = 270
SILENT_SECONDS = 90.0
"""A stream without even a bookmark for this time is dead."""
RETRY_SECONDS = 5.0

log = logging.getLogger("headrace.operator.watch")


Notify = Callable[[QueueKey, int, bool], None]
"""Takes a Queue, and the resourceVersion as of which its worker Deployment is there, or is not (False)."""


class WorkersWatch:
    """Calls ``changed`` for every worker Deployment that changes, in the event loop. ``namespaces`` empty: all."""

    def __init__(
        self,
        configure: Callable[[], kubernetes.client.Configuration],
        changed: Notify,
        namespaces: Iterable[str] = (),
    ) -> None:
        self._configure = configure
        self._changed = changed
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._stopped = threading.Event()
        self._open: dict[str | None, socket.socket] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()

        def notify(key: QueueKey, version: int, there: bool) -> None:
            loop.call_soon_threadsafe(self._changed, key, version, there)

        threads = [
            threading.Thread(target=self._keep_watching, args=(namespace, notify), daemon=True)
            for namespace in self._namespaces
        ]
        for thread in threads:
            thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._stopped.set()
            # Closing the response would wait for the thread that reads it.
            for connection in list(self._open.values()):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _keep_watching(self, namespace: str | None, notify: Notify) -> None:
        known: dict[QueueKey, int] = {}
        while not self._stopped.is_set():
            try:
                self._watch_once(namespace, known, notify)
            except Exception as error:  # whatever it is: nobody would see the thread end
                if not self._stopped.is_set():
                    log.warning("the watch of worker Deployments ended: %s: %s", type(error).__name__, error)
            self._stopped.wait(RETRY_SECONDS)

    def _watch_once(self, namespace: str | None, known: dict[QueueKey, int], notify: Notify) -> None:
        client = kubernetes.client.ApiClient(self._configure())
        headers = {"User-Agent": OPERATOR, "Accept": METADATA_LIST} | authorization(client.configuration)
        path = deployments(namespace)
        url, pool = client.configuration.host + path, client.rest_client.pool_manager
        query = {"labelSelector": f"{MANAGED_BY_LABEL}={OPERATOR}"}
        limits = urllib3.Timeout(connect=5.0, read=SILENT_SECONDS)
        listed = pool.request("GET", f"{url}?{urlencode(query)}", headers=headers, timeout=limits, retries=False)
        if listed.status != 200:
            raise OSError(f"list: {listed.status}")
        found = json.loads(listed.data)
        self._compare(found, known, notify)
        version = found["metadata"]["resourceVersion"]
        query |= {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(STREAM_SECONDS),
        }
        headers["Accept"] = METADATA
        stream = pool.request(
            "GET", f"{url}?{urlencode(query)}", headers=headers, timeout=limits, retries=False, preload_content=False
        )
        if (connection := getattr(stream.connection, "sock", None)) is not None:
            self._open[namespace] = connection
        try:
            self._read(stream, known, notify)
        finally:
            self._open.pop(namespace, None)
            stream.close()
            pool.clear()

    def _read(self, stream: urllib3.BaseHTTPResponse, known: dict[QueueKey, int], notify: Notify) -> None:
        if stream.status != 200:
            raise OSError(f"watch: {stream.status}")
        pending = b""
        for chunk in stream.stream(65536, decode_content=True):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in filter(None, lines):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                metadata = event["object"]["metadata"]
                if event["type"] == "BOOKMARK" or (key := _key(metadata)) is None:
                    continue
                version, there = resource_version(metadata), event["type"] != "DELETED"
                if there:
                    known[key] = version
                else:
                    known.pop(key, None)
                notify(key, version, there)

    @staticmethod
    def _compare(listed: dict[str, Any], known: dict[QueueKey, int], notify: Notify) -> None:
        """Tell what has changed while no stream was open."""
        items = (item["metadata"] for item in listed["items"] or ())  # null if there is none, in this form of a list
        found = {key: resource_version(metadata) for metadata in items if (key := _key(metadata))}
        for key in known.keys() - found.keys():
            del known[key]
            notify(key, resource_version(listed["metadata"]), False)
        for key, version in found.items():
            if known.get(key) != version:
                known[key] = version
                notify(key, version, True)


def _key(metadata: dict[str, Any]) -> QueueKey | None:
    name = metadata.get("labels", {}).get(QUEUE_LABEL)
    if not name or metadata["name"] != workers_name(name):
        return None
    return QueueKey(metadata["namespace"], name)
