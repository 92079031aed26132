"""The CustomResourceDefinitions, made from the models; ``python -m headrace_operator.crds`` writes them.

They are written twice: plain into ``crds/``, and into the chart with its switches around them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from headrace_operator.api.base import rules
from headrace_operator.api.names import API_VERSION, GROUP, QUEUE_KIND, QUEUE_VERSION_KIND
from headrace_operator.api.queue_spec import QueueSpec
from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.api.schema import structural_schema

Crd = dict[str, Any]

# A rule on the root runs on every write, also of the status and of finalizers. So each of them looks only at what
# changes or is created: an object that is older than a tightened rule can still be written.
_QUEUE_RULES = (
    rules(
        (
            "oldSelf.hasValue() || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?$')",
            "metadata.name must be at most 50 lower-case letters, digits and '-', beginning and ending with a letter "
            "or digit",
        ),
        optionalOldSelf=True,
    ),
    rules(
        (
            "self.spec.version >= oldSelf.spec.version || (has(oldSelf.status) && has(oldSelf.status.activeVersion) && "
            "self.spec.version == oldSelf.status.activeVersion && has(oldSelf.status.activePartitions) && "
            "self.spec.partitions == oldSelf.status.activePartitions)",
            "spec.version may only grow (or return to the active version and its partitions while the bump is not "
            "promoted); to undo a promoted bump, set a higher version with the old number of partitions",
        ),
        (
            "self.spec.partitions == oldSelf.spec.partitions || self.spec.version != oldSelf.spec.version",
            "spec.partitions may change only together with spec.version; raise spec.version too",
        ),
        (
            "has(self.spec.queueName) == has(oldSelf.spec.queueName) && (!has(self.spec.queueName) || "
            "self.spec.queueName == oldSelf.spec.queueName)",
            "spec.queueName cannot be changed, added or removed; create another Queue",
        ),
    ),
)


def queue_crd() -> Crd:
    """Return the CustomResourceDefinition of Queue."""
    crd = _crd(
        QUEUE_KIND,
        "queues",
        "hrq",
        "A delayed-job queue on Redis: its versions and partitions, its settings, and its workers.",
        (QueueSpec, QueueStatus),
        [
            _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
            _column("Paused", "string", '.status.conditions[?(@.type=="Paused")].status'),
            _column("Version", "integer", ".spec.version"),
            _column("Active", "integer", ".status.activeVersion"),
            _column("Parts", "integer", ".status.activePartitions"),
            _column("Waiting", "integer", ".status.depth.ready"),
            _column("InFlight", "integer", ".status.depth.inFlight"),
            _column("Oldest", "date", ".status.oldestReadyAt"),
            _column("Workers", "integer", ".status.replicas"),
            _column("Age", "date", ".metadata.creationTimestamp"),
            _column("Parked", "integer", ".status.depth.parked", wide=True),
            _column("Dead", "integer", ".status.depth.dead", wide=True),
            _column("Draining", "string", '.status.conditions[?(@.type=="Draining")].status', wide=True),
            _column("Mode", "string", ".spec.mode", wide=True),
            _column("Leader", "string", ".status.leader.holder", wide=True),
            _column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        ],
    )
    version = crd["spec"]["versions"][0]
    version["subresources"]["scale"] = {
        "specReplicasPath": ".spec.scaling.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [
        rule for group in _QUEUE_RULES for rule in group["x-kubernetes-validations"]
    ]
    return crd


def queue_version_crd() -> Crd:
    """Return the CustomResourceDefinition of QueueVersion."""
    return _crd(
        QUEUE_VERSION_KIND,
        "queueversions",
        "hrqv",
        "One version of a queue. Made and ended by the operator; do not create or edit it.",
        (QueueVersionSpec, QueueVersionStatus),
        [
            _column("Queue", "string", ".spec.queueRef"),
            _column("Version", "integer", ".spec.version"),
            _column("Parts", "integer", ".spec.partitions"),
            _column("Phase", "string", ".status.phase"),
            _column("Promoted", "date", ".status.promotedAt"),
            _column("Drained", "date", ".status.drainedSince"),
            _column("Age", "date", ".metadata.creationTimestamp"),
        ],
    )


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": 1} if wide else column


def _crd(
    kind: str,
    plural: str,
    short: str,
    description: str,
    models: tuple[type[BaseModel], type[BaseModel]],
    columns: list[dict[str, Any]],
) -> Crd:
    spec, status = (structural_schema(model) for model in models)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
                "shortNames": [short],
                "categories": ["headrace"],
            },
            "versions": [
                {
                    "name": API_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": description,
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string", "description": "Version of this schema."},
                                "kind": {"type": "string", "description": f"Always {kind}."},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


def render_files() -> dict[str, str]:
    """Return the text of every generated file by its path in the repository."""
    note = "# Made from the models by `make crds`.\n"
    files = {}
    for crd in (queue_crd(), queue_version_crd()):
        text = yaml.safe_dump(crd, sort_keys=False, width=120, allow_unicode=True)
        name = f"{crd['metadata']['name']}.yaml"
        files[f"crds/{name}"] = note + text
        files[f"charts/headrace/templates/crds/{name}"] = note + _for_the_chart(text)
    return files


def _for_the_chart(text: str) -> str:
    if "{{" in text:
        raise ValueError("a description holds {{, which Helm would read as a template")
    keep = "  {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"
    return "{{- if .Values.crds.enabled }}\n" + text.replace("metadata:\n", "metadata:\n" + keep, 1) + "{{- end }}\n"


def main() -> None:
    """Write the files below the folder given as argument (default: the current one)."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for path, text in render_files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        print(f"crds: {path}")


if __name__ == "__main__":
    main()
