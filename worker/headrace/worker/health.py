"""The health server: ``/healthz`` for liveness, ``/readyz`` for readiness, ``/metrics`` where there are any.

Liveness asks whether jobs are being looked for, not whether the store answers: a restart repairs the first only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.errors import InvalidInput

log = logging.getLogger("headrace.worker")

MAX_REQUEST = 8192
_JSON = "application/json"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Health:
    """An answer: whether all is well, and facts that say why or why not."""

    ok: bool
    facts: dict[str, str | float | bool]


class HealthServer:
    """Answers ``GET``: for ``checks`` 200 or 503 and a JSON object, for ``pages`` what they give (content type, body).

    One request per connection, 5 s at most.
    """

    def __init__(
        self,
        host: str,
        port: int,
        checks: Mapping[str, Callable[[], Health]],
        pages: Mapping[str, Callable[[], tuple[str, bytes]]] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._checks = checks
        self._pages = pages or {}
        self.port = port
        self._listening: socket.socket | None = None

    def listen(self) -> None:
        """Take the address before `run`. Raises InvalidInput if that cannot be done."""
        try:
            self._listening = self._bound()
        except OSError as error:
            raise InvalidInput(
                "health_port",
                f"{self._host} port {self._port} cannot be listened on ({_problem(error)})",
                "choose another one, or stop what uses it",
            ) from None

    def _bound(self) -> socket.socket:
        family, _, _, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)

    async def run(self) -> None:
        """Serve until cancelled. An address that cannot be had again is logged, and tried again every 5 s."""
        while True:
            try:
                listening, self._listening = self._listening or self._bound(), None
                server = await asyncio.start_server(self._answer, sock=listening, limit=MAX_REQUEST)
            except OSError as error:
                log.error("the health server cannot listen on %s port %d: %s", self._host, self._port, _problem(error))
                await asyncio.sleep(5)
                continue
            self.port = server.sockets[0].getsockname()[1]
            async with server:
                await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                status, kind, body = self._respond(await reader.readuntil(b"\r\n\r\n"))
                writer.write(
                    f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _respond(self, request: bytes) -> tuple[int, str, bytes]:
        parts = request.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3:
            return 400, _JSON, b"{}"
        method, target, _ = parts
        path = target.split(b"?", 1)[0].decode("latin-1")
        check, page = self._checks.get(path), self._pages.get(path)
        if check is None and page is None:
            return 404, _JSON, b"{}"
        if method not in (b"GET", b"HEAD"):
            return 405, _JSON, b"{}"
        status, kind, body = 200, _JSON, b""
        if check is not None:
            health = check()
            status, body = 200 if health.ok else 503, json.dumps({"ok": health.ok, **health.facts}).encode()
        elif page is not None:
            kind, body = page()
        return status, kind, body if method == b"GET" else b""


def _problem(error: OSError) -> str:
    # The text that comes with it repeats the address; a host name that is unknown has a number below zero.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)
