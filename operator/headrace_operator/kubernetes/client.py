"""The Kubernetes API as a few asynchronous calls on plain dicts.

The synchronous client runs in one bounded executor. It never retries by itself, and every call has a time limit:
whoever calls decides what a failure means.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.parse import urlencode

import kubernetes.client
import kubernetes.config
import urllib3
from kubernetes.client.exceptions import ApiException

from headrace_operator.api.names import API_VERSION, GROUP
from headrace_operator.kubernetes.pace import Budget, Priority
from headrace_operator.metrics import OperatorMetrics

Body = dict[str, Any]
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
CONNECT_SECONDS, READ_SECONDS = 5.0, 20.0
PAGE = 100
"""Objects in one answer to a list: as dicts they take many times the memory of their text."""
THROTTLED_CALLS = 5
"""Times that a call is sent while the server answers 429; what is then left is an ApiError."""
LONGEST_HOLD = 30.0
_UNTYPED = "failed to create typed patch object"
_COLLECTIONS = {
    "Deployment": ("apps", "v1", "deployments"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Role": ("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
}


class ApiError(Exception):
    """The API server refused a call. ``status``: HTTP status; the message is the server's, with method and path."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status
        self.message = message


class NotLeading(Exception):
    """Nothing is written: another operator may be working now."""


class ApiUnavailable(Exception):
    """The API server gave no answer; whether the call was carried out is unknown."""


def load_configuration() -> kubernetes.client.Configuration:
    """Return the access to the API: the file in KUBECONFIG if that is set, else the Pod's service account.

    Raises kubernetes.config.ConfigException if there is neither.
    """
    configuration = kubernetes.client.Configuration()
    if path := os.environ.get("KUBECONFIG"):
        kubernetes.config.load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    configuration.retries = False
    return configuration


