"""Changes the Queue object in Kubernetes that owns a queue, as the person who calls."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import OwnedByObject

PATCH = "application/merge-patch+json"
KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
SECONDS = 10.0


def set_paused(queue: str, owner: Mapping[str, str], *, paused: bool) -> bool | None:
    """Set ``spec.paused`` of the object that owns a queue; whether that changed it, None if the object is gone.

    ``owner``: as the operator signs the topology; its ``cluster`` is the uid of the namespace kube-system there. Only
    that cluster can say that the object is gone. To resume ends ``spec.stopPolicy``, too. Raises OwnedByObject with
    what to do by hand if the API cannot be reached, refuses it, or is another cluster's.
    """
    namespace, name = owner.get("namespace", ""), owner.get("name", "")
    wanted = json.dumps({"spec": {"paused": paused}})
    by_hand = f"do it by hand: `kubectl -n {namespace} patch queue {name} --type=merge --patch '{wanted}'`"

    def refuse(problem: str, remedy: str = by_hand) -> OwnedByObject:
        return OwnedByObject(queue, f"{namespace}/{name}", problem, remedy)

    try:
        import kubernetes.client
        import kubernetes.config
        from urllib3.exceptions import HTTPError
    except ImportError:
        raise refuse("the package for Kubernetes is not installed (pip install 'headrace[kubernetes]')") from None
    configuration = kubernetes.client.Configuration()
    configuration.retries = False
    try:
        if os.environ.get("KUBECONFIG") or (Path.home() / ".kube" / "config").exists():
            kubernetes.config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (kubernetes.config.ConfigException, OSError) as error:
        raise refuse(f"there is no access to Kubernetes ({error})") from None
    path = f"/apis/headrace.dev/v1alpha1/namespaces/{namespace}/queues/{name}"
    with kubernetes.client.ApiClient(configuration) as client:
        headers = {"Accept": "application/json", "Content-Type": PATCH, "User-Agent": "headrace"}

        def call(method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
            # The one way that releases 36 and 37 of the client share, as in headrace.election.backends.lease.
            for setting in client.configuration.auth_settings().values():
                if setting["in"] == "header" and setting["value"]:
                    headers[setting["key"]] = setting["value"]
            response = client.rest_client.pool_manager.request(
                method,
                configuration.host + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=SECONDS,
                retries=False,
                redirect=False,
            )
            try:
                return response.status, json.loads(response.data)
            except ValueError:
                return response.status, {}

        changed: dict[str, Any] = {}
        try:
            status, found = call("GET", path)
            if status == 404 or (status == 200 and found["metadata"]["uid"] != owner.get("uid")):
                if problem := _elsewhere(owner, *call("GET", KUBE_SYSTEM)):
                    raise refuse(problem, f"point KUBECONFIG to the cluster of that object, or {by_hand}")
                return None
            if status == 200:
                status, changed = call("PATCH", path, {"spec": _patch(found["spec"], paused=paused)})
        except (HTTPError, OSError) as error:
            raise refuse(f"the API server did not answer ({type(error).__name__})") from None
    if status != 200:
        told = (changed or found).get("message", "without a reason")
        raise refuse(f"the API server answered {status} ({told})")
    return bool(found["metadata"]["generation"] != changed["metadata"]["generation"])


def _elsewhere(owner: Mapping[str, str], status: int, kube_system: Mapping[str, Any]) -> str:
    """Say why a cluster that does not have the object is not known to be the one that had it; "" if it is."""
    if status != 200:
        told = kube_system.get("message", "without a reason")
        return (
            "it is not where KUBECONFIG leads to, whose identity, the namespace kube-system, cannot be read: "
            f"the API server answered {status} ({told})"
        )
    here, there = kube_system["metadata"]["uid"], owner.get("cluster", "")
    if here != there:
        return (
            f"KUBECONFIG leads to another cluster: its identity is {here}, that of the object's is {there or 'unknown'}"
        )
    return ""


def _patch(spec: Mapping[str, Any], *, paused: bool) -> dict[str, Any]:
    """Return what to change in a spec, in which a pause is said in one of two ways."""
    if paused:
        return {} if spec.get("stopPolicy") == "Hold" else {"paused": True}
    return {"paused": False} | ({"stopPolicy": "None"} if spec.get("stopPolicy", "None") != "None" else {})
