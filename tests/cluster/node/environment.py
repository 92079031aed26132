"""Environment variables of a container, resolved from values only: no I/O."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from tests.cluster.rest import Object

# (kind, name) to the object, or None if there is none; kind is "Secret" or "ConfigMap".
References = Mapping[tuple[str, str], Object | None]

_VARIABLE = re.compile(r"\$\$|\$\(([^()\s]+)\)")
_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class MissingReference(Exception):
    """A Secret, ConfigMap, key or field that the container needs does not exist (yet)."""


@dataclass(frozen=True)
class Placement:
    """Where a Pod runs: its address, the node's address and what a missing limit stands for."""

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]


def references(pod: Object) -> set[tuple[str, str]]:
    """(kind, name) of every Secret and ConfigMap that the Pod's environment or volumes name."""
    found: set[tuple[str, str]] = set()
    spec = pod["spec"]
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for source in container.get("envFrom", []):
            for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if key in source:
                    found.add((kind, source[key]["name"]))
        for variable in container.get("env", []):
            for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if key in variable.get("valueFrom", {}):
                    found.add((kind, variable["valueFrom"][key]["name"]))
    for volume in spec.get("volumes", []):
        for source in [volume, *volume.get("projected", {}).get("sources", [])]:
            if "configMap" in source:
                found.add(("ConfigMap", source["configMap"]["name"]))
            if "secret" in source:
                found.add(("Secret", source["secret"].get("secretName") or source["secret"]["name"]))
    return found


def data_of(kind: str, item: Object) -> dict[str, bytes]:
    """Decoded entries of a Secret or ConfigMap."""
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in (item.get("data") or {}).items()}
    entries = {key: value.encode() for key, value in (item.get("data") or {}).items()}
    return entries | {key: base64.b64decode(value) for key, value in (item.get("binaryData") or {}).items()}


def lookup(kind: str, name: str, optional: bool, known: References) -> dict[str, bytes] | None:
    """Entries of a Secret or ConfigMap; None if it is missing and optional, else :class:`MissingReference`."""
    item = known.get((kind, name))
    if item is not None:
        return data_of(kind, item)
    if optional:
        return None
    raise MissingReference(f'{kind.lower()} "{name}" not found')


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by its value; an unknown name stays as it is, ``$$`` is a plain dollar."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _VARIABLE.sub(replace, text)


def resolve(container: Object, pod: Object, known: References, placement: Placement) -> dict[str, str]:
    """The container's own variables (``envFrom``, then ``env`` in order). Raises :class:`MissingReference`."""
    result: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in source:
                entries = lookup(kind, source[key]["name"], source[key].get("optional", False), known)
                for name, value in (entries or {}).items():
                    result[source.get("prefix", "") + name] = value.decode(errors="surrogateescape")
    for variable in container.get("env", []):
        text: str | None
        if "valueFrom" in variable:
            text = _from_source(variable["valueFrom"], container, pod, known, placement)
        else:
            text = expand(variable.get("value", ""), result)
        if text is not None:
            result[variable["name"]] = text
    return result


def _from_source(source: Object, container: Object, pod: Object, known: References, placement: Placement) -> str | None:
    if "fieldRef" in source:
        return field(source["fieldRef"]["fieldPath"], pod, placement)
    if "resourceFieldRef" in source:
        return resource(source["resourceFieldRef"], container, pod, placement)
    for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if key in source:
            reference = source[key]
            optional = reference.get("optional", False)
            entries = lookup(kind, reference["name"], optional, known)
            if entries is not None and reference["key"] in entries:
                return entries[reference["key"]].decode(errors="surrogateescape")
            if optional:
                return None
            raise MissingReference(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    raise MissingReference(f"container {container['name']}: unknown source of a variable: {', '.join(source)}")


def field(path: str, pod: Object, placement: Placement) -> str:
    """Value of a downward field. Raises :class:`MissingReference` for one that Kubernetes does not offer."""
    keyed = _KEYED_FIELD.fullmatch(path)
    if keyed:
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = pod["metadata"].get(path.split(".")[1]) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(entries.items()))
    values = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": placement.pod_ip,
        "status.podIPs": placement.pod_ip,
        "status.hostIP": placement.host_ip,
        "status.hostIPs": placement.host_ip,
    }
    if path not in values:
        raise MissingReference(f"unsupported field path {path!r}")
    return str(values[path])


def resource(reference: Object, container: Object, pod: Object, placement: Placement) -> str:
    """Value of ``requests.*`` or ``limits.*``, in units of the divisor, rounded up.

    A missing limit is what the node could give, a missing request is 0.
    """
    name = reference.get("containerName", container["name"])
    spec = pod["spec"]
    owner = next(each for each in [*spec["containers"], *spec.get("initContainers", [])] if each["name"] == name)
    section, _, kind = reference["resource"].partition(".")
    fallback = placement.allocatable.get(kind, "0") if section == "limits" else "0"
    amount = _quantity(owner.get("resources", {}).get(section, {}).get(kind, fallback))
    divisor = _quantity(reference.get("divisor", "1")) or 1
    return str(math.ceil(amount / divisor))


def _quantity(text: str) -> Decimal:
    amount: Decimal = parse_quantity(text)  # type: ignore[no-untyped-call]
    return amount
