"""Queues of one namespace, as a user would handle them, and what the operator says about them."""

from __future__ import annotations

import base64
from typing import Any

from tests.cluster.cluster import LocalCluster
from tests.cluster.rest import Object

API = "headrace.dev/v1alpha1"
APPS = "apps/v1"
ROOT_APP = "tests.cluster.operator.workload:app"
REPOSITORY = __file__.rsplit("/tests/", 1)[0]


def workers(**fields: Any) -> Object:
    """``spec.workers`` of a worker that runs `tests.cluster.operator.workload`."""
    return {
        "image": "headrace-worker",
        "app": ROOT_APP,
        "env": [{"name": "PYTHONPATH", "value": REPOSITORY}],
        "terminationGracePeriodSeconds": 5,
        **fields,
    }


def idle_workers(**fields: Any) -> Object:
    """``spec.workers`` of a process that does nothing, for what is only about the Deployment."""
    return {"image": "idle", "command": ["sleep", "600"], "terminationGracePeriodSeconds": 1, **fields}


class Queues:
    """The Queues of ``namespace``."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def queue_name(self, name: str) -> str:
        """Name in Redis: no other test uses it."""
        return f"{self.namespace}.{name}"

    def apply(self, name: str, *, version: int = 1, partitions: int = 4, **spec: Any) -> Object:
        """Apply a Queue with kubectl. Raises CommandError with the API server's message.

        One worker runs all the time unless ``scaling`` says otherwise: most tests are not about their number.
        """
        metadata = {"name": name}
        if "workers" in spec:
            spec.setdefault("scaling", {"minReplicas": 1, "maxReplicas": 1})
        given = {"queueName": self.queue_name(name), "version": version, "partitions": partitions, **spec}
        body = {key: value for key, value in given.items() if value is not None}
        return self.cluster.apply(
            {"apiVersion": API, "kind": "Queue", "metadata": metadata, "spec": body}, namespace=self.namespace
        )[0]

    def patch(self, name: str, **spec: Any) -> Object:
        return self.cluster.patch(API, "Queue", name, self.namespace, {"spec": spec})

    def annotate(self, name: str, **annotations: str | None) -> Object:
        full = {f"headrace.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        return self.cluster.patch(API, "Queue", name, self.namespace, {"metadata": {"annotations": full}})

    def secret(self, url: str, name: str = "headrace-redis") -> None:
        data = {"url": base64.b64encode(url.encode()).decode()}
        self.cluster.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}, namespace=self.namespace
        )

    def delete(self, name: str, *, propagation: str = "Background") -> None:
        """Ask for the deletion of a Queue; `gone` tells when it has ended."""
        path = self.cluster.rest.path(API, "Queue", name, self.namespace)
        self.cluster.rest.request("DELETE", path, {"propagationPolicy": propagation})

    def gone(self, name: str, deadline: float = 90) -> None:
        """Wait until there is no Queue of this name."""
        path = self.cluster.rest.path(API, "Queue", name, self.namespace)
        self.cluster.wait_for(lambda: self.cluster.rest.find(path) is None, deadline, what=f"Queue {name} gone")

    def get(self, name: str) -> Object:
        found = self.cluster.get(API, "Queue", name, self.namespace)
        if found is None:
            raise LookupError(f"no Queue {name}")
        return found

    def status(self, name: str) -> Object:
        status: Object = self.get(name).get("status", {})
        return status

    def condition(self, name: str, kind: str) -> Object:
        """A condition that is about the present spec. Raises LookupError if there is none yet."""
        queue = self.get(name)
        for condition in queue.get("status", {}).get("conditions", []):
            if condition["type"] == kind and condition["observedGeneration"] == queue["metadata"]["generation"]:
                found: Object = condition
                return found
        raise LookupError(f"Queue {name} has no condition {kind} for its generation")

    def wait(
        self, name: str, kind: str = "Ready", status: str = "True", reason: str | None = None, deadline: float = 90
    ) -> Object:
        """Wait until a condition has this status, and reason if given; returns it."""
        last: Object = {}

        def reached() -> Object | None:
            nonlocal last
            last = self.condition(name, kind)
            matches = last["status"] == status and reason in (None, last["reason"])
            return last if matches else None

        try:
            return self.cluster.wait_for(reached, deadline, what=f"{kind}={status} {reason or ''} of Queue {name}")
        except TimeoutError as error:
            error.add_note(f"last seen: {last}")
            raise

    def versions(self, name: str) -> dict[int, str]:
        """Phases of the QueueVersions of a Queue."""
        found = self.cluster.objects(API, "QueueVersion", self.namespace, labels=f"headrace.dev/queue={name}")
        return {item["spec"]["version"]: item.get("status", {}).get("phase", "") for item in found}

    def wait_versions(self, name: str, expected: dict[int, str], deadline: float = 90) -> None:
        self.cluster.wait_for(lambda: self.versions(name) == expected, deadline, what=f"versions {expected} of {name}")

    def wait_scaled(self, name: str, replicas: int = 1) -> None:
        """Wait until so many workers are asked for: that is done beside the passes, and makes another generation."""
        self.cluster.wait_for(lambda: self.deployment(name)["spec"]["replicas"] == replicas, what="the replicas")

    def deployment(self, name: str) -> Object:
        found = self.cluster.get(APPS, "Deployment", f"{name}-workers", self.namespace)
        if found is None:
            raise LookupError(f"no Deployment {name}-workers")
        return found

    def events(self, name: str) -> set[str]:
        """Reasons of the Events about a Queue."""
        found = self.cluster.objects("v1", "Event", self.namespace)
        return {event["reason"] for event in found if event["involvedObject"].get("name") == name}

    def wait_events(self, name: str, *reasons: str) -> None:
        """Wait for Events about a Queue, by reason: they are written beside everything else, and after a status."""
        self.cluster.wait_for(lambda: self.events(name) >= set(reasons), what=f"events {reasons} of {name}")
