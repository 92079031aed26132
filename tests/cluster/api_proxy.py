"""An API server with faults: a proxy on loopback that passes requests on, unless it is told otherwise."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import yaml
from aiohttp import web

STARTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; ``at``: monotonic seconds when it came in, ``status``: of the answer."""

    method: str
    path: str
    query: str
    at: float
    status: int

    @property
    def watches(self) -> bool:
        return "watch=true" in self.query.lower()


Answer = Callable[[str, str, str], tuple[int, dict[str, Any], dict[str, str]] | None]
"""From method, path and query to status, body and headers of an answer of its own; None: the real one's."""


@dataclass
class Faults:
    """What goes wrong now. ``frozen``: watches stay open and deliver nothing. ``delay``: seconds before each answer."""

    answer: Answer | None = None
    frozen: bool = False
    delay: float = 0.0
    seen: list[Request] = field(default_factory=list)


class ApiProxy:
    """Speaks plain HTTP; the real server sees the administrator. A context manager; runs in a thread of its own."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self.faults = Faults()
        self._server = server
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._streams: set[asyncio.Task[Any]] = set()
        self.port = 0

    def __enter__(self) -> ApiProxy:
        self._thread.start()
        assert self._ready.wait(STARTED_SECONDS), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(STARTED_SECONDS)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here."""
        name = "proxy"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def cut(self) -> None:
        """Close every watch that is open."""

        def close() -> None:
            for stream in list(self._streams):
                stream.cancel()

        assert self._loop is not None
        self._loop.call_soon_threadsafe(close)

    def requests(self, since: float = 0.0) -> list[Request]:
        """What was asked for since then, watches apart."""
        return [request for request in list(self.faults.seen) if request.at >= since and not request.watches]

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._session:
            runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            (address,) = runner.addresses
            self.port = address[1]
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        at, faults = time.monotonic(), self.faults
        body = await request.read()
        if faults.delay:
            await asyncio.sleep(faults.delay)
        found = faults.answer(request.method, request.path, request.query_string) if faults.answer else None
        if found is not None:
            status, content, headers = found
            self._note(request, at, status)
            return web.json_response(content, status=status, headers=headers)
        left = ("host", "connection", "content-length")
        passed = {name: value for name, value in request.headers.items() if name.lower() not in left}
        url = f"{self._server}{request.raw_path}"
        options: dict[str, Any] = {"data": body or None, "headers": passed, "ssl": self._context}
        async with self._session.request(request.method, url, **options) as real:
            self._note(request, at, real.status)
            return await self._pass_on(request, real)

    def _note(self, request: web.Request, at: float, status: int) -> None:
        self.faults.seen.append(Request(request.method, request.path, request.query_string, at, status))

    async def _pass_on(self, request: web.Request, real: aiohttp.ClientResponse) -> web.StreamResponse:
        kept = ("content-type", "content-encoding", "retry-after")
        headers = {name: value for name, value in real.headers.items() if name.lower() in kept}
        response = web.StreamResponse(status=real.status, headers=headers)
        watches = "watch=true" in request.query_string.lower()
        task = asyncio.current_task()
        assert task is not None
        if watches:
            self._streams.add(task)
        try:
            await response.prepare(request)
            async for chunk in real.content.iter_any():
                # A frozen stream loses what it would have delivered, for good.
                if not (watches and self.faults.frozen):
                    await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, aiohttp.ClientError, asyncio.CancelledError):
            if not watches:
                raise
        finally:
            self._streams.discard(task)
        return response


def conflicts(matches: Callable[[str, str], bool], times: int) -> Answer:
    """Answer 409 so many times to what ``matches`` method and path."""
    return _refusing(matches, times, 409, {})


def throttled(times: int, seconds: int) -> Answer:
    """Answer 429 so many times, asking for a pause."""
    return _refusing(lambda _method, _path: True, times, 429, {"Retry-After": str(seconds)})


def _refusing(matches: Callable[[str, str], bool], times: int, status: int, headers: dict[str, str]) -> Answer:
    left = times

    def answer(method: str, path: str, query: str) -> tuple[int, dict[str, Any], dict[str, str]] | None:
        nonlocal left
        if left == 0 or "watch=true" in query.lower() or not matches(method, path):
            return None
        left -= 1
        return status, {"kind": "Status", "code": status, "message": "as the test wants it"}, headers

    return answer


def frozen_copy(path: str, body: dict[str, Any]) -> Answer:
    """Answer reads of ``path`` with what it was at some time."""
    copy = json.loads(json.dumps(body))

    def answer(method: str, asked: str, query: str) -> tuple[int, dict[str, Any], dict[str, str]] | None:
        if method == "GET" and asked == path and "watch=true" not in query.lower():
            return 200, copy, {}
        return None

    return answer
