"""Lists everything that the operator looks after, in pages: at the start of a term, and every few minutes after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from headrace_operator.api.names import MANAGED_BY_LABEL, OPERATOR, QUEUE_LABEL, QueueKey, workers_name
from headrace_operator.kubernetes.client import Kube, deployments, queue_versions, queues
from headrace_operator.kubernetes.recent import Recent


class Listed(NamedTuple):
    """A Queue in a list. ``changed``: the list shows another version of it, or fewer QueueVersions, than were known."""

    uid: str
    version: str
    changed: bool


class Lister:
    """Takes what it lists in as what is known, and believes nothing any more of what is missing.

    ``namespaces``: those that are watched, empty for all.
    """

    def __init__(self, kube: Kube, recent: Recent, namespaces: Sequence[str] = ()) -> None:
        self._kube = kube
        self._recent = recent
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)

    async def list_all(self) -> dict[QueueKey, Listed]:
        """Return every Queue. Raises ApiError and ApiUnavailable."""
        found: dict[QueueKey, Listed] = {}
        before, there = self._recent.version_uids(), set[str]()
        for namespace in self._namespaces:
            async for body in self._kube.items(queues(namespace)):
                metadata = body["metadata"]
                key = QueueKey(metadata["namespace"], metadata["name"])
                changed = self._recent.keep_queue(body)
                found[key] = Listed(metadata["uid"], metadata["resourceVersion"], changed)
            async for body in self._kube.items(queue_versions(namespace)):
                metadata = body["metadata"]
                there.add(metadata["uid"])
                if (name := metadata.get("labels", {}).get(QUEUE_LABEL)) is not None:
                    self._recent.keep_version(QueueKey(metadata["namespace"], name), body)
            if not self._recent.complete:
                await self._list_workers(namespace)
        self._recent.complete = True
        for key in self._recent.queues - found.keys():
            # Its end was missed, or it has come since: only the API server can tell.
            self._recent.mistrust(key)
        self._miss_versions(before, there, found)
        return found

    def _miss_versions(
        self, before: Mapping[QueueKey, set[str]], there: Set[str], found: dict[QueueKey, Listed]
    ) -> None:
        """Forget the QueueVersions that were known before a list and are not in it: no event has told of their end."""
        now = self._recent.version_uids()
        for key, uids in before.items():
            missing = (uids - there) & now.get(key, set())
            for uid in missing:
                self._recent.gone("versions", key, uid)
            if missing and key in found:
                self._recent.mistrust(key)
                found[key] = found[key]._replace(changed=True)

    async def _list_workers(self, namespace: str | None) -> None:
        """List the worker Deployments; afterwards their own watch says what has become of them."""
        async for body in self._kube.items(deployments(namespace), labels=f"{MANAGED_BY_LABEL}={OPERATOR}"):
            metadata = body["metadata"]
            key = QueueKey(metadata["namespace"], metadata["labels"].get(QUEUE_LABEL, ""))
            if metadata["name"] == workers_name(key.name):
                # Items of a list come without these two.
                self._recent.keep_workers(key, {"apiVersion": "apps/v1", "kind": "Deployment", **body})
