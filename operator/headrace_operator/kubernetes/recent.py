"""The objects of each Queue as they are known: from lists, watches, and the answers to our own calls.

So that looking at a thousand Queues twice a minute costs the API server nothing while nothing happens. Of two versions
of an object the newer one is kept, whichever way it came. What is known may be old all the same: before anything is
done that cannot be undone, the Queue is read again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from headrace_operator.api.names import QueueKey
from headrace_operator.observed import QueueObject

Body = Mapping[str, Any]
What = Literal["queue", "versions", "workers"]
KEPT_SECONDS = 900.0
"""Longest time without anything that says that it is still so; a list does, every few minutes."""
_REMEMBERED = 20_000
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Packed:
    """An object of the API in little memory: as dicts it takes ten times as much, as models more than that."""

    __slots__ = ("_data",)

    def __init__(self, body: Body) -> None:
        self._data = zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)

    def unpacked(self) -> dict[str, Any]:
        """Return it as a new dict."""
        body: dict[str, Any] = json.loads(zlib.decompress(self._data))
        return body


class Kept(NamedTuple):
    """An object (None: there is none) with its uid and resourceVersion, and the clock until it counts."""

    value: Packed | None
    uid: str
    version: int
    until: float


class Recent:
    """By Queue and kind of object. One event loop. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queues: dict[QueueKey, Kept] = {}
        self._workers: dict[QueueKey, Kept] = {}
        self._beside: dict[QueueKey, tuple[float, dict[str, Packed]]] = {}
        self._versions: dict[QueueKey, dict[str, Kept]] = {}
        self._unlisted: set[QueueKey] = set()
        self._scalers: dict[QueueKey, Packed] = {}
        self._told: dict[QueueKey, tuple[int, bool]] = {}
        """Of worker Deployments: the resourceVersion that the watch told last, and whether there is one since then."""
        self._ended: dict[str, int] = {}
        """By uid: the resourceVersion at which an object went, so that an older answer does not bring it back."""
        self.complete = False
        """Whether everything was listed once: a Queue whose versions are not known here has none then."""

    # ---- what is known --------------------------------------------------------------------------------------------

    @property
    def queues(self) -> set[QueueKey]:
        """The Queues that are known, however old that is."""
        return set(self._queues)

    def version_uids(self) -> dict[QueueKey, set[str]]:
        """Return the uids of the QueueVersions that are known, by Queue, however old that is."""
        return {key: set(kept) for key, kept in self._versions.items()}

    def queue(self, key: QueueKey) -> QueueObject | None:
        """Return the Queue; None: read it."""
        kept = self._queues.get(key)
        if kept is None or kept.value is None or self._clock() >= kept.until:
            return None
        return QueueObject.parse(kept.value.unpacked())

    def queue_at(self, key: QueueKey) -> tuple[str, str] | None:
        """Return uid and resourceVersion of the Queue; None: read it."""
        kept = self._queues.get(key)
        if kept is None or kept.value is None or self._clock() >= kept.until:
            return None
        return kept.uid, str(kept.version)

    def versions(self, key: QueueKey) -> tuple[Body, ...] | None:
        """Return the QueueVersions of a Queue; None: read them."""
        kept = self._known_versions(key)
        return None if kept is None else tuple(each.value.unpacked() for each in kept if each.value is not None)

    def version_numbers(self, key: QueueKey) -> tuple[int, ...] | None:
        """Return the resourceVersions of the QueueVersions of a Queue; None: read them."""
        kept = self._known_versions(key)
        return None if kept is None else tuple(each.version for each in kept)

    def _known_versions(self, key: QueueKey) -> Collection[Kept] | None:
        if not self.complete or key in self._unlisted:
            return None
        kept = self._versions.get(key, {}).values()
        return None if any(self._clock() >= each.until for each in kept) else kept

    def workers(self, key: QueueKey) -> Kept | None:
        """Return the worker Deployment, `Packed`, or that there is none; None: read it."""
        kept = self._workers.get(key)
        return kept if kept is not None and self._clock() < kept.until else None

    def scalers(self, namespace: str) -> list[QueueObject]:
        """Return the Queues of a namespace that scale a Deployment which is not their own, however old that is."""
        kept = (value for key, value in self._scalers.items() if key.namespace == namespace)
        return [QueueObject.parse(value.unpacked()) for value in kept]

    def companions(self, key: QueueKey, seconds: float) -> dict[str, dict[str, Any]] | None:
        """Return what is made beside the workers, by kind, if that was read within ``seconds``; None: read it."""
        read_at, found = self._beside.get(key, (float("-inf"), {}))
        if self._clock() - read_at >= seconds:
            return None
        return {kind: packed.unpacked() for kind, packed in found.items()}

    # ---- what is told ---------------------------------------------------------------------------------------------

    def keep_queue(self, body: Body) -> bool:
        """Take in a Queue; returns whether it is another version than was known."""
        metadata = body["metadata"]
        key, version = QueueKey(metadata["namespace"], metadata["name"]), resource_version(metadata)
        before = self._queues.get(key)
        if self._is_old(metadata["uid"], version, before):
            return False
        same = before is not None and (before.uid, before.version) == (metadata["uid"], version)
        if before is not None and before.value is not None and same:
            self._queues[key] = before._replace(until=self._until())
            return False
        packed = Packed(_thin(body))
        self._queues[key] = Kept(packed, metadata["uid"], version, self._until())
        if ((body.get("spec") or {}).get("workers") or {}).get("scaleTargetRef"):
            # Also while it is mistrusted: a Deployment does not become free because its Queue has to be read again.
            self._scalers[key] = packed
        else:
            self._scalers.pop(key, None)
        return True

    def keep_version(self, key: QueueKey, body: Body) -> None:
        """Take in a QueueVersion of a Queue."""
        metadata, version = body["metadata"], resource_version(body["metadata"])
        before = self._versions.get(key, {}).get(metadata["uid"])
        if self._is_old(metadata["uid"], version, before):
            return
        if before is not None and before.version == version:
            kept = before._replace(until=self._until())
        else:
            kept = Kept(Packed(_thin(body)), metadata["uid"], version, self._until())
        self._versions.setdefault(key, {})[metadata["uid"]] = kept

    def keep_versions(self, key: QueueKey, bodies: Iterable[Body]) -> None:
        """Take in all QueueVersions of a Queue."""
        listed = {body["metadata"]["uid"]: body for body in bodies}
        for uid in self._versions.get(key, {}).keys() - listed.keys():
            del self._versions[key][uid]
        for body in listed.values():
            self.keep_version(key, body)
        self._unlisted.discard(key)

    def keep_workers(self, key: QueueKey, body: Body | None) -> None:
        """Take in the worker Deployment as it was read or written; None: there was none.

        An answer that was under way while the watch told something newer is not kept: nothing would ever correct it.
        """
        told, there = self._told.get(key, (0, False))
        if body is None:
            if there:
                self._workers.pop(key, None)
            else:
                self._workers[key] = Kept(None, "", 0, self._until())
            return
        version, before = resource_version(body["metadata"]), self._workers.get(key)
        if version < told:
            self._workers.pop(key, None)
        elif not self._is_old(body["metadata"]["uid"], version, before):
            self._workers[key] = Kept(Packed(body), body["metadata"]["uid"], version, self._until())

    def workers_changed(self, key: QueueKey, version: int, *, there: bool) -> None:
        """Say what the watch told: the worker Deployment is as of that resourceVersion, or is gone since then."""
        if len(self._told) >= _REMEMBERED:
            self._told.clear()
        self._told[key] = (version, there)
        kept = self._workers.get(key)
        if kept is None:
            return
        if there and kept.value is not None and kept.version == version:
            self._workers[key] = kept._replace(until=self._until())
        elif kept.version <= version:
            del self._workers[key]

    def workers_scaled(self, key: QueueKey) -> None:
        """Read the worker Deployment again: its replicas were written."""
        self._workers.pop(key, None)

    def keep_companions(self, key: QueueKey, found: Mapping[str, Body]) -> None:
        """Take in what is made beside the workers, as it was read: by kind, those that are there."""
        self._beside[key] = (self._clock(), {kind: Packed(body) for kind, body in found.items()})

    def keep_companion(self, key: QueueKey, kind: str, body: Body) -> None:
        """Take in one of them as it was written. Nothing watches them, so the others stay as old as they are."""
        if key in self._beside:
            self._beside[key][1][kind] = Packed(body)

    def workers_written(self, key: QueueKey) -> None:
        """Read everything of the workers again: it was written, or was not as it was known."""
        self._workers.pop(key, None)
        self._beside.pop(key, None)

    def gone(self, what: What, key: QueueKey, uid: str, version: str | None = None) -> None:
        """Say that the object with ``uid`` is gone since ``version`` (None: unknown)."""
        if version is not None and version.isdecimal():
            if len(self._ended) >= _REMEMBERED:
                self._ended.clear()
            self._ended[uid] = int(version)
        if what == "versions":
            if (kept_versions := self._versions.get(key)) is not None:
                kept_versions.pop(uid, None)
                if not kept_versions:
                    del self._versions[key]
        elif what == "queue" and (kept := self._queues.get(key)) is not None and kept.uid == uid:
            del self._queues[key]
            self._scalers.pop(key, None)

    def forget(self, key: QueueKey) -> None:
        """Forget a Queue that is gone. Its QueueVersions follow it, and are told of."""
        self._queues.pop(key, None)
        self._scalers.pop(key, None)
        self.workers_written(key)
        self._unlisted.discard(key)

    def mistrust(self, key: QueueKey) -> None:
        """Read everything of a Queue again: something was not as it was known."""
        if (kept := self._queues.get(key)) is not None:
            self._queues[key] = kept._replace(value=None)  # its number stays, so that nothing older is believed
        self.workers_written(key)
        self._unlisted.add(key)

    def _until(self) -> float:
        return self._clock() + KEPT_SECONDS

    def _is_old(self, uid: str, version: int, before: Kept | None) -> bool:
        return version < self._ended.get(uid, 0) or (before is not None and version < before.version)


def _thin(body: Body) -> dict[str, Any]:
    """Return what a plan is made from: not who manages which field, and not what kubectl has applied last."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
    return {"metadata": metadata} | {part: body[part] for part in ("spec", "status") if part in body}


def resource_version(metadata: Body) -> int:
    """Return the resourceVersion as a number: those of one kind of object, and of its lists, can be compared."""
    text = str(metadata["resourceVersion"])
    return int(text) if text.isdecimal() else 0
