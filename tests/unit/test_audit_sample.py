"""The duty that audits a few partitions: which, when, at which cost, and what it tells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from headrace.election.fence import Token
from headrace.lifecycle import promote
from headrace.maintenance.audit_sample import INTERVAL, LOAD, PARTITIONS, AuditSample
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import NotLeading, Turn
from headrace.stores.base import Leftover, PartitionAudit
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef
from tests.conformance.steps import QUEUE

STEP = 0.004


class Damaged(MemoryStore):
    """Of which some partitions are damaged; each audit takes ten steps of 4 ms on the clock of the test."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = scene
        self.damage: dict[int, Sequence[Leftover]] = {}
        self.looked: list[int] = []

    async def audit_partition(
        self, ref: PartitionRef, *, repair: bool, pause: Callable[[], Awaitable[None]]
    ) -> PartitionAudit:
        assert not repair
        self.looked.append(ref.partition)
        for _ in range(10):
            self.scene.now += STEP
            await pause()
        return PartitionAudit("active", 1, 0, self.damage.get(ref.partition, ()), True, 10)


class Scene:
    def __init__(self) -> None:
        self.now = 1000.0
        self.store = Damaged(self)
        self.signs = Signs()
        self.token: Token | None = Token(1, "n")
        self.told: list[tuple[str, int, int]] = []
        self.duty = AuditSample(lambda *told: self.told.append(told), lambda: 0.5)
        self.rested = 0.0

    async def begin(self, partitions: int) -> None:
        await promote(self.store, QUEUE, 1, partitions)
        self.signs.read(await self.store.read_topology(QUEUE))

    async def run(self) -> None:
        async def pause(seconds: float) -> None:
            self.now += seconds
            self.rested += seconds

        await self.duty.run(
            Turn(QUEUE, self.store, lambda: self.token, lambda: None, lambda: self.now, pause), self.signs
        )


@pytest.fixture
async def scene() -> Scene:
    made = Scene()
    await made.begin(10)
    return made


async def test_every_partition_gets_its_turn_and_an_idle_queue_is_left_alone(scene: Scene) -> None:
    assert scene.duty.due(scene.signs, scene.now) is None
    assert scene.signs.watched
    looks = []
    for _ in range(5):
        scene.signs.noticed()
        due = scene.duty.due(scene.signs, scene.now)
        assert due is not None
        assert due <= scene.now + INTERVAL
        scene.now = max(scene.now, due)
        scene.store.looked.clear()
        await scene.run()
        looks.append(tuple(scene.store.looked))
        assert scene.duty.due(scene.signs, scene.now) is None  # until something happens
    assert looks == [(5, 6, 7, 8), (9, 0, 1, 2), (3, 4, 5, 6), (7, 8, 9, 0), (1, 2, 3, 4)]
    assert scene.told == [(QUEUE, PARTITIONS, 0)] * 5


async def test_a_look_keeps_the_store_busy_for_its_share_of_the_time_only(scene: Scene) -> None:
    began = scene.now
    await scene.run()
    busy = 4 * 10 * STEP
    assert busy / (scene.now - began) == pytest.approx(LOAD, rel=0.05)


async def test_damage_is_told_in_one_line_and_counted(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.store.damage = {
        6: [Leftover("record without index", "jobs", b"a"), Leftover("record without index", "jobs", b"b")],
        8: [Leftover("several indexes", "r1", b"c")],
    }
    await scene.run()
    assert scene.told == [(QUEUE, 4, 3)]
    (line,) = caplog.messages
    assert "2 x record without index, 1 x several indexes" in line
    assert f"headrace audit {QUEUE}" in line


async def test_a_leader_that_leads_no_more_stops_in_the_middle(scene: Scene) -> None:
    scene.token = None
    with pytest.raises(NotLeading):
        await scene.run()
    assert scene.store.looked == [5]
    assert scene.told == []
