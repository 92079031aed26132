"""A loopback stand-in for the API server, for the faults that a real one cannot be made to show."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kubernetes.client

STRICT_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
Fault = Callable[["Handler"], bool]
"""Answers a request in its own way and returns True, or leaves it to the server."""


class FakeApi:
    """One namespace's Leases. ``fault`` is asked first; ``token``: what a request must show, None: nothing."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.fault: Fault | None = None
        self.token: str | None = None
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.api = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def configuration(self) -> kubernetes.client.Configuration:
        made = kubernetes.client.Configuration()
        made.host = self.url
        if self.token is not None:
            authorize(made, self.token)
        return made

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def authorize(configuration: kubernetes.client.Configuration, token: str) -> None:
    """Under the names of the client's releases 37 and 36."""
    for key in ("BearerToken", "authorization"):
        configuration.api_key[key] = f"Bearer {token}"


class Handler(BaseHTTPRequestHandler):
    """GET, POST and PUT of Leases, as strict with times as the real one."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    @property
    def api(self) -> FakeApi:
        return self.server.api  # type: ignore[attr-defined, no-any-return]

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.body = json.loads(self.rfile.read(length)) if length else None
        self.api.requests.append((self.command, self.path))
        if self.api.token is not None and self.headers.get("Authorization") != f"Bearer {self.api.token}":
            self.status(401, "Unauthorized")
        elif self.api.fault is None or not self.api.fault(self):
            self.answer(*self.apply())

    def apply(self) -> tuple[int, dict[str, Any]]:
        """What the real server would do."""
        api, name = self.api, self.path.rsplit("/", 1)[-1]
        with api.lock:
            if self.command == "GET":
                return (200, api.leases[name]) if name in api.leases else (404, failure(404, "not found"))
            assert self.body is not None
            spec = self.body["spec"]
            for key in ("renewTime", "acquireTime"):
                if not STRICT_TIME.fullmatch(spec[key]):
                    return 400, failure(400, f"{key}: {spec[key]!r} is no time")
            if self.command == "POST":
                name = self.body["metadata"]["name"]
                if name in api.leases:
                    return 409, failure(409, "already exists")
            elif name not in api.leases:
                return 404, failure(404, "not found")
            elif self.body["metadata"]["resourceVersion"] != api.leases[name]["metadata"]["resourceVersion"]:
                return 409, failure(409, "the object has been modified")
            api.version += 1
            stored = {**self.body, "metadata": {**self.body["metadata"], "resourceVersion": str(api.version)}}
            api.leases[name] = stored
            return 201 if self.command == "POST" else 200, stored

    def answer(
        self, code: int, body: dict[str, Any] | bytes, *, content: str = "application/json", **headers: str
    ) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", content)
        self.send_header("Content-Length", str(len(data)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def status(self, code: int, message: str, **headers: str) -> None:
        self.answer(code, failure(code, message), **headers)

    def cut(self) -> None:
        """Break the connection without an answer."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def drip(self, seconds: float) -> None:
        """Answer one byte at a time, each before a read would time out."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.05)


def failure(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
