"""Who else scales a Deployment, as the API server lists it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from headrace_operator.kubernetes.autoscalers import Autoscalers
from headrace_operator.kubernetes.client import ApiUnavailable, Kube


class Listing:
    """An API server with HorizontalPodAutoscalers; ``away``: it does not answer."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = list(bodies)
        self.away = False
        self.lists = 0

    async def items(self, path: str) -> AsyncIterator[dict[str, Any]]:
        assert path.endswith("/horizontalpodautoscalers")
        self.lists += 1
        if self.away:
            raise ApiUnavailable("no answer")
        for body in self.bodies:
            yield body


def autoscaler(name: str, deployment: str, **metadata: Any) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": deployment}
    return {"metadata": {"namespace": "ns", "name": name, **metadata}, "spec": {"scaleTargetRef": target}}


async def test_O28_all_that_scale_a_deployment_are_named_with_what_made_them() -> None:
    owner = {"kind": "ScaledObject", "name": "mail", "controller": True}
    api = Listing(
        autoscaler("keda-hpa-mail", "mail-workers", ownerReferences=[owner]),
        autoscaler("by-hand", "mail-workers"),
        autoscaler("another", "others"),
    )
    found = await Autoscalers(cast(Kube, api), lambda: 0.0).of("ns", "mail-workers")
    assert found == ("by-hand", "keda-hpa-mail (of ScaledObject mail)")


async def test_they_are_listed_once_in_a_while_and_kept_while_nobody_answers() -> None:
    now, api = 0.0, Listing(autoscaler("by-hand", "mail-workers"))
    autoscalers = Autoscalers(cast(Kube, api), lambda: now)
    for _ in range(3):
        assert await autoscalers.of("ns", "mail-workers") == ("by-hand",)
    assert api.lists == 1
    now, api.away = 20.0, True
    assert await autoscalers.of("ns", "mail-workers") == ("by-hand",)
    now, api.away = 40.0, False
    api.bodies.clear()
    assert await autoscalers.of("ns", "mail-workers") == ()
    assert api.lists == 3
