"""A small cluster with our operator and, if wanted, KEDA's; both scale Deployments by what is in one Redis."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import redis

from bench.subject import ROOT
from tests.cluster.cluster import LocalCluster
from tests.cluster.keda import Keda
from tests.cluster.operator.process import OperatorProcess
from tests.cluster.ports import free_ports
from tests.cluster.processes import Component
from tests.cluster.rest import Object

API, APPS, KEDA_API = "headrace.dev/v1alpha1", "apps/v1", "keda.sh/v1alpha1"
PATIENCE = 300.0
GRACE_SECONDS = 8
"""That a Pod has to end; a worker of ours needs some of it for itself and gives its jobs 3 s."""

T = TypeVar("T")


class Stage:
    """Runs in ``namespace`` of a cluster that has our definitions; a context manager. ``url``: of the Redis.

    ``peer``: start KEDA, and our external scaler for it.
    """

    def __init__(self, cluster: LocalCluster, namespace: str, url: str, folder: Path, *, peer: bool) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.url = url
        self.client: redis.Redis = redis.Redis.from_url(url, decode_responses=True)
        self.scaler_address = f"127.0.0.1:{free_ports(1)[0]}"
        self._folder = folder
        self._peer = peer
        self._keda = Keda(cluster)
        self._open = ExitStack()

    def __enter__(self) -> Stage:
        with ExitStack() as opened:
            opened.callback(self.client.close)
            secret = {"url": base64.b64encode(self.url.encode()).decode()}
            self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "headrace-redis"}, "data": secret})
            watched = {"HEADRACE_WATCH_NAMESPACES": self.namespace}
            opened.enter_context(OperatorProcess(self.cluster, self._folder / "operator.log", **watched))
            if self._peer:
                opened.enter_context(self._keda)
                opened.callback(self._external_scaler().stop)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _external_scaler(self) -> Component:
        command = [str(Path(sys.executable).with_name("headrace-keda"))]
        env = {**os.environ, "HEADRACE_REDIS_URL": self.url, "HEADRACE_KEDA_ADDRESS": self.scaler_address}
        plane = self.cluster.control_plane
        part = Component("headrace-keda", command, log=self._folder / "headrace-keda.log", guard=plane.guard, env=env)
        part.start()
        return part

    # ---- objects -----------------------------------------------------------------------------------------------------

    def apply(self, body: Mapping[str, Any]) -> None:
        """Apply an object in the namespace."""
        self.cluster.apply(body, namespace=self.namespace)

    def queue(self, name: str, *, app: str, concurrency: int, scaling: Mapping[str, Any]) -> str:
        """Apply a Queue with workers of ours and wait until it is ready; returns its name in Redis."""
        queue = f"{self.namespace}.{name}"
        workers = {
            "image": "headrace-worker",
            "app": app,
            "concurrency": concurrency,
            "env": [{"name": "PYTHONPATH", "value": str(ROOT)}],
            "terminationGracePeriodSeconds": GRACE_SECONDS,
        }
        spec = {"queueName": queue, "version": 1, "partitions": 4, "workers": workers, "scaling": dict(scaling)}
        self.apply({"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
        self.cluster.kubectl(
            *("wait", "--for=condition=Ready", "--timeout=60s", f"queue/{name}", "--namespace", self.namespace)
        )
        return queue

    def scaling(self, name: str, **fields: Any) -> None:
        """Change ``spec.scaling`` of a Queue."""
        self.cluster.patch(API, "Queue", name, self.namespace, {"spec": {"scaling": fields}})

    def list_workers(self, name: str) -> None:
        """Apply a Deployment without Pods yet, whose Pods take what is in the list ``name``."""
        labels = {"app": name}
        container = {
            "name": "worker",
            "image": "registry.example/list-worker",
            "command": ["python", "-m", "bench.scaling.list_pod", self.url, name],
            "env": [{"name": "PYTHONPATH", "value": str(ROOT)}],
        }
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": GRACE_SECONDS},
        }
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        self.apply({"apiVersion": APPS, "kind": "Deployment", "metadata": {"name": name}, "spec": spec})

    def scaled_object(self, deployment: str, trigger: Mapping[str, Any], poll: int) -> None:
        """Let KEDA scale a Deployment, and wait until it does."""
        spec = {
            "scaleTargetRef": {"name": deployment},
            "pollingInterval": poll,
            # 1 or 2, see `look_now`. Only the way back to zero, between two rounds, depends on it.
            "cooldownPeriod": 1,
            "minReplicaCount": 0,
            "maxReplicaCount": 10,
            "triggers": [dict(trigger)],
        }
        self.apply({"apiVersion": KEDA_API, "kind": "ScaledObject", "metadata": {"name": deployment}, "spec": spec})
        self._keda.wait_ready(deployment, self.namespace)

    def look_now(self, deployment: str) -> None:
        """Let KEDA look at once, and then after each poll from now on, as it does when a ScaledObject has changed."""
        path = self.cluster.rest.path(KEDA_API, "ScaledObject", deployment, self.namespace)
        cooldown = self.cluster.rest.request("GET", path)["spec"]["cooldownPeriod"]
        body = {"spec": {"cooldownPeriod": 3 - cooldown}}
        self.cluster.rest.request("PATCH", path, body, content_type="application/merge-patch+json")

    # ---- what can be seen --------------------------------------------------------------------------------------------

    def replicas(self, deployment: str) -> int:
        """Replicas asked for."""
        found = self.cluster.get(APPS, "Deployment", deployment, self.namespace)
        if found is None:
            raise LookupError(f"no Deployment {deployment}")
        return int(found["spec"]["replicas"])

    def pods(self, deployment: str) -> list[Object]:
        """Pods of a Deployment, those that are ending among them."""
        return [
            pod
            for pod in self.cluster.objects("v1", "Pod", self.namespace)
            if pod["metadata"]["name"].startswith(f"{deployment}-")
        ]

    def wait(self, what: Callable[[], T | None], text: str, deadline: float = PATIENCE) -> T:
        """Wait for a condition."""
        return self.cluster.wait_for(what, deadline, what=text)
