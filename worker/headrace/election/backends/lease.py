"""A lock in a Kubernetes Lease, which `kubectl get lease` shows. Needs `get` and `update` on one Lease by name.

Objects are plain JSON: what this process does not know of a Lease (labels, owner, new fields) is written back as it
was read.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import kubernetes.client
import kubernetes.config
import urllib3
from kubernetes.client.exceptions import ApiException

from headrace.election.errors import Conflict, Forbidden, Unavailable
from headrace.election.record import Record, Version

T = TypeVar("T")
Body = dict[str, Any]

GROUP_VERSION = "coordination.k8s.io/v1"
EPOCH_ANNOTATION = "headrace.dev/epoch"
STUCK_CALLS = 3
"""Threads that may hang in the network before no further call is made."""
_CONNECT_SECONDS = 1.0
_UNKNOWN_DURATION = 60.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load_configuration() -> kubernetes.client.Configuration:
    """Return the access to the API: the file in KUBECONFIG if that is set, else the Pod's service account.

    Raises Forbidden if there is neither.
    """
    configuration = kubernetes.client.Configuration()
    try:
        if path := os.environ.get("KUBECONFIG"):
            kubernetes.config.load_kube_config(path, client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (kubernetes.config.ConfigException, OSError) as error:
        raise Forbidden(f"no access to the Kubernetes API: {error}; run in a Pod or set KUBECONFIG") from error
    return configuration


def own_namespace() -> str:
    """Return the namespace of this Pod, or of the kubeconfig's current context, else ``default``."""
    if path := os.environ.get("KUBECONFIG"):
        try:
            _, active = kubernetes.config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
        except (kubernetes.config.ConfigException, OSError):
            return "default"
        return str(active["context"].get("namespace") or "default")
    try:
        return _NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"


def to_time(microseconds: int) -> str:
    """Return a wall time as the API wants it: UTC, exactly six digits."""
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_time(text: object) -> int | None:
    """Return microseconds of wall time, None if ``text`` is no such time."""
    found = _TIME.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        whole = datetime.fromisoformat(found[1]).replace(tzinfo=UTC) - _EPOCH
    except ValueError:
        return None
    return whole // timedelta(microseconds=1) + int((found[2] or "").ljust(6, "0")[:6])


@dataclass(frozen=True, slots=True)
class LeaseVersion:
    """The opaque resourceVersion, and the object that it names, from which the next one is made."""

    resource: str
    body: Body = field(compare=False, repr=False)


