"""Queues and QueueVersions as an API server keeps them, for the simulation of many passes. Real ones: tests/cluster."""

from __future__ import annotations

import copy
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from headrace_operator.kubernetes.client import ApiError, Body
from headrace_operator.kubernetes.pace import Priority


class ApiInMemory:
    """The calls of `headrace_operator.kubernetes.client.Kube`, over a dict from path to object."""

    def __init__(self) -> None:
        self.objects: dict[str, Body] = {}
        self._numbers = itertools.count(1)

    async def get(self, path: str) -> Body:
        if path not in self.objects:
            raise ApiError("GET", path, 404, "not found")
        return copy.deepcopy(self.objects[path])

    async def find(self, path: str) -> Body | None:
        return copy.deepcopy(self.objects.get(path))

    async def items(self, path: str, *, labels: str = "") -> AsyncIterator[Body]:
        for found in sorted(self.objects):
            if found.startswith(path + "/"):
                yield copy.deepcopy(self.objects[found])

    async def create(
        self, path: str, body: Mapping[str, Any], *, manager: str, priority: Priority = Priority.URGENT
    ) -> Body:
        full = f"{path}/{body['metadata']['name']}"
        if full in self.objects:
            raise ApiError("POST", full, 409, "exists")
        number = str(next(self._numbers))
        stored = copy.deepcopy(dict(body))
        stored["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": number, "generation": 1}
        self.objects[full] = stored
        return copy.deepcopy(stored)

    async def merge(
        self, path: str, body: Mapping[str, Any], *, manager: str, priority: Priority = Priority.URGENT
    ) -> Body:
        path = path.removesuffix("/status")
        stored = await self.get(path)
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected not in (None, stored["metadata"]["resourceVersion"]):
            raise ApiError("PATCH", path, 409, "changed")
        before = copy.deepcopy(stored.get("spec"))
        merged = _merge(stored, body)
        merged["metadata"]["resourceVersion"] = str(next(self._numbers))
        merged["metadata"]["generation"] += merged.get("spec") != before
        self.objects[path] = merged
        return copy.deepcopy(merged)

    async def delete(self, path: str, *, uid: str) -> None:
        if path in self.objects and self.objects[path]["metadata"]["uid"] == uid:
            del self.objects[path]


def _merge(old: Any, new: Any) -> Any:
    if not isinstance(new, Mapping):
        return copy.deepcopy(new)
    merged = dict(old) if isinstance(old, Mapping) else {}
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
