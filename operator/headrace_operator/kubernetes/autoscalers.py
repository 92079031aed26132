"""Which HorizontalPodAutoscalers set the replicas of a Deployment; those of KEDA's ScaledObjects are among them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Body, Kube, collection

KEPT_SECONDS = 15.0
"""All are listed at once, and again after this time when somebody asks."""

log = logging.getLogger("headrace.operator")


class Autoscalers:
    """Lists them. ``namespaces``: those that are watched, empty for all. ``clock``: monotonic seconds."""

    def __init__(self, kube: Kube, clock: Callable[[], float], namespaces: Iterable[str] = ()) -> None:
        self._kube = kube
        self._clock = clock
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._listed_at = float("-inf")
        self._found: dict[tuple[str, str], list[str]] = {}
        self._lock = asyncio.Lock()

    async def of(self, namespace: str, deployment: str, *, within: float = KEPT_SECONDS) -> tuple[str, ...]:
        """Return the names of those that scale a Deployment, with what made them, as of ``within`` seconds ago."""
        async with self._lock:
            if self._clock() - self._listed_at >= within:
                await self._list()
        return tuple(sorted(self._found.get((namespace, deployment), ())))

    async def _list(self) -> None:
        found: dict[tuple[str, str], list[str]] = {}
        try:
            for watched in self._namespaces:
                async for body in self._kube.items(
                    collection("autoscaling", "v2", "horizontalpodautoscalers", watched)
                ):
                    target = body["spec"]["scaleTargetRef"]
                    if target["kind"] == "Deployment":
                        key = (body["metadata"]["namespace"], target["name"])
                        found.setdefault(key, []).append(_named(body["metadata"]))
        except (ApiError, ApiUnavailable) as error:
            # What was seen last is kept: a moment without an answer is no reason to take replicas back.
            log.warning("HorizontalPodAutoscalers could not be listed: %s", error)
        else:
            self._found = found
        self._listed_at = self._clock()


def _named(metadata: Body) -> str:
    """Return the name of one, with the object that it would be made anew for if it were deleted."""
    owner = next((each for each in metadata.get("ownerReferences", []) if each.get("controller")), None)
    return str(metadata["name"]) if owner is None else f"{metadata['name']} (of {owner['kind']} {owner['name']})"
