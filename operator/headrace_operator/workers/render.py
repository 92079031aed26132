"""What the workers of a Queue run as: the Deployment, made from the spec.

The renderer has a version, kept on the Deployment. While the spec stays the same, a newer operator renders with the
version that is on the object: an upgrade of the operator alone never restarts a worker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from headrace_operator.api.leader_election_spec import LeaderElection
from headrace_operator.api.names import (
    GRACE,
    GROUP_VERSION,
    MANAGED_BY_LABEL,
    OPERATOR,
    OWNER_UID,
    QUEUE_KIND,
    QUEUE_LABEL,
    RENDERED,
    RENDERED_FROM,
    RENDERER,
    workers_name,
)
from headrace_operator.api.workers_spec import Workers
from headrace_operator.observed import Backend, QueueObject
from headrace_operator.workers import grace
from headrace_operator.workers.pod_template import WORKER, merge_template

URL_FOLDER = "/etc/headrace/redis"
MONGO_FOLDER = "/etc/headrace/mongo"
HEALTH_PORT = 8080
PodTemplate = dict[str, Any]


def owner_reference(queue: QueueObject) -> dict[str, Any]:
    """Return the reference that makes an object die with the Queue."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": QUEUE_KIND,
        "name": queue.name,
        "uid": queue.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels(queue: QueueObject) -> dict[str, str]:
    """Return the labels of everything made for the Queue."""
    return {
        "app.kubernetes.io/name": "headrace-worker",
        "app.kubernetes.io/instance": queue.name,
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/part-of": "headrace",
        MANAGED_BY_LABEL: OPERATOR,
        QUEUE_LABEL: queue.name,
    }


def selector(queue: QueueObject) -> dict[str, str]:
    """Return the labels that select the worker Pods."""
    return {"app.kubernetes.io/component": "worker", QUEUE_LABEL: queue.name}


def selector_text(queue: QueueObject) -> str:
    """Return the selector as `kubectl -l` takes it."""
    return _as_text({"matchLabels": selector(queue)})


def selector_of(deployment: Mapping[str, Any]) -> str:
    """Return the selector of the Pods of any Deployment as `kubectl -l` takes it."""
    return _as_text(deployment.get("spec", {}).get("selector", {}))


def _as_text(given: Mapping[str, Any]) -> str:
    parts = [f"{key}={value}" for key, value in given.get("matchLabels", {}).items()]
    for rule in given.get("matchExpressions", []):
        key, values = rule["key"], ",".join(rule.get("values", []))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(forms.get(rule["operator"], f"!{key}"))
    return ",".join(parts)


