"""The Node object and its Lease."""

from __future__ import annotations

import asyncio
import datetime
import os
import platform
from collections.abc import Mapping

from tests.cluster.binaries import KUBERNETES
from tests.cluster.node.api import UNREACHABLE, Api
from tests.cluster.node.status import timestamp
from tests.cluster.rest import ApiError, Object

MERGE = "application/merge-patch+json"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0


def node_object(name: str, capacity: Mapping[str, str], port: int, cidr: str, now: datetime.datetime) -> Object:
    """A Ready node at 127.0.0.1 whose kubelet interface listens on ``port``."""
    moment = timestamp(now)
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    checks = [("Ready", "True", "ProcessNodeReady"), *((kind, "False", "NotMeasured") for kind in pressures)]
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    system = platform.system().lower()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": system,
                "kubernetes.io/arch": architecture,
            },
        },
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": "",
                    "lastHeartbeatTime": moment,
                    "lastTransitionTime": moment,
                }
                for kind, status, reason in checks
            ],
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": os.uname().release,
                "osImage": platform.platform(terse=True),
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": f"v{KUBERNETES}",
                "kubeProxyVersion": "",
                "operatingSystem": system,
                "architecture": architecture,
            },
        },
    }


async def register(api: Api, node: Object) -> None:
    """Create the Node, replacing one of the same name, and remove the taint that admission gives it."""
    name = node["metadata"]["name"]
    try:
        await api.request("DELETE", f"/api/v1/nodes/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
    await api.request("POST", "/api/v1/nodes", node)
    # Otherwise the node-lifecycle controller's work; it does not run here.
    await api.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content_type=MERGE)


async def keep_lease(api: Api, name: str) -> None:
    """Renew the node's Lease for ever."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    while True:
        moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment}
        pause = RENEW_SECONDS
        try:
            await api.request("PATCH", f"{path}/{name}", {"spec": spec}, content_type=MERGE)
        except ApiError as error:
            pause = 1.0
            if error.status == 404:
                lease = {"metadata": {"name": name}, "spec": spec}
                pause = RENEW_SECONDS if await _create(api, path, lease) else 0.2
        except UNREACHABLE:
            pause = 1.0
        await asyncio.sleep(pause)


async def _create(api: Api, path: str, lease: Object) -> bool:
    try:
        await api.request("POST", path, lease)
    except (ApiError, *UNREACHABLE):
        return False  # its namespace appears shortly after the API server
    return True
