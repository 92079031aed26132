"""spec.workers.podTemplate, merged over the pod template that the operator renders.

The rules are those of a strategic merge, with the merge keys that Kubernetes publishes for Pods: maps are merged field
by field, null takes a field away; the lists of `MERGE_KEYS` are merged item by item, an item of the same key over the
rendered one, others after them; every other list, and a volume of the same name, is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace_operator.api.workers_spec import is_reserved

Body = dict[str, Any]
WORKER = "worker"
"""Name of the container that runs the workers."""
_CONTAINER = {"env": "name", "ports": "containerPort", "volumeDevices": "devicePath", "volumeMounts": "mountPath"}
MERGE_KEYS: Mapping[tuple[str, ...], str] = {
    ("spec", "containers"): "name",
    ("spec", "ephemeralContainers"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "resourceClaims"): "name",
    ("spec", "schedulingGates"): "name",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "volumes"): "name",
    **{
        ("spec", kind, field): key
        for kind in ("containers", "ephemeralContainers", "initContainers")
        for field, key in _CONTAINER.items()
    },
}
"""By the path of a list, without the items on the way: the field that tells its items apart."""
REPLACED = frozenset({("spec", "resourceClaims"), ("spec", "volumes")})
"""Lists of which an item replaces the rendered one of its key: two sources in one volume would be refused."""


class TemplateRefused(Exception):
    """The override cannot be merged; the message names the field and says what to do."""


def merge_template(rendered: Body, override: Body) -> Body:
    """Return ``rendered`` with ``override`` merged over it, both pod templates. Raises TemplateRefused."""
    _check(rendered, override)
    merged = _merged(rendered, override, ())
    if not isinstance(merged, dict):
        raise TemplateRefused("is no object")
    return merged


def _merged(old: Any, new: Any, path: tuple[str, ...]) -> Any:
    if isinstance(new, Mapping):
        base = dict(old) if isinstance(old, Mapping) else {}
        for field, value in new.items():
            if field.startswith("$"):
                raise TemplateRefused(f"{'.'.join((*path, field))}: is a directive; write null to take a field away")
            if value is None:
                base.pop(field, None)
            else:
                base[field] = _merged(base.get(field), value, (*path, field))
        return base
    if isinstance(new, list) and (key := MERGE_KEYS.get(path)):
        items = {item[key]: item for item in old or ()}
        for number, item in enumerate(new):
            if not isinstance(item, Mapping) or not isinstance(item.get(key), str | int):
                raise TemplateRefused(f"{'.'.join(path)}[{number}]: has no {key}, by which items are told apart")
            before = None if path in REPLACED else items.get(item[key])
            items[item[key]] = _merged(before, item, path)
        return list(items.values())
    return new


def _check(rendered: Body, override: Body) -> None:
    """Refuse what the operator decides itself, and what would break its own Deployment."""
    spec = override.get("spec") or {}
    if "terminationGracePeriodSeconds" in spec:
        raise TemplateRefused(
            "spec.terminationGracePeriodSeconds: the workers have to know it; set "
            "spec.workers.terminationGracePeriodSeconds instead"
        )
    labels = rendered["metadata"]["labels"]
    for name, value in ((override.get("metadata") or {}).get("labels") or {}).items():
        if name in labels and value != labels[name]:
            raise TemplateRefused(f"metadata.labels: {name} is set by the operator; choose another label")
    for container in _objects(spec.get("containers")):
        for variable in _objects(container.get("env")) if container.get("name") == WORKER else ():
            if is_reserved(str(variable.get("name"))):
                raise TemplateRefused(
                    f"spec.containers: the variable {variable['name']} of {WORKER} is set by the operator; choose "
                    "another name"
                )


def _objects(items: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of what may be a list; what else is in it, the API server refuses."""
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, Mapping))
