"""The real KEDA as local processes beside the control plane: its definitions, its operator, its metrics server."""

from __future__ import annotations

import base64
import contextlib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType

from tests.cluster import binaries
from tests.cluster.certificates import Credential
from tests.cluster.cluster import LocalCluster
from tests.cluster.ports import free_ports
from tests.cluster.processes import Component
from tests.cluster.rest import Object

NAMESPACE = "keda"
SCALED = ("keda.sh/v1alpha1", "ScaledObject")
API_SERVICE = ("apiregistration.k8s.io/v1", "APIService")
METRICS_API = "v1beta1.external.metrics.k8s.io"
METRICS_SERVICE = "keda-metrics-apiserver"
PATIENCE = 60.0


class Keda:
    """KEDA's operator for all namespaces, with the administrator's rights; a context manager.

    It goes from zero to one replica and back by itself. For more than one it makes a HorizontalPodAutoscaler, whose
    metrics come from KEDA's metrics server, which is there within `metrics_server`. What that would ask the operator
    can also be asked at ``metrics_address``, with the certificates in ``certificates``. When it ends it takes every
    ScaledObject with it: without their operator, nobody would remove their finalizers.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._component: Component | None = None
        self.metrics_address = ""

    @property
    def log(self) -> Path:
        """What it says."""
        return self._cluster.control_plane.logs / "keda.log"

    @property
    def certificates(self) -> Path:
        """Folder with ``ca.crt``, ``tls.crt`` and ``tls.key``, which both sides of its metrics service show."""
        return self._cluster.control_plane.folder / "keda-certificates"

    def start(self) -> None:
        """Start it; returns when it serves. Raises BinaryError, CommandError, RuntimeError."""
        program = binaries.ensure(["keda"])["keda"]
        definitions = program.parent / binaries.KEDA_CRDS
        # They are too large for the annotation of a client-side apply.
        for path in sorted(definitions.glob("*.yaml")):
            (definition,) = self._cluster.apply(path)
            self._cluster.wait_for(partial(self._served, definition["spec"]), PATIENCE, what=f"kind of {path.name}")
        if self._cluster.get("v1", "Namespace", NAMESPACE) is None:
            self._cluster.kubectl("create", "namespace", NAMESPACE)
        plane = self._cluster.control_plane
        metrics, probes, service = free_ports(3)
        self.metrics_address = f"localhost:{service}"
        self._write_certificates(
            plane.authority.server("keda", ["localhost", f"{METRICS_SERVICE}.{NAMESPACE}.svc"], peer=True)
        )
        command = [
            str(program),
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--health-probe-bind-address=127.0.0.1:{probes}",
            f"--metrics-service-bind-address=127.0.0.1:{service}",
            f"--cert-dir={self.certificates}",
            "--leader-elect=false",
            "--zap-time-encoding=iso8601",
        ]
        part = self._component = Component("keda", command, log=self.log, guard=plane.guard, env=self._environment())
        part.start()

        def serves() -> bool:
            if part.exit_code is not None:
                raise RuntimeError(f"KEDA ended with exit code {part.exit_code}; it said last:\n{part.tail()}")
            return _ready(f"http://127.0.0.1:{probes}/readyz")

        self._cluster.wait_for(serves, PATIENCE, what="KEDA to be ready")

    @contextlib.contextmanager
    def metrics_server(self) -> Iterator[None]:
        """Let KEDA's metrics server answer for external.metrics.k8s.io, whom HorizontalPodAutoscalers are served by."""
        program = binaries.ensure(["keda-metrics-server"])["keda-metrics-server"]
        plane = self._cluster.control_plane
        (port,) = free_ports(1)
        command = [
            str(program),
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self.certificates / 'tls.crt'}",
            f"--tls-private-key-file={self.certificates / 'tls.key'}",
            f"--cert-dir={self.certificates}",
            f"--metrics-service-address={self.metrics_address}",
            *(f"--{use}-kubeconfig={plane.kubeconfig}" for use in ("authentication", "authorization", "lister")),
        ]
        log = plane.logs / "keda-metrics-server.log"
        part = Component("keda-metrics-server", command, log=log, guard=plane.guard, env=self._environment())
        part.start()
        try:
            self._register(port)
            self._cluster.wait_for(partial(self._answers, part), PATIENCE, what=f"{METRICS_API} to be available")
            yield
        finally:
            # An API that nobody answers for would keep every namespace that is deleted from ending.
            self._cluster.delete(*API_SERVICE, METRICS_API)
            part.stop()

    def _register(self, port: int) -> None:
        # There is no proxy for Services here; to a name the API server connects by itself.
        address = {"type": "ExternalName", "externalName": "localhost"}
        authority = base64.b64encode(self._cluster.control_plane.authority.certificate).decode()
        where = {"name": METRICS_SERVICE, "namespace": NAMESPACE, "port": port}
        group, version = METRICS_API.split(".", 1)[1], METRICS_API.split(".", 1)[0]
        served = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": METRICS_SERVICE}, "spec": address}
        self._cluster.apply(service, namespace=NAMESPACE)
        spec = {**served, "service": where, "caBundle": authority}
        api, kind = API_SERVICE
        self._cluster.apply({"apiVersion": api, "kind": kind, "metadata": {"name": METRICS_API}, "spec": spec})

    def _answers(self, part: Component) -> bool:
        if part.exit_code is not None:
            raise RuntimeError(f"{part.name} ended with exit code {part.exit_code}; it said last:\n{part.tail()}")
        found = self._cluster.get(*API_SERVICE, METRICS_API)
        conditions = (found or {}).get("status", {}).get("conditions") or ()
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    def _environment(self) -> dict[str, str]:
        plane = self._cluster.control_plane
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(plane.folder),
            "KUBECONFIG": str(plane.kubeconfig),
            "WATCH_NAMESPACE": "",
            "POD_NAMESPACE": NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
        }

    def stop(self) -> None:
        """Remove all ScaledObjects and end it."""
        if self._component is None:
            return
        try:
            if self._component.running:
                for each in self._cluster.objects(*SCALED):
                    self._cluster.delete(*SCALED, each["metadata"]["name"], each["metadata"]["namespace"])
                self._cluster.wait_for(lambda: not self._cluster.objects(*SCALED), PATIENCE, what="no ScaledObject")
        finally:
            self._component.stop()

    def __enter__(self) -> Keda:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self, name: str, namespace: str) -> None:
        """Wait until KEDA scales by a ScaledObject."""

        def ready() -> bool:
            found = self._cluster.get(*SCALED, name, namespace)
            conditions = (found or {}).get("status", {}).get("conditions") or ()
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        self._cluster.wait_for(ready, PATIENCE, what=f"ScaledObject {name} Ready")

    def _served(self, definition: Object) -> bool:
        version, kind = definition["versions"][0]["name"], definition["names"]["kind"]
        self._cluster.objects(f"{definition['group']}/{version}", kind)  # an error says that it is not
        return True

    def _write_certificates(self, credential: Credential) -> None:
        self.certificates.mkdir(exist_ok=True)
        credential.write(self.certificates, "tls")
        (self.certificates / "ca.crt").write_bytes(self._cluster.control_plane.authority.certificate)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