def collection(group: str, version: str, plural: str, namespace: str | None) -> str:
    """Return the path of a collection; ``group`` "" is the core group, ``namespace`` None all namespaces."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace is not None else f"{root}/{plural}"


def queues(namespace: str | None) -> str:
    """Return the path of the Queues of a namespace (None: of all)."""
    return collection(GROUP, API_VERSION, "queues", namespace)


def queue_versions(namespace: str | None) -> str:
    """Return the path of the QueueVersions of a namespace (None: of all)."""
    return collection(GROUP, API_VERSION, "queueversions", namespace)


def deployments(namespace: str | None) -> str:
    """Return the path of the Deployments of a namespace (None: of all)."""
    return objects("Deployment", namespace)


def objects(kind: str, namespace: str | None) -> str:
    """Return the path of the objects of a kind that the operator makes for workers. Raises KeyError for another."""
    return collection(*_COLLECTIONS[kind], namespace)


def core(plural: str, namespace: str | None) -> str:
    """Return the path of a core collection of a namespace (None: of all)."""
    return collection("", "v1", plural, namespace)


def authorization(configuration: kubernetes.client.Configuration) -> dict[str, str]:
    """Return the headers that prove who calls; a token is renewed from its file.

    The one way to the token that releases 36 and 37 of the client share.
    """
    settings = cast(Iterable[dict[str, str]], configuration.auth_settings().values())
    return {entry["key"]: entry["value"] for entry in settings if entry["in"] == "header" and entry["value"]}


class Kube:
    """Calls to one API server. Close it when done.

    ``configure`` gives the access anew when the server answers 401, because tokens are renewed in their file.
    ``budget``: when calls may be sent (None: at any time). ``may_write``: asked before each write; one that may not be
    sent raises NotLeading.
    """

    def __init__(
        self,
        configure: Callable[[], kubernetes.client.Configuration] = load_configuration,
        *,
        threads: int = 16,
        budget: Budget | None = None,
        metrics: OperatorMetrics | None = None,
    ) -> None:
        self.may_write: Callable[[], bool] = lambda: True
        self._configure = configure
        self._budget = budget
        self._metrics = metrics or OperatorMetrics()
        self._lock = threading.Lock()
        self._client = kubernetes.client.ApiClient(configure())
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="kube")

    async def close(self) -> None:
        """Wait for calls under way and close the connections."""
        await asyncio.to_thread(self._executor.shutdown)
        self._client.rest_client.pool_manager.clear()

    async def get(self, path: str) -> Body:
        """Return what is at ``path``. Raises ApiError (404: not there) and ApiUnavailable, as every call here."""
        return await self._call("GET", path)

    async def find(self, path: str) -> Body | None:
        """Return what is at ``path``, None if there is nothing."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def items(self, path: str, *, labels: str = "") -> AsyncIterator[Body]:
        """Yield the objects of a collection, read in pages."""
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self.get(f"{path}?{urlencode(query)}")
            for item in page["items"]:
                yield item
            if not (token := page["metadata"].get("continue")):
                return
            query["continue"] = token

    async def create(
        self, path: str, body: Mapping[str, Any], *, manager: str, priority: Priority = Priority.URGENT
    ) -> Body:
        """Create an object in the collection ``path`` as field manager ``manager``. An unknown field is refused."""
        query = f"fieldManager={manager}&fieldValidation=Strict"
        return await self._call("POST", f"{path}?{query}", dict(body), priority=priority)

    async def merge(
        self, path: str, body: Mapping[str, Any], *, manager: str, priority: Priority = Priority.URGENT
    ) -> Body:
        """Merge ``body`` into the object at ``path``."""
        return await self._call("PATCH", f"{path}?fieldManager={manager}", dict(body), MERGE, priority)

    async def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> Body:
        """Server-side apply ``body`` as the object at ``path``, taking over fields of other managers.

        A field that the kind does not have is an ApiError with status 422.
        """
        query = f"fieldManager={manager}&force=true"
        try:
            return await self._call("PATCH", f"{path}?{query}", dict(body), APPLY, Priority.URGENT)
        except ApiError as error:
            if error.status == 500 and error.message.startswith(_UNTYPED):
                # The server calls it its own failure, and it would be one for ever.
                raise ApiError("PATCH", path, 422, error.message) from error
            raise

    async def delete(self, path: str, *, uid: str) -> None:
        """Delete the object at ``path`` if it has ``uid``; nothing happens if it is gone."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", path, options, priority=Priority.URGENT)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _call(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        content: str = "application/json",
        priority: Priority = Priority.NORMAL,
    ) -> Body:
        loop = asyncio.get_running_loop()
        for _ in range(THROTTLED_CALLS):
            asked = loop.time()
            if self._budget is not None:
                await self._budget.take(priority)
            sent = loop.time()
            self._metrics.waited(sent - asked)
            try:
                status, data, wait = await loop.run_in_executor(
                    self._executor, self._request, method, path, body, content
                )
            except ApiUnavailable:
                self._metrics.called(method, path, None, loop.time() - sent)
                raise
            self._metrics.called(method, path, status, loop.time() - sent)
            if status != 429:
                break
            # The server has done nothing. It asks everybody to wait, so every call of ours does.
            if self._budget is not None:
                self._budget.hold(wait)
            else:
                await asyncio.sleep(wait)
        if status >= 400:
            raise ApiError(method, path.partition("?")[0], status, _message(data))
        answer: Body = json.loads(data)
        return answer

    def _request(self, method: str, path: str, body: Body | None, content: str) -> tuple[int, bytes, float]:
        """Return status, content, and the seconds to wait before another call if that is asked for."""
        if method != "GET" and not self.may_write():
            raise NotLeading(f"{method} {path.partition('?')[0]} is not sent: this process does not lead")
        client = self._client
        answer = self._send(client, method, path, body, content)
        if answer[0] == 401:
            with self._lock:
                if self._client is client:
                    self._client = kubernetes.client.ApiClient(self._configure())
            answer = self._send(self._client, method, path, body, content)
        return answer

    @staticmethod
    def _send(
        client: kubernetes.client.ApiClient, method: str, path: str, body: Body | None, content: str
    ) -> tuple[int, bytes, float]:
        headers = {"Accept": "application/json", "User-Agent": "headrace-operator"}
        if body is not None:
            headers["Content-Type"] = content
        pool: urllib3.PoolManager = client.rest_client.pool_manager
        try:
            response = pool.request(
                method,
                client.configuration.host + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers | authorization(client.configuration),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, ApiException) as error:
            raise ApiUnavailable(f"{method} {path.partition('?')[0]}: {type(error).__name__}") from error
        asked = response.headers.get("Retry-After", "")
        wait = float(asked) if asked.isdigit() else 1.0
        return response.status, response.data, min(wait, LONGEST_HOLD)


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data[:500].decode(errors="replace")
