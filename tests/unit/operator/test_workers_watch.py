"""The watch of worker Deployments goes on whatever ends it, and begins where there is none."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kubernetes.client
import pytest

from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes import workers_watch
from headrace_operator.kubernetes.workers_watch import WorkersWatch


async def test_an_error_that_nobody_foresaw_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_watch, "RETRY_SECONDS", 0.01)
    tries = 0

    def configure() -> kubernetes.client.Configuration:
        nonlocal tries
        tries += 1
        raise AttributeError("not what the library promises")

    running = asyncio.create_task(WorkersWatch(configure, lambda key, version, there: None).run())
    async with asyncio.timeout(10):
        while tries < 3:
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the watch of worker Deployments ended: AttributeError: not what the library promises" in caplog.text


class EmptyCluster(BaseHTTPRequestHandler):
    """Answers as an API server without a worker Deployment does, and then has one."""

    def do_GET(self) -> None:
        metadata = {"resourceVersion": "7"}
        body: dict[str, Any] = {"kind": "PartialObjectMetadataList", "metadata": metadata, "items": None}
        if "watch=true" in self.path:
            labels = {"headrace.dev/queue": "mail"}
            made = {"namespace": "ns", "name": "mail-workers", "resourceVersion": "8", "labels": labels}
            body = {"type": "ADDED", "object": {"metadata": made}}
        data = json.dumps(body).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


async def test_a_cluster_without_a_worker_deployment_is_watched_from_the_first_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyCluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        configuration = kubernetes.client.Configuration()
        configuration.host = f"http://127.0.0.1:{server.server_port}"
        told: asyncio.Queue[tuple[QueueKey, int, bool]] = asyncio.Queue()
        watch = WorkersWatch(lambda: configuration, lambda *change: told.put_nowait(change))
        running = asyncio.create_task(watch.run())
        async with asyncio.timeout(10):
            assert await told.get() == (QueueKey("ns", "mail"), 8, True)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.shutdown()
    assert "ended" not in caplog.text
