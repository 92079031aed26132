"""A loss of jobs is told before anything is repaired, whoever gets in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_operator.kubernetes.client import Body
from headrace_operator.kubernetes.pace import Priority
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.test_convergence import PATH, World


class Interfering(ApiInMemory):
    """Somebody changes the Queue just before the next write of its status, once ``armed``."""

    armed = False

    async def merge(
        self, path: str, body: Mapping[str, Any], *, manager: str, priority: Priority = Priority.URGENT
    ) -> Body:
        if self.armed and path == f"{PATH}/status":
            self.armed = False
            await super().merge(PATH, {"metadata": {"labels": {"team": "mail"}}}, manager="user")
        return await super().merge(path, body, manager=manager)


async def test_a_loss_is_told_although_the_queue_was_changed_meanwhile() -> None:
    api = Interfering()
    world = World(api=api)
    await world.create()
    await world.rest()
    world.lose_everything()
    api.armed = True
    await world.rest()
    assert not api.armed
    status = world.queue["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert status["dataLossEpoch"] == status["topologyEpoch"]
    assert (conditions["DataLoss"], conditions["Ready"]) == ("True", "True")
