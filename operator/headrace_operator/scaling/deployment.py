"""The Deployment that runs the workers of a queue, as far as scaling looks at it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace_operator.api.names import SCALER
from headrace_operator.workers.render import selector_of

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScaledDeployment:
    """Few fields of what may be thousands of large objects.

    ``version``: its resourceVersion. ``replicas``: asked for; ``ready``: Pods that are ready and not stopping.
    ``selector``: of its Pods. ``template``: a name of their template. ``rolling_out``: Pods are being replaced by those
    of a new template, and the Deployment has not given that up. ``tried``: a Pod of the present template is ready, and
    no other one is left. ``writer``: the field manager that wrote the replicas last, "" if that was ours.
    """

    name: str
    version: str
    generation: int
    replicas: int
    ready: int
    selector: str
    template: str
    rolling_out: bool = False
    tried: bool = False
    writer: str = ""

    @staticmethod
    def of(body: Body) -> ScaledDeployment:
        """Read an object of the API server."""
        metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
        ready, rolling = status.get("readyReplicas", 0), _rolling_out(metadata, status)
        return ScaledDeployment(
            metadata["name"],
            metadata["resourceVersion"],
            metadata.get("generation", 0),
            spec.get("replicas", 1),
            ready,
            selector_of(body),
            hashlib.sha256(json.dumps(spec.get("template", {}), sort_keys=True).encode()).hexdigest()[:16],
            rolling,
            ready > 0 and not rolling,
            _other_writer(metadata.get("managedFields", [])),
        )

    def scaled(self, replicas: int, version: str) -> ScaledDeployment:
        """Return it after its replicas were written by us."""
        return replace(self, replicas=replicas, version=version, writer="")


def _rolling_out(metadata: Body, status: Body) -> bool:
    if any(each["type"] == "Progressing" and each["status"] == "False" for each in status.get("conditions", [])):
        return False
    old = status.get("replicas", 0) - status.get("updatedReplicas", 0)
    return bool(old > 0 or metadata.get("generation", 0) > status.get("observedGeneration", 0))


def _other_writer(managed: list[Body]) -> str:
    writers = [entry for entry in managed if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})]
    last = max(writers, key=lambda entry: str(entry.get("time", "")), default=None)
    return "" if last is None or last.get("manager") == SCALER else str(last.get("manager"))
