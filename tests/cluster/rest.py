"""A small synchronous client for any Kubernetes object, as plain dicts. Thread safe."""

from __future__ import annotations

import json
import ssl
import threading
from typing import Any
from urllib.parse import urlencode

import urllib3

Object = dict[str, Any]


class ApiError(RuntimeError):
    """The API server refused a request; ``status`` is the HTTP code, the message is the server's."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status


class Rest:
    """Requests with a client certificate. Connection errors are ``urllib3.exceptions.HTTPError``."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._server = server
        self._pool = urllib3.PoolManager(ssl_context=context, retries=False, timeout=30)
        self._lock = threading.Lock()
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Object:
        """One request; returns the decoded answer. Raises :class:`ApiError` for every status from 400 on."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        answer = self._pool.request(method, self._server + path, body=data, headers=headers)
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, _message(answer.data))
        content: Object = json.loads(answer.data) if answer.data[:1] == b"{" else {"text": answer.data.decode()}
        return content

    def find(self, path: str) -> Object | None:
        """GET; None if there is no such object."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def path(
        self,
        api_version: str,
        kind: str,
        name: str | None = None,
        namespace: str | None = None,
        **query: str | None,
    ) -> str:
        """URL path of an object, or of the collection without ``name``; the plural comes from discovery.

        Raises :class:`ApiError` (404) if the server does not know the kind.
        """
        plural, namespaced = self._discover(api_version, kind)
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        parts = [root]
        if namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(plural)
        if name is not None:
            parts.append(name)
        chosen = {key: value for key, value in query.items() if value is not None}
        return "/".join(parts) + (f"?{urlencode(chosen)}" if chosen else "")

    def _discover(self, api_version: str, kind: str) -> tuple[str, bool]:
        with self._lock:
            known = self._plurals.get((api_version, kind))
        if known is not None:
            return known
        # Asked again on every miss: definitions of new kinds appear while a test runs.
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        for entry in self.request("GET", root)["resources"]:
            if entry["kind"] == kind and "/" not in entry["name"]:
                with self._lock:
                    self._plurals[(api_version, kind)] = (entry["name"], bool(entry["namespaced"]))
                return entry["name"], bool(entry["namespaced"])
        raise ApiError("GET", root, 404, f"the server has no kind {kind} in {api_version}")


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message", ""))
    except (ValueError, AttributeError):
        return data.decode(errors="replace")[:500]
