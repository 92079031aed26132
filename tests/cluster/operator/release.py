"""A release of the chart beside the one that brings the definitions, for tests of installing and uninstalling."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.cluster import CommandError, LocalCluster
from tests.cluster.rest import Object

CHART = Path(__file__).resolve().parents[3] / "charts" / "headrace"


class Release:
    """``headrace-<id>`` in a namespace of its own, for the namespaces ``watched``."""

    def __init__(self, cluster: LocalCluster, *watched: str, **values: str) -> None:
        self.cluster = cluster
        self.name = f"headrace-{uuid.uuid4().hex[:6]}"
        self.namespace = f"{self.name}-system"
        self._values = {"watchNamespaces": f"{{{','.join(watched)}}}", "crds.enabled": "false"} | values
        self._values |= {"leaderElection.profile": "fast"}

    def install(self) -> None:
        options = [part for key, value in self._values.items() for part in ("--set", f"{key}={value}")]
        self.cluster.helm(
            *("install", self.name, str(CHART), "--namespace", self.namespace, "--create-namespace"),
            *(*options, "--wait", "--timeout", "90s"),
        )

    def uninstall(self) -> None:
        self.cluster.helm("uninstall", self.name, "--namespace", self.namespace, "--wait", "--timeout", "120s")

    @contextlib.contextmanager
    def installed(self) -> Iterator[Release]:
        """Installed within the block, unless that uninstalls it."""
        self.install()
        try:
            yield self
        finally:
            with contextlib.suppress(CommandError):
                self.uninstall()
            self.cluster.delete("v1", "Namespace", self.namespace)

    @property
    def account(self) -> str:
        """User name of the operator."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def pods(self) -> list[Object]:
        return self.cluster.pods(self.namespace, labels="app.kubernetes.io/name=headrace-operator")

    def leader(self) -> str:
        """Name of the Pod that leads. Raises LookupError if none does."""
        lease = self.cluster.get("coordination.k8s.io/v1", "Lease", self.name, self.namespace)
        holder = "" if lease is None else str(lease["spec"].get("holderIdentity", ""))
        for pod in self.pods():
            if holder.startswith(pod["metadata"]["name"]):
                return str(pod["metadata"]["name"])
        raise LookupError("nobody leads")

    def requests(self) -> list[dict[str, Any]]:
        """What the operator has asked the API server for, from the audit log."""
        lines = self.cluster.control_plane.audit_log.read_text().splitlines()
        entries = (json.loads(line) for line in lines if self.account in line)
        return [entry for entry in entries if entry["user"]["username"] == self.account]
