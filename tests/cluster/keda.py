"""The real KEDA operator as a local process beside the control plane, with its CustomResourceDefinitions."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
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
PATIENCE = 60.0


class Keda:
    """KEDA's operator for all namespaces, with the administrator's rights; a context manager.

    It goes from zero to one replica and back by itself. For more than one it makes a HorizontalPodAutoscaler, whose
    metrics come from KEDA's metrics server; that one is not started here, but what it would ask the operator can be
    asked at ``metrics_address``, with the certificates in ``certificates``. When it ends it takes every ScaledObject
    with it: without their operator, nobody would remove their finalizers.
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
        self._write_certificates(plane.authority.server("keda-operator", ["localhost"], peer=True))
        command = [
            str(program),
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--health-probe-bind-address=127.0.0.1:{probes}",
            f"--metrics-service-bind-address=127.0.0.1:{service}",
            f"--cert-dir={self.certificates}",
            "--leader-elect=false",
            "--zap-time-encoding=iso8601",
        ]
        env = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(plane.folder),
            "KUBECONFIG": str(plane.kubeconfig),
            "WATCH_NAMESPACE": "",
            "POD_NAMESPACE": NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
        }
        part = self._component = Component("keda", command, log=self.log, guard=plane.guard, env=env)
        part.start()

        def serves() -> bool:
            if part.exit_code is not None:
                raise RuntimeError(f"KEDA ended with exit code {part.exit_code}; it said last:\n{part.tail()}")
            return _ready(f"http://127.0.0.1:{probes}/readyz")

        self._cluster.wait_for(serves, PATIENCE, what="KEDA to be ready")

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
