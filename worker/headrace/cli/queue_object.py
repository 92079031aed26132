"""Changes the Queue object in Kubernetes that owns a queue, as the person who calls."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import OwnedByObject

PATCH = "application/merge-patch+json"
SECONDS = 10.0


def set_paused(queue: str, owner: Mapping[str, str], *, paused: bool) -> bool | None:
    """Set ``spec.paused`` of the object that owns a queue; whether that changed it, None if the object is gone.

    To resume ends ``spec.stopPolicy``, too. Raises OwnedByObject with what to do by hand if the API cannot be reached,
    or refuses it.
    """
    namespace, name = owner.get("namespace", ""), owner.get("name", "")
    wanted = json.dumps({"spec": {"paused": paused}})
    by_hand = f"do it by hand: `kubectl -n {namespace} patch queue {name} --type=merge --patch '{wanted}'`"

    def refuse(problem: str) -> OwnedByObject:
        return OwnedByObject(queue, f"{namespace}/{name}", problem, by_hand)

    try:
        import kubernetes.client
        import kubernetes.config
        from kubernetes.client.exceptions import ApiException
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

        def call(method: str, body: Any = None) -> dict[str, Any]:
            reply = client.call_api(
                path,
                method,
                header_params={"Content-Type": PATCH, "Accept": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=SECONDS,
            )
            found: dict[str, Any] = json.loads(reply[0].data)
            return found

        try:
            found = call("GET")
            if (uid := owner.get("uid")) and found["metadata"]["uid"] != uid:
                return None
            patch = _patch(found["spec"], paused=paused)
            changed = call("PATCH", {"spec": patch})
        except ApiException as error:
            if error.status == 404:
                return None
            raise refuse(f"the API server answered {error.status} ({_told(error.body)})") from None
        except (HTTPError, OSError) as error:
            raise refuse(f"the API server did not answer ({type(error).__name__})") from None
    return bool(found["metadata"]["generation"] != changed["metadata"]["generation"])


def _patch(spec: Mapping[str, Any], *, paused: bool) -> dict[str, Any]:
    """Return what to change in a spec, in which a pause is said in one of two ways."""
    if paused:
        return {} if spec.get("stopPolicy") == "Hold" else {"paused": True}
    return {"paused": False} | ({"stopPolicy": "None"} if spec.get("stopPolicy", "None") != "None" else {})


def _told(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return "without a reason"