class LeaseLock:
    """The Lease ``name`` in ``namespace`` (None: `own_namespace`).

    ``labels`` and ``annotations`` are given to a Lease that this process creates. ``configure`` gives the access anew
    when the server answers 401, because tokens are renewed in their file. Each call runs in a thread of its own, so
    that a pool full of jobs delays none.
    """

    def __init__(
        self,
        name: str,
        namespace: str | None = None,
        *,
        configure: Callable[[], kubernetes.client.Configuration] = load_configuration,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.namespace = name, namespace or own_namespace()
        self._configure = configure
        self._labels, self._annotations = dict(labels or {}), dict(annotations or {})
        self._client: kubernetes.client.ApiClient | None = None
        self._running: set[object] = set()
        self._begun = -math.inf
        self._limit = 0.0

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        """See `headrace.election.record.Lock.read`."""
        status, body = await self._call("GET", self._path(), None, timeout)
        if status == 404:
            return None
        version = _version(body)
        return version, _record(version.body)

    async def create(self, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.create`."""
        metadata: Body = {"name": self.name, "namespace": self.namespace}
        if self._labels:
            metadata["labels"] = dict(self._labels)
        if self._annotations:
            metadata["annotations"] = dict(self._annotations)
        body = _written({"apiVersion": GROUP_VERSION, "kind": "Lease", "metadata": metadata}, record)
        status, answer = await self._call("POST", self._path().rpartition("/")[0], body, timeout)
        if status == 404:
            raise Forbidden(f"{self._what('create')}: there is no namespace {self.namespace!r}; create it")
        return _version(answer)

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.cas`."""
        body = _written(cast(LeaseVersion, version).body, record)
        status, answer = await self._call("PUT", self._path(), body, timeout)
        if status == 404:
            raise Conflict(f"{self._what('update')}: it is gone")
        return _version(answer)

    async def close(self) -> None:
        """See `headrace.election.record.Lock.close`. A call that hangs ends with its own time limit."""
        if self._client is not None:
            self._client.rest_client.pool_manager.clear()
            self._client = None

    def _path(self) -> str:
        return f"/apis/{GROUP_VERSION}/namespaces/{self.namespace}/leases/{self.name}"

    def _what(self, verb: str) -> str:
        return f"{verb} Lease {self.namespace}/{self.name}"

    # ---- calls ----------------------------------------------------------------------------------------------------

    async def _call(self, method: str, path: str, body: Body | None, timeout: float) -> tuple[int, Body]:
        """Return status and object: 200, 201 or 404. Everything else is raised."""
        what = self._what({"GET": "get", "POST": "create", "PUT": "update"}[method])
        write = method != "GET"
        if self._running:
            # Its answer would be nobody's: the thread goes on after its caller has given up.
            if time.monotonic() - self._begun < 2 * self._limit or len(self._running) >= STUCK_CALLS:
                raise Unavailable(f"{what}: the call before hangs still", ambiguous=False)
            self._client = None
        self._begun, self._limit = time.monotonic(), timeout
        status, data, headers = await self._in_thread(lambda: self._request(method, path, body, timeout, what))
        if status in (200, 201, 404):
            try:
                answer = json.loads(data)
                if isinstance(answer, dict):
                    return status, answer
            except ValueError:
                pass
            raise Unavailable(f"{what}: the answer {status} is not from the Kubernetes API", ambiguous=write)
        message = _message(data)
        if status == 409:
            raise Conflict(f"{what}: {message}")
        if status in (401, 403):
            remedy = "grant the service account get and update on this Lease"
            raise Forbidden(f"{what}: {status} {message}; {remedy}")
        retry_after = headers.get("Retry-After", "")
        raise Unavailable(
            f"{what}: {status} {message}",
            ambiguous=write and status >= 500,
            retry_after=float(retry_after) if retry_after.isdigit() else None,
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        running = object()
        self._running.add(running)

        def settle(result: T | None, error: BaseException | None) -> None:
            self._running.discard(running)
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(T, result))

        def run() -> None:
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:
                failure = error
            try:
                loop.call_soon_threadsafe(settle, result, failure)
            except RuntimeError:  # the loop has ended meanwhile
                return

        threading.Thread(target=run, name=f"lease-{self.name}", daemon=True).start()
        return await future

    def _request(
        self, method: str, path: str, body: Body | None, timeout: float, what: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        client = self._client
        if client is None:
            client = self._client = self._connect()
        answer = self._send(client, method, path, body, timeout, what)
        if answer[0] == 401:
            client = self._client = self._connect()
            answer = self._send(client, method, path, body, timeout, what)
        return answer

    def _connect(self) -> kubernetes.client.ApiClient:
        configuration = self._configure()
        # The default repeats a PUT that got no answer, and then takes its own success for another's.
        configuration.retries = False
        return kubernetes.client.ApiClient(configuration)

    def _send(
        self,
        client: kubernetes.client.ApiClient,
        method: str,
        path: str,
        body: Body | None,
        timeout: float,
        what: str,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        headers = {"Accept": "application/json", "User-Agent": "headrace"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        pool: urllib3.PoolManager = client.rest_client.pool_manager
        try:
            # The one way to the token that releases 36 and 37 of the client share; renews it from its file.
            for setting in client.configuration.auth_settings().values():
                if setting["in"] == "header" and setting["value"]:
                    headers[setting["key"]] = setting["value"]
            response = pool.request(
                method,
                client.configuration.host + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(total=timeout, connect=min(_CONNECT_SECONDS, timeout)),
                retries=False,
                redirect=False,
            )
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise Unavailable(f"{what}: no connection ({type(error).__name__})", ambiguous=False) from error
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise Unavailable(f"{what}: {type(error).__name__}", ambiguous=method != "GET") from error
        return response.status, response.data, response.headers


def _version(body: Body) -> LeaseVersion:
    resource = body.get("metadata", {}).get("resourceVersion")
    if not isinstance(resource, str) or not resource:
        raise Unavailable("the answer holds no Lease", ambiguous=True)
    return LeaseVersion(resource, body)


def _record(body: Body) -> Record:
    spec = body.get("spec") or {}
    annotation = str((body["metadata"].get("annotations") or {}).get(EPOCH_ANNOTATION, ""))
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        term=int(spec.get("leaseTransitions") or 0),
        duration=float(spec.get("leaseDurationSeconds") or _UNKNOWN_DURATION),
        seq=from_time(spec.get("renewTime")),
        acquired=from_time(spec.get("acquireTime")) or 0,
        epoch=int(annotation) if annotation.isdigit() else 0,
    )


def _written(body: Body, record: Record) -> Body:
    """Return ``body`` with the record in it; the rest stays."""
    spec = dict(body.get("spec") or {})
    spec["holderIdentity"] = record.holder
    spec["leaseDurationSeconds"] = max(1, math.ceil(record.duration))
    spec["leaseTransitions"] = record.term
    spec["renewTime"] = to_time(record.seq or 1)
    spec["acquireTime"] = to_time(record.acquired or record.seq or 1)
    metadata = dict(body["metadata"])
    metadata.pop("managedFields", None)  # it is the server's to keep
    if record.epoch:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), EPOCH_ANNOTATION: str(record.epoch)}
    return {**body, "metadata": metadata, "spec": spec}


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return data[:100].decode(errors="replace")
