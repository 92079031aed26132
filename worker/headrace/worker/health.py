"""The health server: ``/healthz`` for liveness, ``/readyz`` for readiness, ``/metrics`` where there are any.

Liveness asks whether jobs are being looked for, not whether the store answers: a restart repairs the first only.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

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

    async def run(self) -> None:
        """Serve until cancelled. An address that cannot be bound is logged, and tried again every 5 s."""
        while True:
            try:
                server = await asyncio.start_server(self._answer, self._host, self._port, limit=MAX_REQUEST)
            except OSError as error:
                log.error("the health server cannot listen on %s port %d: %s", self._host, self._port, error.strerror)
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
