"""The part of a kubelet's HTTPS interface that `kubectl logs` needs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

# (namespace, pod, container) to the log files of its runs, oldest first, and whether it may still write.
FindLogs = Callable[[str, str, str], tuple[list[Path], bool]]


class KubeletApi:
    """Serves container logs to clients whose certificate the cluster's authority has signed."""

    def __init__(self, find: FindLogs) -> None:
        self._find = find
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def start(self, context: ssl.SSLContext) -> int:
        """Listen on loopback; returns the port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        info, query = request.match_info, request.query
        unknown = set(query) - {"follow", "tailLines", "previous"}
        if unknown:
            raise web.HTTPBadRequest(text=f"this node's logs know no {', '.join(sorted(unknown))}")
        files, _ = self._find(info["namespace"], info["pod"], info["container"])
        run = -2 if query.get("previous") == "true" else -1
        if len(files) < -run:
            raise web.HTTPNotFound(text=f"no {'previous ' if run == -2 else ''}log of {info['container']}")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        path = files[run]
        with path.open("rb") as log:
            data = log.read()
            if "tailLines" in query:
                count = int(query["tailLines"])
                data = b"".join(data.splitlines(keepends=True)[-count:]) if count else b""
            await response.write(data)
            while query.get("follow") == "true" and run == -1:
                files, active = self._find(info["namespace"], info["pod"], info["container"])
                data = log.read()
                if data:
                    await response.write(data)
                elif not active or (files and files[-1] != path):
                    break
                else:
                    # A file has no change event that works everywhere.
                    await asyncio.sleep(0.1)
        await response.write_eof()
        return response
