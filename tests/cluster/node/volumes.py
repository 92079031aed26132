"""Volumes: what files they hold (pure), how these are swapped atomically, and where a container finds them."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cluster.node.environment import MissingReference, Placement, References, field, lookup, resource
from tests.cluster.rest import Object

Files = dict[str, tuple[bytes, int]]  # path inside the volume to content and mode
TokenOf = Callable[[Object], str]  # a serviceAccountToken source to the token

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_WRITTEN = ("secret", "configMap", "downwardAPI", "projected")
_SUPPORTED = (*_WRITTEN, "emptyDir", "hostPath")


def unsupported(pod: Object) -> str | None:
    """Why this node cannot run the Pod faithfully, None if it can."""
    for volume in pod["spec"].get("volumes", []):
        if not any(kind in volume for kind in _SUPPORTED):
            kinds = ", ".join(sorted(set(volume) - {"name"}))
            return f"volume {volume['name']} ({kinds}): this node has only {', '.join(_SUPPORTED)}"
    for container in pod["spec"].get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            return f"init container {container['name']}: this node has no sidecars (restartPolicy Always)"
    for container in pod["spec"]["containers"]:
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if "grpc" in container.get(probe, {}):
                return f"container {container['name']}: this node has no grpc probes ({probe})"
    return None


def is_written(volume: Object) -> bool:
    """Whether the node writes this volume's files (and follows changes of their sources)."""
    return any(kind in volume for kind in _WRITTEN)


def token_sources(volume: Object) -> list[Object]:
    """The ``serviceAccountToken`` sources of a projected volume."""
    sources = volume.get("projected", {}).get("sources", [])
    return [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]


def content(volume: Object, pod: Object, known: References, placement: Placement, token_of: TokenOf) -> Files:
    """All files of a volume. Raises :class:`MissingReference` if a source is missing and not optional."""
    if "projected" not in volume:
        kind = next(kind for kind in _WRITTEN if kind in volume)
        mode = volume[kind].get("defaultMode", 0o644)
        return _source(kind, volume[kind], mode, pod, known, placement, token_of)
    files: Files = {}
    mode = volume["projected"].get("defaultMode", 0o644)
    for source in volume["projected"].get("sources", []):
        for kind, value in source.items():
            files |= _source(kind, value, mode, pod, known, placement, token_of)
    return files


def _source(
    kind: str, source: Object, mode: int, pod: Object, known: References, placement: Placement, token_of: TokenOf
) -> Files:
    if kind == "serviceAccountToken":
        return {source["path"]: (token_of(source).encode(), 0o600)}
    if kind == "downwardAPI":
        return {
            item["path"]: (_downward(item, pod, placement).encode(), item.get("mode", mode))
            for item in source.get("items", [])
        }
    if kind not in ("secret", "configMap"):
        raise MissingReference(f"this node cannot project {kind}")
    name = source.get("secretName") or source["name"]
    optional = source.get("optional", False)
    api_kind = "Secret" if kind == "secret" else "ConfigMap"
    entries = lookup(api_kind, name, optional, known)
    if entries is None:
        return {}
    if "items" not in source:
        return {key: (value, mode) for key, value in entries.items()}
    files: Files = {}
    for item in source["items"]:
        if item["key"] in entries:
            files[item["path"]] = (entries[item["key"]], item.get("mode", mode))
        elif not optional:
            raise MissingReference(f"couldn't find key {item['key']} in {api_kind} {name}")
    return files


def _downward(item: Object, pod: Object, placement: Placement) -> str:
    if "fieldRef" in item:
        return field(item["fieldRef"]["fieldPath"], pod, placement)
    reference = item["resourceFieldRef"]
    return resource(reference, {"name": reference["containerName"]}, pod, placement)


def write(folder: Path, files: Files) -> bool:
    """Make ``folder`` hold exactly ``files``, all at once; returns whether anything changed.

    As a kubelet does it: each name is a link to ``..data/<name>``, and ``..data`` is a link to a folder with the whole
    set, replaced by a rename. A reader sees the old set or the new one, never a mixture.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    if data.is_symlink() and _read(folder / os.readlink(data)) == {path: value for path, (value, _) in files.items()}:
        return False
    version = folder / f"..{uuid.uuid4().hex}"
    version.mkdir()
    for path, (value, mode) in files.items():
        target = version / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(value)
        target.chmod(mode)
    previous = folder / os.readlink(data) if data.is_symlink() else None
    fresh = folder / "..data_tmp"
    fresh.symlink_to(version.name)
    fresh.rename(data)
    tops = {path.split("/", 1)[0] for path in files}
    for top in tops:
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(f"..data/{top}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name not in tops and not entry.name.startswith(".."):
            entry.unlink()
    if previous is not None:
        shutil.rmtree(previous, ignore_errors=True)
    return True


def _read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mounts(container: Object, pod: Object, volumes: Path) -> dict[str, str]:
    """Each ``mountPath`` of the container to the local folder or file that stands for it."""
    by_name = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    result: dict[str, str] = {}
    for mount in container.get("volumeMounts", []):
        volume = by_name[mount["name"]]
        base = Path(volume["hostPath"]["path"]) if "hostPath" in volume else volumes / mount["name"]
        result[mount["mountPath"].rstrip("/") or "/"] = str(base / mount["subPath"] if "subPath" in mount else base)
    return result


def relocate(text: str, places: Mapping[str, str]) -> str:
    """Replace every ``mountPath`` that begins a path in ``text`` by its local place.

    >>> relocate("--config=/etc/app/x.yaml,/etc/apple", {"/etc/app": "/p/v"})
    '--config=/p/v/x.yaml,/etc/apple'
    """
    names = sorted((path for path in places if path != "/"), key=len, reverse=True)
    if not names:
        return text
    pattern = "|".join(re.escape(name) for name in names)
    return re.sub(rf"(?<![\w.\-])(?:{pattern})(?![\w.\-])", lambda match: places[match[0]], text)
