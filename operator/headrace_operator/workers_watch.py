"""Watches the worker Deployments that we made, by label and as metadata only: enough to know which Queue to look at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from urllib.parse import urlencode

import kubernetes.client
import urllib3

from headrace_operator.api.names import MANAGED_BY_LABEL, OPERATOR, QUEUE_LABEL, QueueKey
from headrace_operator.kube import authorization, deployments

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
STREAM_SECONDS = 270
SILENT_SECONDS = 90.0
"""A stream without even a bookmark for this time is dead."""
RETRY_SECONDS = 5.0
SETTLE_SECONDS = 0.2
"""A rollout changes a Deployment many times in a moment; one look is enough."""

log = logging.getLogger("headrace.operator.watch")


class WorkersWatch:
    """Calls ``add`` with the Queue of every worker Deployment that changes. ``namespaces`` empty: all."""

    def __init__(
        self,
        configure: Callable[[], kubernetes.client.Configuration],
        add: Callable[[QueueKey, float], None],
        namespaces: Iterable[str] = (),
    ) -> None:
        self._configure = configure
        self._add = add
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._stopped = threading.Event()
        self._open: dict[str | None, socket.socket] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()

        def notify(key: QueueKey) -> None:
            loop.call_soon_threadsafe(self._add, key, SETTLE_SECONDS)

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

    def _keep_watching(self, namespace: str | None, notify: Callable[[QueueKey], None]) -> None:
        while not self._stopped.is_set():
            try:
                self._watch_once(namespace, notify)
            except Exception as error:  # whatever it is: nobody would see the thread end
                if not self._stopped.is_set():
                    log.warning("the watch of worker Deployments ended: %s", type(error).__name__)
            self._stopped.wait(RETRY_SECONDS)

    def _watch_once(self, namespace: str | None, notify: Callable[[QueueKey], None]) -> None:
        client = kubernetes.client.ApiClient(self._configure())
        headers = {"User-Agent": OPERATOR, "Accept": METADATA_LIST} | authorization(client.configuration)
        path = deployments(namespace)
        url, pool = client.configuration.host + path, client.rest_client.pool_manager
        query = {"labelSelector": f"{MANAGED_BY_LABEL}={OPERATOR}"}
        limits = urllib3.Timeout(connect=5.0, read=SILENT_SECONDS)
        listed = pool.request("GET", f"{url}?{urlencode(query)}", headers=headers, timeout=limits, retries=False)
        if listed.status != 200:
            raise OSError(f"list: {listed.status}")
        version = json.loads(listed.data)["metadata"]["resourceVersion"]
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
            self._read(stream, notify)
        finally:
            self._open.pop(namespace, None)
            stream.close()
            pool.clear()

    def _read(self, stream: urllib3.BaseHTTPResponse, notify: Callable[[QueueKey], None]) -> None:
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
                name = metadata.get("labels", {}).get(QUEUE_LABEL)
                if event["type"] != "BOOKMARK" and name:
                    notify(QueueKey(metadata["namespace"], name))
