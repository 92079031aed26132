"""A whole local cluster, control plane and process nodes, as one object.

>>> with LocalCluster() as cluster, cluster.namespace() as namespace:
...     cluster.apply(manifest, namespace=namespace)
...     cluster.wait_for(lambda: cluster.get("apps/v1", "Deployment", "web", namespace)["status"].get("readyReplicas"))
...     print(cluster.logs(namespace, "web-0"))
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import kubernetes.client
import urllib3
import yaml

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Image, ProcessNode
from tests.cluster.node.agent import system_clock
from tests.cluster.node.container import Clock
from tests.cluster.rest import ApiError, Object, Rest

T = TypeVar("T")

IMAGES: Mapping[str, Image] = {
    "headrace-operator": Image(entrypoint=("headrace-operator",)),
    "headrace-worker": Image(entrypoint=("headrace",)),
}


class CommandError(RuntimeError):
    """kubectl or helm failed; the message holds the command and what it said."""


class LocalCluster:
    """Control plane plus process nodes; a context manager. Everything ends with it, also when we are killed.

    ``images``: image repository name (last path part, without tag) to what the image would run, for containers that
    have no ``command``. ``nodes``: names of the nodes. ``restart_backoff``: seconds before the second restart of a
    failing container, doubled each time. ``keep_logs``: leave the logs of components and Pods behind on success too.
    """

    def __init__(
        self,
        *,
        images: Mapping[str, Image] = IMAGES,
        nodes: Iterable[str] = ("node-1",),
        restart_backoff: float = 0.2,
        folder: Path | None = None,
        keep_logs: bool = False,
    ) -> None:
        self.control_plane = ControlPlane(folder=folder, keep_logs=keep_logs)
        self.nodes: dict[str, ProcessNode] = {}
        self._images = images
        self._node_names = tuple(nodes)
        self._restart_backoff = restart_backoff
        self._tools: dict[str, Path] = {}

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring it up; about 10 s warm. The first time on a machine the programs are built (about 8 minutes)."""
        self._tools = binaries.ensure(binaries.CLUSTER)
        self.control_plane.start()
        try:
            for name in self._node_names:
                self.add_node(name)
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """End every Pod's processes, every node and the control plane. May be called twice."""
        for node in self.nodes.values():
            node.stop()
        self.nodes = {}
        self.control_plane.stop(keep_logs=keep_logs)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = kind is not None and not issubclass(kind, KeyboardInterrupt | SystemExit)
        if failed and error is not None:
            error.add_note(f"logs of the cluster: {self.control_plane.logs}")
        self.stop(keep_logs=failed)

    # --- what it offers -------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self.control_plane.server

    @property
    def rest(self) -> Rest:
        """Any request on plain dicts; see :class:`tests.cluster.rest.Rest`."""
        return self.control_plane.rest

    @property
    def node(self) -> ProcessNode:
        """The first node: logs, process ids and fault switches of Pods."""
        return next(iter(self.nodes.values()))

    def logs(self, namespace: str, pod: str, container: str | None = None) -> str:
        """Everything a Pod wrote, on whichever node it ran; see :meth:`ProcessNode.logs`."""
        return "".join(node.logs(namespace, pod, container) for node in self.nodes.values())

    def client(self, path: Path | None = None) -> kubernetes.client.ApiClient:
        """A new client of the official library for the administrator, or another kubeconfig. The caller closes it."""
        return self.control_plane.client(path)

    def add_node(self, name: str, *, clock: Clock = system_clock) -> ProcessNode:
        """Start one more process node; returns when it is registered and Ready."""
        plane = self.control_plane
        node = ProcessNode(
            name,
            server=plane.server,
            authority=plane.authority,
            folder=plane.folder / "nodes" / name,
            logs=plane.logs / "pods" / name,
            guard=plane.guard,
            images=self._images,
            restart_backoff=self._restart_backoff,
            clock=clock,
        )
        self.nodes[name] = node
        node.start()
        return node

    def remove_node(self, name: str) -> None:
        """Kill what runs on a node, and delete the Node; its Pods are then collected by the controller manager.

        For a node that is lost but not deleted use ``nodes[name].stop()`` alone: its Pods stay as they were.
        """
        self.nodes.pop(name).stop()
        self.delete("v1", "Node", name)

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A fresh namespace with a unique name; its deletion is asked for at the end and not waited for.

        Pods get no time to end: they are deleted with a grace period of 0.
        """
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.rest.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        # Pods are refused until the controller manager has made the default service account.
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.wait_for(lambda: self.rest.find(account), what=f"default service account of {name}")
        try:
            yield name
        finally:
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
                self.rest.request("DELETE", f"/api/v1/namespaces/{name}")
                self.rest.request("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})

    def apply(
        self, manifest: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]], *, namespace: str | None = None
    ) -> list[Object]:
        """``kubectl apply --server-side`` of YAML text, a file, one object or several; returns what the server holds.

        Objects without a namespace go to ``namespace``, else to ``default``. Raises :class:`CommandError`.
        """
        if isinstance(manifest, Path):
            text = manifest.read_text()
        elif isinstance(manifest, str):
            text = manifest
        else:
            text = yaml.safe_dump_all([manifest] if isinstance(manifest, Mapping) else list(manifest))
        where = ["--namespace", namespace] if namespace else []
        output = self.kubectl("apply", "--server-side", "--output=json", "--filename=-", *where, stdin=text)
        answer = json.loads(output)
        return list(answer["items"]) if answer["kind"] == "List" else [answer]

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, None if there is none."""
        return self.rest.find(self.rest.path(api_version, kind, name, namespace))

    def objects(
        self, api_version: str, kind: str, namespace: str | None = None, *, labels: str | None = None
    ) -> list[Object]:
        """Objects of a kind in a namespace (None: in all), with a label selector such as ``app=web``."""
        answer = self.rest.request("GET", self.rest.path(api_version, kind, None, namespace, labelSelector=labels))
        # Items of a list come without these two.
        return [{"apiVersion": api_version, "kind": kind, **item} for item in answer["items"]]

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None,
        patch: Mapping[str, Any],
        *,
        subresource: str | None = None,
    ) -> Object:
        """JSON merge patch of an object, or of its ``subresource`` such as ``status`` or ``scale``."""
        path = self.rest.path(api_version, kind, name, namespace)
        path += f"/{subresource}" if subresource else ""
        return self.rest.request("PATCH", path, dict(patch), content_type="application/merge-patch+json")

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, *, grace: int | None = None
    ) -> None:
        """Ask for the deletion of an object (with ``grace`` seconds for a Pod); no error if there is none."""
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.rest.request("DELETE", self.rest.path(api_version, kind, name, namespace), body)
        except ApiError as error:
            if error.status != 404:
                raise

    def pods(self, namespace: str, *, labels: str | None = None) -> list[Object]:
        """Pods of a namespace, oldest first; those being deleted are among them."""
        found = self.objects("v1", "Pod", namespace, labels=labels)
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """Run kubectl as administrator; returns its standard output. Raises :class:`CommandError`."""
        return self._run("kubectl", args, stdin, timeout)

    def helm(self, *args: str, stdin: str | None = None, timeout: float = 260.0) -> str:
        """Run helm as administrator; returns its standard output. Raises :class:`CommandError`."""
        return self._run("helm", args, stdin, timeout)

    def wait_for(self, predicate: Callable[[], T | None], deadline: float = 90.0, *, what: str = "") -> T:
        """Call ``predicate`` until it returns something true; returns that.

        LookupError, :class:`ApiError` and broken connections in it count as "not yet". Raises TimeoutError naming
        ``what`` (default: the predicate) and the last answer or error after ``deadline`` seconds.
        """
        end = time.monotonic() + deadline
        pause = 0.02
        while True:
            try:
                answer = predicate()
                last: object = answer
                if answer:
                    return answer
            except (LookupError, ApiError, urllib3.exceptions.HTTPError) as error:
                last = error
            if time.monotonic() > end:
                name = what or getattr(predicate, "__name__", "condition")
                raise TimeoutError(f"{name}: not within {deadline:g} s; last: {str(last)[:2000]!r}")
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)

    def environment(self) -> dict[str, str]:
        """Environment for programs that use this cluster: ``KUBECONFIG``, and kubectl and helm on ``PATH``."""
        home = self.control_plane.folder / "client"
        folders = dict.fromkeys(str(path.parent) for path in self._tools.values())
        return dict(os.environ) | {
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": os.pathsep.join([*folders, os.environ.get("PATH", "")]),
            # Neither reads or leaves anything in the user's home.
            "KUBECACHEDIR": str(home / "kubectl"),
            "HELM_CACHE_HOME": str(home / "helm-cache"),
            "HELM_CONFIG_HOME": str(home / "helm-config"),
            "HELM_DATA_HOME": str(home / "helm-data"),
        }

    def _run(self, tool: str, args: tuple[str, ...], stdin: str | None, timeout: float) -> str:
        command = [str(self._tools[tool]), *args]
        result = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.environment(),
        )
        if result.returncode != 0:
            said = (result.stderr or result.stdout).strip()
            raise CommandError(f"`{tool} {' '.join(args)}` ended with exit code {result.returncode}: {said}")
        return result.stdout