def render_deployment(
    queue: QueueObject, workers: Workers, backend: Backend, found: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the Deployment, without replicas, as it has to be applied over ``found`` (None: it does not exist).

    Raises TemplateRefused if spec.workers.podTemplate cannot be merged.
    """
    source = digest(_source(queue, workers, backend))
    annotations = (found or {}).get("metadata", {}).get("annotations", {})
    carried = {str(version): version for version in RENDERERS}.get(annotations.get(RENDERER))
    same = annotations.get(RENDERED_FROM) == source
    version = carried if carried is not None and same else max(RENDERERS)
    longest = 0 if queue.spec is None else queue.spec.timeout_seconds
    seconds = grace.to_render(workers, longest, found, same_source=same)
    resolved = workers.model_copy(update={"termination_grace_period_seconds": seconds})
    template = RENDERERS[version](queue, resolved, backend)
    if workers.pod_template is not None:
        template = merge_template(template, workers.pod_template.model_dump(mode="json"))
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(queue),
        "spec": {
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector(queue)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
            "template": template,
        },
    }
    rendered = digest(body)
    body["metadata"]["annotations"] |= {RENDERER: str(version), RENDERED_FROM: source, RENDERED: rendered}
    if workers.termination_grace_period_seconds is None:
        body["metadata"]["annotations"][GRACE] = str(seconds)
    return body


def metadata(queue: QueueObject) -> dict[str, Any]:
    """Return the metadata of an object that is made for the workers."""
    given: dict[str, Any] = {
        "name": workers_name(queue.name),
        "namespace": queue.namespace,
        "labels": labels(queue),
        "annotations": {OWNER_UID: queue.uid},
    }
    return given if queue.keeps_workers else given | {"ownerReferences": [owner_reference(queue)]}


def lease_name(queue: QueueObject) -> str | None:
    """Return the name of the Lease by which the workers elect their leader; None if they use none."""
    election = None if queue.spec is None else queue.spec.leader_election
    if election is None or "lease" not in election.chain:
        return None
    return election.lease_name or workers_name(queue.name)


def _source(queue: QueueObject, workers: Workers, backend: Backend) -> dict[str, Any]:
    source = {
        "workers": workers.model_dump(mode="json", exclude_defaults=True),
        "queue": queue.queue_name,
        "secret": backend.secret,
        "url": backend.url,
    }
    election = {} if queue.spec is None else queue.spec.leader_election.model_dump(mode="json", exclude_defaults=True)
    # Left out where nothing is said, so that it is what it was before there was an election to speak of.
    return source | {"election": election} if election else source


def digest(value: Any) -> str:
    """Return a short hash of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _template_v1(queue: QueueObject, workers: Workers, backend: Backend) -> PodTemplate:
    container: dict[str, Any] = {
        "name": WORKER,
        "image": workers.image,
        **_command(workers),
        "env": _environment(queue, workers, backend),
        "ports": [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=5, failures=3),
        # A worker may load a large application before it listens.
        "startupProbe": _probe("/healthz", period=1, failures=120),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod: dict[str, Any] = {
        "serviceAccountName": workers.service_account_name or workers_name(queue.name),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": workers.termination_grace_period_seconds,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    if workers.env_from:
        container["envFrom"] = workers.env_from
    if workers.resources is not None:
        container["resources"] = workers.resources.model_dump(exclude_none=True)
    if backend.secret is not None:
        name, key = backend.secret
        container["volumeMounts"] = [{"name": "redis", "mountPath": URL_FOLDER, "readOnly": True}]
        pod["volumes"] = [
            {"name": "redis", "secret": {"secretName": name, "items": [{"key": key, "path": "url"}]}},
        ]
    return {"metadata": {"labels": labels(queue)}, "spec": pod}


def _template_v2(queue: QueueObject, workers: Workers, backend: Backend) -> PodTemplate:
    """Return the template of workers that are named after their Pod and elect as spec.leaderElection says."""
    template = _template_v1(queue, workers, backend)
    if queue.spec is None:
        return template
    pod, election, lease = template["spec"], queue.spec.leader_election, lease_name(queue)
    container = pod["containers"][0]
    pod["automountServiceAccountToken"] = lease is not None
    if election.mongo is not None and "mongo" in election.chain:
        secret = election.mongo.secret_ref
        files = {"secretName": secret.name, "items": [{"key": secret.key, "path": "url"}]}
        mount = {"name": "mongo", "mountPath": MONGO_FOLDER, "readOnly": True}
        container["volumeMounts"] = [*container.get("volumeMounts", []), mount]
        pod["volumes"] = [*pod.get("volumes", []), {"name": "mongo", "secret": files}]
    users = len(workers.env)
    rendered = container["env"][: len(container["env"]) - users]
    # The host's name is not the Pod's where it runs in the network of its node.
    name = {"name": "HEADRACE_WORKER_ID", **_field("metadata.name")}
    container["env"] = [*rendered, name, *_campaign(election, lease), *container["env"][len(rendered) :]]
    return template


def _campaign(election: LeaderElection, lease: str | None) -> list[dict[str, Any]]:
    given = {
        "BACKENDS": ",".join(election.chain) or "none",
        "LEASE_NAME": lease,
        "MONGO_URL_FILE": f"{MONGO_FOLDER}/url" if "mongo" in election.chain else None,
        "PROFILE": election.profile,
        "LEASE_DURATION": election.lease_duration_seconds,
        "RENEW_DEADLINE": election.renew_deadline_seconds,
        "RETRY_PERIOD": election.retry_period_seconds,
    }
    return [
        {"name": f"HEADRACE_LEADER_{name}", "value": f"{value:g}" if isinstance(value, float) else str(value)}
        for name, value in given.items()
        if value is not None
    ]


RENDERERS: Mapping[int, Callable[[QueueObject, Workers, Backend], PodTemplate]] = {1: _template_v1, 2: _template_v2}
"""Pod templates by renderer version; an old one stays until no Deployment can carry it any more."""


def _command(workers: Workers) -> dict[str, list[str]]:
    if workers.app is not None:
        return {"command": ["headrace"], "args": ["worker", "run", workers.app]}
    return {"command": list(workers.command or ())}


def _environment(queue: QueueObject, workers: Workers, backend: Backend) -> list[dict[str, Any]]:
    connection: dict[str, Any]
    if backend.secret is not None:
        connection = {"name": "HEADRACE_REDIS_URL_FILE", "value": f"{URL_FOLDER}/url"}
    else:
        connection = {"name": "HEADRACE_REDIS_URL", "value": backend.url}
    given = [variable.model_dump(by_alias=True, exclude_none=True) for variable in workers.env]
    stopping = workers.termination_grace_period_seconds or 0
    return [
        {"name": "POD_NAME", **_field("metadata.name")},
        {"name": "POD_NAMESPACE", **_field("metadata.namespace")},
        {"name": "POD_IP", **_field("status.podIP")},
        {"name": "NODE_NAME", **_field("spec.nodeName")},
        {"name": "HEADRACE_QUEUES", "value": queue.queue_name},
        connection,
        {"name": "HEADRACE_CONCURRENCY", "value": str(workers.concurrency)},
        {"name": "HEADRACE_GRACE_SECONDS", "value": str(max(0, stopping - grace.WIND_DOWN_SECONDS))},
        {"name": "HEADRACE_HEALTH_PORT", "value": str(HEALTH_PORT)},
        *([] if workers.metrics == "none" else [{"name": "HEADRACE_METRICS", "value": workers.metrics}]),
        *given,
    ]


def _field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }
