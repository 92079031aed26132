"""The node's own asynchronous client: requests, watches, and informers built from them."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from tests.cluster.rest import ApiError, Object

STRATEGIC = "application/strategic-merge-patch+json"
# What can go wrong when the API server is away, slow or coming back.
UNREACHABLE = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class Api:
    """Requests to one API server; create and close it in the loop that uses it."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._server = server
        # Every Pod may hold a few requests at once; the server is ours alone.
        connector = aiohttp.TCPConnector(ssl=context, limit=0, socket_factory=self._open)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._session = aiohttp.ClientSession(connector=connector)

    async def close(self) -> None:
        """Close all connections; returns when they are closed (a TLS goodbye takes two trips), at most after 2 s."""
        await self._session.close()
        end = asyncio.get_running_loop().time() + 2
        while any(each.fileno() != -1 for each in self._sockets) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.005)

    def _open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family=family, type=kind, proto=protocol)
        opened.setblocking(False)
        self._sockets.add(opened)
        return opened

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> Object:
        """One request. Raises :class:`ApiError` from status 400 on, or one of ``UNREACHABLE``."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self._session.request(
            method, self._server + path, data=data, headers=headers, timeout=limit
        ) as answer:
            content: Object = json.loads(await answer.read())
            if answer.status >= 400:
                raise ApiError(method, path, answer.status, str(content.get("message", "")))
            return content

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Object]]:
        """(type, object) of each change until the server ends the watch."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._session.get(self._server + path, timeout=limit) as answer:
            if answer.status >= 400:
                raise ApiError("GET", path, answer.status, await answer.text())
            pending = b""
            async for chunk in answer.content.iter_any():
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]


class Informer:
    """Keeps a copy of a collection and tells of each change; survives the API server's absence.

    ``on_change(kind, object)`` gets ``"CHANGED"`` for an object that is new or different, ``"DELETED"`` for one that
    has gone (with its last known state). It is called in the loop and must not block.
    """

    def __init__(self, api: Api, collection: str, query: str, on_change: Callable[[str, Object], None]) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()
        self._api = api
        self._collection = collection
        self._query = query
        self._on_change = on_change

    async def run(self) -> None:
        """List and watch for ever."""
        pause = 0.05
        while True:
            try:
                version = await self._list()
                self.synced.set()
                pause = 0.05
                while True:
                    version = await self._watch(version)
            except ApiError as error:
                # 410: the version is too old for a watch; list again at once.
                pause = 0.05 if error.status == 410 else pause
            except UNREACHABLE:
                pass
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)

    async def _list(self) -> str:
        answer = await self._api.request("GET", f"{self._collection}?{self._query}")
        found = {_key(item): item for item in answer["items"]}
        for key in [key for key in self.objects if key not in found]:
            self._take("DELETED", self.objects[key])
        for item in found.values():
            self._take("CHANGED", item)
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        path = f"{self._collection}?{self._query}&watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        async for kind, item in self._api.watch(path):
            if kind == "ERROR":
                raise ApiError("GET", path, int(item.get("code", 500)), str(item.get("message", "")))
            version = str(item["metadata"]["resourceVersion"])
            if kind != "BOOKMARK":
                self._take("DELETED" if kind == "DELETED" else "CHANGED", item)
        return version

    def _take(self, kind: str, item: Object) -> None:
        key = _key(item)
        known = self.objects.get(key)
        if kind == "DELETED":
            self.objects.pop(key, None)
        elif known is not None and known["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]:
            return
        elif known is not None and known["metadata"]["uid"] != item["metadata"]["uid"]:
            # Deleted and created again while nobody watched.
            self._on_change("DELETED", known)
            self.objects[key] = item
        else:
            self.objects[key] = item
        self._on_change(kind, item)


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
