"""Small Pods and Deployments that run a Python script, for the tests of the harness."""

from __future__ import annotations

import textwrap
from typing import Any

from tests.cluster.rest import Object

# Ends only by SIGKILL or by an unhandled signal.
SLEEP = "import signal\nwhile True: signal.pause()"


def container(script: str, *, name: str = "main", args: tuple[str, ...] = (), **fields: Any) -> Object:
    """A container that runs ``script`` with ``args``; ``fields`` are those of the API."""
    command = ["python", "-c", textwrap.dedent(script)]
    return {"name": name, "image": "registry.example/python:3", "command": command, "args": list(args), **fields}


def pod_spec(*containers: Object, **fields: Any) -> Object:
    """A Pod's spec with a short grace."""
    return {"terminationGracePeriodSeconds": 5, "containers": list(containers), **fields}


def pod(name: str, *containers: Object, labels: dict[str, str] | None = None, **fields: Any) -> Object:
    """A Pod; ``fields`` are those of its spec."""
    metadata = {"name": name, "labels": labels or {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(*containers, **fields)}


def deployment(name: str, *containers: Object, replicas: int = 1, **fields: Any) -> Object:
    """A Deployment; ``fields`` are those of its Pods' spec."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(*containers, **fields)},
        },
    }
