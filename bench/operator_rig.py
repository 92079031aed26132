"""What benchmarks of the operator run on: a real control plane without nodes, and the operator as a process."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from bench.rig import say
from headrace_operator.crds import queue_crd, queue_version_crd
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.ports import free_ports

NAMESPACE = "bench"
API = "headrace.dev/v1alpha1"
TICKS = os.sysconf("SC_CLK_TCK")
CALLERS = 8


class OperatorRig:
    """A cluster with our definitions, and one operator that can be started anew."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self._health_port = free_ports(1)[0]
        self.operator = OperatorProcess(
            cluster, folder / "operator.log", HEADRACE_HEALTH_PORT=str(self._health_port), HEADRACE_LOG_LEVEL="WARNING"
        )

    def wait_for(self, reached: Callable[[], Any], seconds: float, what: str) -> float:
        """Wait until something holds; the seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        self.cluster.wait_for(reached, seconds, what=what)
        return time.monotonic() - began

    def metrics(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Return the operator's metrics: by name, then by labels."""
        answer = urllib3.request("GET", f"http://127.0.0.1:{self._health_port}/metrics", timeout=10, retries=False)
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(answer.data.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def total(self, name: str, *labels: tuple[str, str]) -> float:
        """Return the sum of a metric over all label sets that hold ``labels``."""
        samples = self.metrics().get(name, {})
        return sum(value for found, value in samples.items() if set(labels) <= set(found))

    def writes(self) -> float:
        """Return how many writes the operator has sent to the API server."""
        return sum(
            self.total("headrace_operator_api_calls_total", ("verb", verb)) for verb in ("POST", "PATCH", "DELETE")
        )

    def cpu_seconds(self) -> float:
        """Return the CPU that the operator has used so far, all threads."""
        fields = Path(f"/proc/{self.operator.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self) -> int:
        """Return the memory that the operator occupies."""
        for line in Path(f"/proc/{self.operator.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the operator has ended")

    def create_queues(self, names: list[str], spec: dict[str, Any]) -> None:
        """Create Queues, several at a time."""
        path = self.cluster.rest.path(API, "Queue", None, NAMESPACE)

        def create(name: str) -> None:
            body = {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
            self.cluster.rest.request("POST", path, body)

        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(create, names))

    def delete_queues(self) -> None:
        """Delete all Queues, and wait until they are gone."""
        self.cluster.rest.request("DELETE", self.cluster.rest.path(API, "Queue", None, NAMESPACE), {})
        self.wait_for(lambda: not self.cluster.objects(API, "Queue", NAMESPACE), 300, "no Queue is left")

    def ready(self) -> int:
        """Return how many Queues are Ready for their generation."""
        return sum(map(is_ready, self.cluster.objects(API, "Queue", NAMESPACE)))

    def queue(self, name: str) -> dict[str, Any]:
        """Return one Queue."""
        found = self.cluster.get(API, "Queue", name, NAMESPACE)
        if found is None:
            raise LookupError(name)
        return found

    def patch(self, name: str, **spec: Any) -> None:
        """Change the spec of a Queue."""
        self.cluster.patch(API, "Queue", name, NAMESPACE, {"spec": spec})


@contextmanager
def operator_rig() -> Iterator[OperatorRig]:
    """A running cluster with our definitions; the operator is not started yet."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, LocalCluster(nodes=()) as cluster:
        say("    the control plane is up")
        for definition in (queue_crd(), queue_version_crd()):
            cluster.apply(definition)
            name = definition["metadata"]["name"]
            cluster.wait_for(partial(_is_served, cluster, name), 60, what=f"{name} is served")
        cluster.rest.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        rig = OperatorRig(cluster, Path(folder))
        try:
            yield rig
        finally:
            rig.operator.kill()


def _is_served(cluster: LocalCluster, name: str) -> bool:
    found = cluster.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
    conditions = (found or {}).get("status", {}).get("conditions") or []  # null at first
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def is_ready(queue: dict[str, Any]) -> bool:
    """Whether a Queue is Ready, and its status is about its present spec."""
    generation = queue["metadata"]["generation"]
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" and condition["observedGeneration"] == generation
        for condition in queue.get("status", {}).get("conditions", [])
    )
